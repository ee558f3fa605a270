#include "kernels/cuda/collectives/nccl_caller.h"

#include <cuda_runtime_api.h>
#include <sched.h>

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"

namespace coppice::kernels::cuda {
namespace {

constexpr double kAbortWithin_s = 1;

const char* ResultName(ncclResult_t result) {
  switch (result) {
    case ncclUnhandledCudaError:
      return "ncclUnhandledCudaError";
    case ncclSystemError:
      return "ncclSystemError";
    case ncclInternalError:
      return "ncclInternalError";
    case ncclInvalidArgument:
      return "ncclInvalidArgument";
    case ncclInvalidUsage:
      return "ncclInvalidUsage";
    case ncclRemoteError:
      return "ncclRemoteError";
    default:
      return "an unknown result of NCCL";
  }
}

}  // namespace

std::string DescribeResult(const NcclApi& api, ncclResult_t result) {
  return absl::StrCat(ResultName(result), ": ", api.get_error_string(result));
}

NcclCaller::NcclCaller(const NcclApi& api, int rank, int ranks)
    : api_(api), rank_(rank), ranks_(ranks) {
  if (cudaGetDevice(&device_) != cudaSuccess) cudaGetLastError();
}

absl::Status NcclCaller::Join(const ncclUniqueId& id, const char* what, double end_s) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return Call("ncclCommInitRankConfig", what, end_s, [&](ncclComm_t) {
    return api_.comm_init_rank_config(&comm_, ranks_, id, rank_, &config);
  });
}

absl::Status NcclCaller::Call(const char* call, const char* what, double end_s,
                              absl::FunctionRef<ncclResult_t(ncclComm_t)> body) {
  ncclResult_t result = ncclSuccess;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    COPPICE_RETURN_IF_ERROR(Known());
    result = body(comm_);
  }
  while (true) {
    const absl::StatusOr<bool> done = Done(call, what, result, end_s);
    if (!done.ok()) return Fail(done.status());
    if (*done) return absl::OkStatus();
    if (end_s == kNoDeadline) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    if (comm_ == nullptr) return Known();
    const ncclResult_t asked = api_.comm_get_async_error(comm_, &result);
    if (asked != ncclSuccess) return Fail(Error(asked, "ncclCommGetAsyncError", what));
  }
}

absl::StatusOr<bool> NcclCaller::Done(const char* call, const char* what, ncclResult_t result,
                                      double end_s) {
  if (result == ncclSuccess) return true;
  if (result != ncclInProgress) return Error(result, call, what);
  if (clock_.NowSeconds() > end_s) return Late(call, what);
  return false;
}

absl::Status NcclCaller::Failure(const char* what) {
  COPPICE_RETURN_IF_ERROR(Known());
  // A thread that is in a call now sees its outcome.
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || comm_ == nullptr) return absl::OkStatus();
  ncclResult_t result = ncclSuccess;
  const ncclResult_t asked = api_.comm_get_async_error(comm_, &result);
  if (asked != ncclSuccess) return Fail(Error(asked, "ncclCommGetAsyncError", what));
  if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
  return Fail(Error(result, "ncclAllReduce", what));
}

void NcclCaller::Abort(const absl::Status& reason) {
  Fail(reason).IgnoreError();
  // A call that does not return keeps the communicator; then only the end of the process helps.
  const double end_s = clock_.NowSeconds() + kAbortWithin_s;
  std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  while (!lock.owns_lock() && clock_.NowSeconds() < end_s) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    lock.try_lock();
  }
  if (lock.owns_lock() && comm_ != nullptr) EndApart(api_.comm_abort);
}

void NcclCaller::EndApart(ncclResult_t (*end)(ncclComm_t)) {
  std::promise<void> ended;
  ended_ = ended.get_future();
  // NCCL leaves its thread with the device that it had before. Without one that would be the first
  // device, which would get a context.
  std::thread([end, comm = std::exchange(comm_, nullptr), device = device_,
               ended = std::move(ended)]() mutable {
    if (cudaSetDevice(device) != cudaSuccess) cudaGetLastError();
    end(comm);
    ended.set_value();
  }).detach();
}

bool NcclCaller::Ended(double within_s) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return !ended_.valid() ||
         ended_.wait_for(std::chrono::duration<double>(within_s)) == std::future_status::ready;
}

void NcclCaller::Part(const char* what, double end_s) {
  if (comm_ == nullptr) return;
  const absl::Status parted = Call("ncclCommFinalize", what, end_s, api_.comm_finalize);
  if (!parted.ok()) return Abort(parted);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (comm_ != nullptr) EndApart(api_.comm_destroy);
}

absl::Status NcclCaller::BeginAnew(double within_s) {
  if (comm_ != nullptr || !Ended(within_s)) return Known();
  const std::lock_guard<std::mutex> lock(failure_mutex_);
  failure_ = absl::OkStatus();
  return failure_;
}

absl::Status NcclCaller::Error(ncclResult_t result, const char* call, const char* what) const {
  const char* detail = api_.get_last_error(nullptr);
  return absl::InternalError(absl::StrCat(
      what, ": rank ", rank_, " of ", ranks_, ": ", call, ": ", DescribeResult(api_, result),
      detail == nullptr || *detail == '\0' ? "" : absl::StrCat(" (", detail, ")")));
}

absl::Status NcclCaller::Late(const char* call, const char* what) const {
  std::vector<int> others;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank != rank_) others.push_back(rank);
  }
  return absl::DeadlineExceededError(
      absl::StrCat(what, ": rank ", rank_, " of ", ranks_, ": ", call,
                   ": not within its deadline; it waits for rank ", absl::StrJoin(others, ", ")));
}

absl::Status NcclCaller::Known() {
  const std::lock_guard<std::mutex> lock(failure_mutex_);
  return failure_;
}

absl::Status NcclCaller::Fail(const absl::Status& status) {
  const std::lock_guard<std::mutex> lock(failure_mutex_);
  failure_.Update(status);
  return failure_;
}

}  // namespace coppice::kernels::cuda
