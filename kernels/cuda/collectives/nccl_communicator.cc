#include "kernels/cuda/collectives/nccl_communicator.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <list>
#include <string>
#include <thread>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/cuda/collectives/nccl_api.h"
#include "kernels/cuda/collectives/nccl_caller.h"
#include "kernels/cuda/runtime/device_buffer.h"
#include "kernels/cuda/runtime/device_graph.h"
#include "kernels/cuda/runtime/rank_agreement.h"

namespace coppice::kernels::cuda {
namespace {

constexpr char kJoin[] = "the ranks of a replica join", kSum[] = "a sum over the ranks",
               kFirstSum[] = "the first sum over the ranks", kEnd[] = "the ranks of a replica part",
               kWindow[] = "a window of sums over the ranks",
               kFirstWindowSum[] = "the first sum in a window",
               kCapturedSum[] = "a sum over the ranks in a graph";
constexpr double kPartWithin_s = 5;
constexpr int64_t kFirstSumCount = 1000;

std::string VersionName(int version) {
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

class NcclCommunicator final : public DeviceCollectives {
 public:
  NcclCommunicator(const NcclApi& api, int version, comm::Communicator* host, DeviceStream* stream,
                   double deadline_s)
      : api_(api),
        version_(version),
        host_(host),
        stream_(stream),
        deadline_s_(deadline_s),
        caller_(api, host->rank(), host->size()) {}
  ~NcclCommunicator() override;

  // Collective: the ranks join, form one sum, which makes the connections, and check it. Then they
  // try one in a graph; where that fails, they join anew and steps launch their sums one by one.
  absl::Status Enter();

  std::string description() const override {
    return absl::StrCat("NCCL ", VersionName(version_), captures_ ? "" : ", not in graphs",
                        in_windows_ ? " in symmetric windows" : "");
  }
  bool only_enqueues() const override { return captures_; }
  absl::StatusOr<float*> AllocateSummed(int64_t count) override;
  absl::Status AllReduceSum(float* values, int64_t count, DeviceStream* stream) override {
    return Sum(values, count, stream, kSum, kNoDeadline);
  }
  absl::Status Failure() override { return caller_.Failure(kSum); }
  void Abort(const absl::Status& reason) override { caller_.Abort(reason); }

 private:
  // Memory of NCCL. All ranks know a window of it; they have equal windows in the same order.
  struct Memory {
    float* data = nullptr;
    ncclWindow_t window = nullptr;
  };

  absl::StatusOr<std::string> ShareId();
  // values [kFirstSumCount]
  absl::Status JoinAndSum(const std::string& id_bytes, float* values, double end_s);
  absl::Status Sum(float* values, int64_t count, DeviceStream* stream, const char* what,
                   double end_s);
  // Forms one sum of this many of these values and checks it. Aborts on failure.
  absl::Status SumOnce(float* device, int64_t count, const char* what, double end_s);
  // The same; `sum` enqueues it.
  absl::Status CheckSum(float* device, int64_t count, const char* what, double end_s,
                        absl::FunctionRef<absl::Status()> sum);
  // Collective: records a sum of this many of these values in a graph, replays it and checks it. Not
  // OK on any rank: on all.
  absl::Status TryCapture(float* device, int64_t count, double end_s);
  absl::Status AllocateMemory(size_t bytes, Memory* memory) const;
  absl::Status RegisterWindow(int64_t count, Memory* memory);
  // Records why there are no windows: `mine`, if it is this rank that lacks them.
  void GoOnWithoutWindows(const absl::Status& mine);
  bool Deregister();

  const NcclApi& api_;
  const int version_;
  comm::Communicator* const host_;
  DeviceStream* const stream_;
  const double deadline_s_;
  NcclCaller caller_;
  std::list<Memory> memory_;  // NCCL writes to an element while it registers it
  bool tries_windows_ = true, in_windows_ = false;
  bool captures_ = true;  // a graph may hold sums
};

// A window is freed before its communicator, its memory after both.
NcclCommunicator::~NcclCommunicator() {
  if (Deregister()) caller_.Part(kEnd, caller_.NowSeconds() + kPartWithin_s);
  if (!caller_.Ended(kPartWithin_s)) {
    spdlog::warn("NCCL has not ended a communicator within {} s: it stays until the process ends",
                 kPartWithin_s);
    if (!memory_.empty())
      new std::list<Memory>(std::move(memory_));  // NCCL may still use all of it
    return;
  }
  for (const Memory& memory : memory_) api_.mem_free(memory.data);
}

bool NcclCommunicator::Deregister() {
  for (Memory& memory : memory_) {
    const ncclWindow_t window = std::exchange(memory.window, nullptr);
    if (window == nullptr) continue;
    const absl::Status gone =
        caller_.Call("ncclCommWindowDeregister", kEnd, caller_.NowSeconds() + kPartWithin_s,
                     [&](ncclComm_t comm) { return api_.comm_window_deregister(comm, window); });
    if (gone.ok()) continue;
    caller_.Abort(gone);  // also ends all windows
    return false;
  }
  return true;
}

absl::StatusOr<std::string> NcclCommunicator::ShareId() {
  std::string bytes;
  absl::Status made;
  if (host_->rank() == 0) {
    ncclUniqueId id;
    const ncclResult_t result = api_.get_unique_id(&id);
    if (result == ncclSuccess) {
      bytes.assign(reinterpret_cast<const char*>(&id), sizeof id);
    } else {
      made = absl::InternalError(
          absl::StrCat(kJoin, ": ncclGetUniqueId: ", DescribeResult(api_, result)));
    }
  }
  COPPICE_RETURN_IF_ERROR(Agree(host_, made));
  COPPICE_RETURN_IF_ERROR(host_->Broadcast(&bytes));
  return bytes;
}

absl::Status NcclCommunicator::Enter() {
  COPPICE_ASSIGN_OR_RETURN(const std::string id_bytes, ShareId());
  const double end_s = caller_.NowSeconds() + deadline_s_;
  absl::StatusOr<DeviceBuffer> values =
      DeviceBuffer::Allocate(kFirstSumCount * sizeof(float), kFirstSum);
  absl::Status joined = values.status();
  if (joined.ok()) joined = JoinAndSum(id_bytes, values->floats(), end_s);
  if (!joined.ok()) caller_.Abort(joined);
  COPPICE_RETURN_IF_ERROR(Agree(host_, joined));
  if (!captures_) return absl::OkStatus();
  const absl::Status captured =
      TryCapture(values->floats(), kFirstSumCount, caller_.NowSeconds() + deadline_s_);
  if (captured.ok()) return captured;
  spdlog::warn("sums over the ranks are not in CUDA graphs, steps launch them one by one: {}",
               std::string(captured.message()));
  captures_ = false;
  caller_.Abort(absl::CancelledError("a sum over the ranks cannot be in a graph"));
  COPPICE_RETURN_IF_ERROR(Agree(host_, caller_.BeginAnew(deadline_s_)));
  return Enter();
}

// A rank that has no graph says so before the others launch theirs, which would wait for it.
absl::Status NcclCommunicator::TryCapture(float* device, int64_t count, double end_s) {
  const absl::StatusOr<DeviceGraph> graph = DeviceGraph::Capture(
      stream_, kCapturedSum, [&] { return Sum(device, count, stream_, kCapturedSum, end_s); });
  COPPICE_RETURN_IF_ERROR(Agree(host_, graph.status()));
  const absl::Status replayed = CheckSum(device, count, kCapturedSum, end_s,
                                         [&] { return graph->Launch(stream_, kCapturedSum); });
  return Agree(host_, replayed);
}

absl::Status NcclCommunicator::JoinAndSum(const std::string& id_bytes, float* values,
                                          double end_s) {
  ncclUniqueId id;
  if (id_bytes.size() != sizeof id) {
    return absl::InternalError("rank 0 could not make an id of NCCL");
  }
  std::memcpy(&id, id_bytes.data(), sizeof id);
  COPPICE_RETURN_IF_ERROR(caller_.Join(id, kJoin, end_s));
  return SumOnce(values, kFirstSumCount, kFirstSum, end_s);
}

absl::Status NcclCommunicator::Sum(float* values, int64_t count, DeviceStream* stream,
                                   const char* what, double end_s) {
  return caller_.Call("ncclAllReduce", what, end_s, [&](ncclComm_t comm) {
    return api_.all_reduce(values, values, count, ncclFloat32, ncclSum, comm, stream->get());
  });
}

absl::Status NcclCommunicator::SumOnce(float* device, int64_t count, const char* what,
                                       double end_s) {
  return CheckSum(device, count, what, end_s,
                  [&] { return Sum(device, count, stream_, what, end_s); });
}

absl::Status NcclCommunicator::CheckSum(float* device, int64_t count, const char* what,
                                        double end_s, absl::FunctionRef<absl::Status()> sum) {
  const size_t bytes = count * sizeof(float);
  COPPICE_ASSIGN_OR_RETURN(const PinnedBuffer host, PinnedBuffer::Allocate(bytes, what));
  COPPICE_ASSIGN_OR_RETURN(DeviceEvent summed, DeviceEvent::Create(what));
  auto* values = reinterpret_cast<float*>(host.data());
  std::fill_n(values, count, static_cast<float>(caller_.rank() + 1));
  const auto form = [&]() -> absl::Status {
    COPPICE_RETURN_IF_ERROR(stream_->CopyToDevice(device, values, bytes, what));
    COPPICE_RETURN_IF_ERROR(sum());
    COPPICE_RETURN_IF_ERROR(stream_->CopyToHost(values, device, bytes, what));
    COPPICE_RETURN_IF_ERROR(summed.Record(*stream_, what));
    while (true) {
      COPPICE_ASSIGN_OR_RETURN(const bool reached, summed.Reached(what));
      COPPICE_RETURN_IF_ERROR(caller_.Failure(what));
      if (reached) break;
      if (caller_.NowSeconds() > end_s) return caller_.Late("ncclAllReduce", what);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const auto expected = static_cast<float>(caller_.ranks() * (caller_.ranks() + 1) / 2);
    const float* wrong =
        std::find_if(values, values + count, [&](float value) { return value != expected; });
    if (wrong == values + count) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat(what, ": ncclAllReduce: ", *wrong, " instead of ", expected));
  };
  const absl::Status status = form();
  if (status.ok()) return status;
  caller_.Abort(status);  // before its buffers are freed: it may still wait
  stream_->Synchronize(what).IgnoreError();
  return status;
}

absl::Status NcclCommunicator::AllocateMemory(size_t bytes, Memory* memory) const {
  if (!api_.has_windows()) {
    return absl::UnimplementedError(
        absl::StrCat("NCCL ", VersionName(version_), " has none; 2.27 and later have them"));
  }
  void* data = nullptr;
  const ncclResult_t result = api_.mem_alloc(&data, bytes);
  if (result != ncclSuccess) {
    return absl::ResourceExhaustedError(
        absl::StrCat("ncclMemAlloc of ", bytes, " bytes: ", DescribeResult(api_, result)));
  }
  memory->data = static_cast<float*>(data);
  return absl::OkStatus();
}

// NCCL may give no window, which is not an error: devices that cannot reach each other's memory
// have none.
absl::Status NcclCommunicator::RegisterWindow(int64_t count, Memory* memory) {
  const double end_s = caller_.NowSeconds() + deadline_s_;
  const size_t bytes = count * sizeof(float);
  COPPICE_RETURN_IF_ERROR(
      caller_.Call("ncclCommWindowRegister", kWindow, end_s, [&](ncclComm_t comm) {
        return api_.comm_window_register(comm, memory->data, bytes, &memory->window,
                                         NCCL_WIN_COLL_SYMMETRIC);
      }));
  return SumOnce(memory->data, std::min(count, kFirstSumCount), kFirstWindowSum, end_s);
}

void NcclCommunicator::GoOnWithoutWindows(const absl::Status& mine) {
  tries_windows_ = in_windows_ = false;
  if (!mine.ok())
    spdlog::info("no symmetric windows for sums over the ranks: {}", std::string(mine.message()));
}

// All ranks have a window for the same memory, or none has one: NCCL chooses by it how ranks
// communicate. A failed registration may have left its communicator in any state, so a new one is
// made.
absl::StatusOr<float*> NcclCommunicator::AllocateSummed(int64_t count) {
  if (!tries_windows_) return nullptr;
  Memory memory;
  const absl::Status allocated = AllocateMemory(count * sizeof(float), &memory);
  if (allocated.ok()) memory_.push_back(memory);
  const absl::Status all_allocated = Agree(host_, allocated);
  if (!all_allocated.ok()) {
    if (allocated.ok()) {
      stream_->Synchronize(kWindow).IgnoreError();
      api_.mem_free(memory.data);
      memory_.pop_back();
    }
    GoOnWithoutWindows(allocated);
    return nullptr;
  }
  absl::Status registered = RegisterWindow(count, &memory_.back());
  if (!registered.ok()) caller_.Abort(registered);
  absl::Status all_registered = Agree(host_, registered);
  if (all_registered.ok() && captures_) {
    all_registered = registered = TryCapture(memory_.back().data, std::min(count, kFirstSumCount),
                                             caller_.NowSeconds() + deadline_s_);
  }
  if (all_registered.ok()) {
    in_windows_ |= memory_.back().window != nullptr;
    return memory_.back().data;
  }
  GoOnWithoutWindows(registered);
  caller_.Abort(absl::CancelledError("another rank has no window"));
  absl::Status anew = Agree(host_, caller_.BeginAnew(deadline_s_));
  if (anew.ok()) {
    for (Memory& old : memory_) old.window = nullptr;  // gone with the communicator
    anew = Enter();
  }
  if (anew.ok()) return memory_.back().data;
  if (registered.ok()) return anew;
  return absl::Status(anew.code(), absl::StrCat(registered.message(), "; then ", anew.message()));
}

}  // namespace

absl::StatusOr<int> NcclVersion() {
  COPPICE_ASSIGN_OR_RETURN(const NcclApi* api, LoadNccl());
  int version = 0;
  const ncclResult_t result = api->get_version(&version);
  if (result == ncclSuccess) return version;
  return absl::InternalError(
      absl::StrCat("the version of NCCL: ncclGetVersion: ", DescribeResult(*api, result)));
}

absl::StatusOr<std::unique_ptr<DeviceCollectives>> JoinNccl(comm::Communicator* communicator,
                                                            DeviceStream* stream,
                                                            double deadline_s) {
  const absl::StatusOr<int> version = NcclVersion();
  COPPICE_RETURN_IF_ERROR(Agree(communicator, version.status()));
  COPPICE_ASSIGN_OR_RETURN(const NcclApi* api, LoadNccl());
  auto nccl = std::make_unique<NcclCommunicator>(*api, *version, communicator, stream, deadline_s);
  COPPICE_RETURN_IF_ERROR(nccl->Enter());
  return nccl;
}

}  // namespace coppice::kernels::cuda
