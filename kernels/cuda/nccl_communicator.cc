#include "kernels/cuda/nccl_communicator.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/status.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/nccl_api.h"
#include "kernels/cuda/rank_agreement.h"

namespace coppice::kernels::cuda {
namespace {

constexpr char kJoin[] = "the ranks of a replica join", kSum[] = "a sum over the ranks",
               kFirstSum[] = "the first sum over the ranks", kEnd[] = "the ranks of a replica part";
constexpr double kNoDeadline = std::numeric_limits<double>::infinity();
constexpr double kPartWithin_s = 5;
constexpr double kAbortWithin_s = 1;
constexpr int64_t kFirstSumCount = 1000;

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

class NcclCommunicator final : public DeviceCollectives {
 public:
  NcclCommunicator(const NcclApi& api, int rank, int ranks, int version)
      : api_(api), rank_(rank), ranks_(ranks), version_(version) {}
  ~NcclCommunicator() override;

  absl::Status Join(const ncclUniqueId& id, double end_s);
  // Forms one sum, which makes the connections, and checks it.
  absl::Status SumOnce(DeviceStream* stream, double end_s);

  std::string description() const override {
    return absl::StrCat("NCCL ", version_ / 10000, ".", version_ / 100 % 100, ".", version_ % 100);
  }
  bool only_enqueues() const override { return true; }
  absl::Status AllReduceSum(float* values, int64_t count, DeviceStream* stream) override {
    return Sum(values, count, stream, kSum, kNoDeadline);
  }
  absl::Status Failure() override;
  void Abort(const absl::Status& reason) override;

 private:
  absl::Status Sum(float* values, int64_t count, DeviceStream* stream, const char* what,
                   double end_s);
  // One call of NCCL for this communicator, and what follows while it is in progress. Its failure is
  // that of the communicator.
  absl::Status Call(const char* call, const char* what, double end_s,
                    absl::FunctionRef<ncclResult_t()> body);
  absl::StatusOr<bool> Done(const char* call, const char* what, ncclResult_t result, double end_s);
  absl::Status Error(ncclResult_t result, const char* call, const char* what) const;
  absl::Status Late(const char* call, const char* what) const;
  absl::Status Known();                           // the failure so far
  absl::Status Fail(const absl::Status& status);  // the first failure: this one or an earlier one

  const NcclApi& api_;
  const int rank_, ranks_, version_;
  const SteadyClock clock_;
  std::mutex mutex_;           // of each call for comm_
  ncclComm_t comm_ = nullptr;  // null once it has ended
  std::mutex failure_mutex_;
  absl::Status failure_;  // the first
};

NcclCommunicator::~NcclCommunicator() {
  if (comm_ == nullptr) return;
  const absl::Status parted = Call("ncclCommFinalize", kEnd, clock_.NowSeconds() + kPartWithin_s,
                                   [this] { return api_.comm_finalize(comm_); });
  if (parted.ok()) {
    api_.comm_destroy(comm_);
  } else {
    Abort(parted);
  }
}

absl::Status NcclCommunicator::Join(const ncclUniqueId& id, double end_s) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return Call("ncclCommInitRankConfig", kJoin, end_s,
              [&] { return api_.comm_init_rank_config(&comm_, ranks_, id, rank_, &config); });
}

absl::Status NcclCommunicator::SumOnce(DeviceStream* stream, double end_s) {
  const size_t bytes = kFirstSumCount * sizeof(float);
  COPPICE_ASSIGN_OR_RETURN(const PinnedBuffer host, PinnedBuffer::Allocate(bytes, kFirstSum));
  COPPICE_ASSIGN_OR_RETURN(const DeviceBuffer device, DeviceBuffer::Allocate(bytes, kFirstSum));
  COPPICE_ASSIGN_OR_RETURN(DeviceEvent summed, DeviceEvent::Create(kFirstSum));
  auto* values = reinterpret_cast<float*>(host.data());
  std::fill_n(values, kFirstSumCount, static_cast<float>(rank_ + 1));
  const auto form = [&]() -> absl::Status {
    COPPICE_RETURN_IF_ERROR(stream->CopyToDevice(device.data(), values, bytes, kFirstSum));
    COPPICE_RETURN_IF_ERROR(Sum(device.floats(), kFirstSumCount, stream, kFirstSum, end_s));
    COPPICE_RETURN_IF_ERROR(stream->CopyToHost(values, device.data(), bytes, kFirstSum));
    COPPICE_RETURN_IF_ERROR(summed.Record(*stream, kFirstSum));
    while (true) {
      COPPICE_ASSIGN_OR_RETURN(const bool reached, summed.Reached(kFirstSum));
      COPPICE_RETURN_IF_ERROR(Failure());
      if (reached) break;
      if (clock_.NowSeconds() > end_s) return Late("ncclAllReduce", kFirstSum);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const auto expected = static_cast<float>(ranks_ * (ranks_ + 1) / 2);
    for (int64_t i = 0; i < kFirstSumCount; ++i) {
      if (values[i] == expected) continue;
      return absl::InternalError(
          absl::StrCat(kFirstSum, ": ncclAllReduce: ", values[i], " instead of ", expected));
    }
    return absl::OkStatus();
  };
  const absl::Status status = form();
  if (status.ok()) return status;
  Abort(status);  // before its buffers go: it may still wait
  stream->Synchronize(kFirstSum).IgnoreError();
  return status;
}

absl::Status NcclCommunicator::Sum(float* values, int64_t count, DeviceStream* stream,
                                   const char* what, double end_s) {
  return Call("ncclAllReduce", what, end_s, [&] {
    return api_.all_reduce(values, values, count, ncclFloat32, ncclSum, comm_, stream->get());
  });
}

absl::Status NcclCommunicator::Call(const char* call, const char* what, double end_s,
                                    absl::FunctionRef<ncclResult_t()> body) {
  ncclResult_t result = ncclSuccess;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    COPPICE_RETURN_IF_ERROR(Known());
    result = body();
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

absl::StatusOr<bool> NcclCommunicator::Done(const char* call, const char* what, ncclResult_t result,
                                            double end_s) {
  if (result == ncclSuccess) return true;
  if (result != ncclInProgress) return Error(result, call, what);
  if (clock_.NowSeconds() > end_s) return Late(call, what);
  return false;
}

absl::Status NcclCommunicator::Failure() {
  COPPICE_RETURN_IF_ERROR(Known());
  // Whoever is in a call now sees its outcome.
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || comm_ == nullptr) return absl::OkStatus();
  ncclResult_t result = ncclSuccess;
  const ncclResult_t asked = api_.comm_get_async_error(comm_, &result);
  if (asked != ncclSuccess) return Fail(Error(asked, "ncclCommGetAsyncError", kSum));
  if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
  return Fail(Error(result, "ncclAllReduce", kSum));
}

void NcclCommunicator::Abort(const absl::Status& reason) {
  Fail(reason).IgnoreError();
  // A call that does not come back keeps the communicator; then only the end of the process helps.
  const double end_s = clock_.NowSeconds() + kAbortWithin_s;
  std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  while (!lock.owns_lock() && clock_.NowSeconds() < end_s) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    lock.try_lock();
  }
  if (!lock.owns_lock() || comm_ == nullptr) return;
  api_.comm_abort(std::exchange(comm_, nullptr));
}

absl::Status NcclCommunicator::Error(ncclResult_t result, const char* call,
                                     const char* what) const {
  const char* detail = api_.get_last_error(nullptr);
  return absl::InternalError(
      absl::StrCat(what, ": rank ", rank_, " of ", ranks_, ": ", call, ": ", ResultName(result),
                   ": ", api_.get_error_string(result),
                   detail == nullptr || *detail == '\0' ? "" : absl::StrCat(" (", detail, ")")));
}

absl::Status NcclCommunicator::Late(const char* call, const char* what) const {
  std::vector<int> others;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank != rank_) others.push_back(rank);
  }
  return absl::DeadlineExceededError(
      absl::StrCat(what, ": rank ", rank_, " of ", ranks_, ": ", call,
                   ": not within its deadline; it waits for rank ", absl::StrJoin(others, ", ")));
}

absl::Status NcclCommunicator::Known() {
  const std::lock_guard<std::mutex> lock(failure_mutex_);
  return failure_;
}

absl::Status NcclCommunicator::Fail(const absl::Status& status) {
  const std::lock_guard<std::mutex> lock(failure_mutex_);
  failure_.Update(status);
  return failure_;
}

absl::Status JoinAndSum(NcclCommunicator* nccl, const std::string& id_bytes, double end_s,
                        DeviceStream* stream) {
  ncclUniqueId id;
  if (id_bytes.size() != sizeof id) {
    return absl::InternalError("rank 0 could not make an id of NCCL");
  }
  std::memcpy(&id, id_bytes.data(), sizeof id);
  COPPICE_RETURN_IF_ERROR(nccl->Join(id, end_s));
  return nccl->SumOnce(stream, end_s);
}

}  // namespace

absl::StatusOr<int> NcclVersion() {
  COPPICE_ASSIGN_OR_RETURN(const NcclApi* api, LoadNccl());
  int version = 0;
  const ncclResult_t result = api->get_version(&version);
  if (result == ncclSuccess) return version;
  return absl::InternalError(absl::StrCat("the version of NCCL: ncclGetVersion: ",
                                          ResultName(result), ": ", api->get_error_string(result)));
}

absl::StatusOr<std::unique_ptr<DeviceCollectives>> JoinNccl(comm::Communicator* communicator,
                                                            DeviceStream* stream,
                                                            double deadline_s) {
  const absl::StatusOr<int> version = NcclVersion();
  COPPICE_RETURN_IF_ERROR(Agree(communicator, version.status()));
  COPPICE_ASSIGN_OR_RETURN(const NcclApi* api, LoadNccl());
  std::string id_bytes;
  absl::Status made;
  if (communicator->rank() == 0) {
    ncclUniqueId id;
    const ncclResult_t result = api->get_unique_id(&id);
    if (result == ncclSuccess) {
      id_bytes.assign(reinterpret_cast<const char*>(&id), sizeof id);
    } else {
      made = absl::InternalError(absl::StrCat(kJoin, ": ncclGetUniqueId: ", ResultName(result),
                                              ": ", api->get_error_string(result)));
    }
  }
  COPPICE_RETURN_IF_ERROR(Agree(communicator, made));
  COPPICE_RETURN_IF_ERROR(communicator->Broadcast(&id_bytes));
  auto nccl = std::make_unique<NcclCommunicator>(*api, communicator->rank(), communicator->size(),
                                                 *version);
  const double end_s = SteadyClock().NowSeconds() + deadline_s;
  const absl::Status joined = JoinAndSum(nccl.get(), id_bytes, end_s, stream);
  if (!joined.ok()) nccl->Abort(joined);
  COPPICE_RETURN_IF_ERROR(Agree(communicator, joined));
  return nccl;
}

}  // namespace coppice::kernels::cuda
