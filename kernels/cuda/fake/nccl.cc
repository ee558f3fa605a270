// The functions of NCCL that the backend calls. What they do and return is said in the library's
// header; what is stricter here in fake_nccl.h. All of it under the lock of the device state.
#include <nccl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <set>

#include "kernels/cuda/fake/device_state.h"
#include "kernels/cuda/fake/fake_nccl.h"
#include "kernels/cuda/fake/nccl_rank.h"
#include "kernels/cuda/fake/rank_link.h"

namespace coppice::kernels::cuda::fake {
namespace {

struct NcclState {
  static NcclState& Get() {
    static auto* const state = [] {
      auto* made = new NcclState();
      if (const char* failure = std::getenv("DEV_FAIL_NCCL")) made->FailAsTold(failure);
      return made;
    }();
    return *state;
  }

  // "call:rank:nth"
  void FailAsTold(const std::string& text) {
    const size_t rank = text.find(':'), nth = text.find(':', rank + 1);
    NcclFailure told = {text.substr(0, rank)};
    told.rank = std::stoi(text.substr(rank + 1));
    until_failure = std::stoi(text.substr(nth + 1));
    failure = told;
  }

  std::optional<NcclFailure> failure;
  int64_t until_failure = 0;
  bool failed = false;
  std::map<int, std::map<std::string, int64_t>> calls;  // by rank
  std::map<std::string, int> listeners;                 // of ids that nobody has used
  int64_t ids = 0;
};

}  // namespace
}  // namespace coppice::kernels::cuda::fake

using namespace coppice::kernels::cuda::fake;  // NOLINT: the functions below are of this file

struct ncclComm {
  std::shared_ptr<NcclRank> comm;
};

namespace {

// Those that live.
std::set<ncclComm_t>& Handles() {
  static auto* const handles = new std::set<ncclComm_t>();
  return *handles;
}

enum class Outcome { kGoOn, kFailed, kLater };

Outcome Count(const char* call, int rank, ncclResult_t* result) {
  NcclState& nccl = NcclState::Get();
  ++nccl.calls[rank][call];
  if (!nccl.failure || nccl.failure->call != call || nccl.failure->rank != rank) {
    return Outcome::kGoOn;
  }
  if (nccl.until_failure-- > 0) return Outcome::kGoOn;
  *result = nccl.failure->result;
  nccl.failed = true;
  const bool later = nccl.failure->later;
  nccl.failure.reset();
  return later ? Outcome::kLater : Outcome::kFailed;
}

template <class Body>
ncclResult_t NcclCall(const char* name, int rank, Body&& body) {
  DeviceState& state = DeviceState::Get();
  const std::lock_guard<std::mutex> lock(state.mutex);
  ncclResult_t result = ncclSuccess;
  return Count(name, rank, &result) == Outcome::kGoOn ? body(state) : result;
}

// A call for a communicator. always: body runs although the call fails.
template <class Body>
ncclResult_t CommCall(const char* name, ncclComm_t handle, Body&& body, bool always = false) {
  DeviceState& state = DeviceState::Get();
  const std::lock_guard<std::mutex> lock(state.mutex);
  if (!Handles().count(handle)) {
    std::string rule = name;
    rule += " of a communicator that does not live";
    state.Violate(rule);
    return ncclInvalidArgument;
  }
  ncclResult_t result = ncclSuccess;
  const Outcome outcome = Count(name, handle->comm->rank(), &result);
  if (outcome == Outcome::kLater && !always) {
    handle->comm->Fail(result);
    return ncclInProgress;
  }
  if (outcome == Outcome::kGoOn) return body(state, *handle->comm);
  if (always) body(state, *handle->comm);
  return result;
}

ncclResult_t End(DeviceState& state, ncclComm_t handle) {
  handle->comm->Abort();
  Handles().erase(handle);
  delete handle;
  --state.live.handles;
  return ncclSuccess;
}

bool IsNonBlocking(const ncclConfig_t* config) {
  return config != nullptr && config->size == sizeof(ncclConfig_t) &&
         config->version == NCCL_VERSION_CODE && config->blocking == 0;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  return NcclCall("ncclGetVersion", 0, [&](DeviceState&) {
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
  });
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return NcclCall("ncclGetUniqueId", 0, [&](DeviceState&) {
    NcclState& nccl = NcclState::Get();
    const std::string name =
        "coppice-fake-nccl-" + std::to_string(getpid()) + "-" + std::to_string(nccl.ids++);
    const int listener = RankLink::Listen(name);
    if (listener < 0) return ncclSystemError;
    nccl.listeners[name] = listener;
    std::memset(id, 0, sizeof *id);
    std::memcpy(id->internal, name.data(), name.size());
    return ncclSuccess;
  });
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* out, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  DeviceState& state = DeviceState::Get();
  const std::lock_guard<std::mutex> lock(state.mutex);
  *out = nullptr;
  ncclResult_t result = ncclSuccess;
  const Outcome outcome = Count("ncclCommInitRankConfig", rank, &result);
  if (outcome == Outcome::kFailed) return result;
  if (!IsNonBlocking(config)) {
    state.Violate("a communicator that blocks");
    return ncclInvalidArgument;
  }
  NcclState& nccl = NcclState::Get();
  const std::string name = id.internal;
  int listener = -1;
  if (rank == 0) {
    const auto found = nccl.listeners.find(name);
    if (found == nccl.listeners.end()) return ncclInvalidArgument;
    listener = found->second;
    nccl.listeners.erase(found);
  }
  *out = new ncclComm{std::make_shared<NcclRank>(rank, ranks, listener)};
  Handles().insert(*out);
  ++state.live.handles;
  if (outcome == Outcome::kLater) {
    (*out)->comm->Fail(result);
  } else {
    (*out)->comm->Join(name);
  }
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* error) {
  return CommCall("ncclCommGetAsyncError", handle, [&](DeviceState&, NcclRank& comm) {
    *error = comm.Poll();
    return ncclSuccess;
  });
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  return CommCall("ncclCommFinalize", handle, [&](DeviceState&, NcclRank& comm) {
    comm.Finalize();
    return ncclInProgress;
  });
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  return CommCall(
      "ncclCommDestroy", handle, [&](DeviceState& state, NcclRank&) { return End(state, handle); },
      true);
}

ncclResult_t ncclCommAbort(ncclComm_t handle) {
  return CommCall(
      "ncclCommAbort", handle, [&](DeviceState& state, NcclRank&) { return End(state, handle); },
      true);
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t handle, cudaStream_t stream) {
  return CommCall("ncclAllReduce", handle, [&](DeviceState& state, NcclRank& comm) {
    const size_t bytes = count * sizeof(float);
    if (!comm.joined() || !comm.idle() || type != ncclFloat32 || op != ncclSum || count == 0 ||
        !state.IsStream(stream) || !state.Holds(Place::kDevice, from, bytes) ||
        !state.Holds(Place::kDevice, to, bytes)) {
      state.Violate(
          "a sum over the ranks before the call before it was done, or not of its buffers");
      return ncclInvalidUsage;
    }
    const AllReduceCall call = {static_cast<const float*>(from), static_cast<float*>(to), count};
    comm.LaunchLater(
        [=, &state, of = handle->comm] { state.Queue(stream, [=] { return of->Run(call); }); });
    return ncclInProgress;
  });
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSystemError:
      return "unhandled system error";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInvalidUsage:
      return "invalid usage";
    default:
      return "an error of the simulated NCCL";
  }
}

const char* ncclGetLastError(ncclComm_t) { return "simulated"; }

}  // extern "C"

namespace coppice::kernels::cuda::fake {

void FailNccl(const NcclFailure& failure) {
  const std::lock_guard<std::mutex> lock(DeviceState::Get().mutex);
  NcclState& nccl = NcclState::Get();
  nccl.failure = failure;
  nccl.until_failure = failure.nth;
  nccl.failed = false;
}

bool NcclFailed() {
  const std::lock_guard<std::mutex> lock(DeviceState::Get().mutex);
  return NcclState::Get().failed;
}

void RecoverNccl() {
  const std::lock_guard<std::mutex> lock(DeviceState::Get().mutex);
  NcclState& nccl = NcclState::Get();
  nccl.failure.reset();
  nccl.failed = false;
  nccl.calls.clear();
  for (const auto& [name, listener] : nccl.listeners) close(listener);
  nccl.listeners.clear();
}

std::map<std::string, int64_t> NcclCalls(int rank) {
  const std::lock_guard<std::mutex> lock(DeviceState::Get().mutex);
  return NcclState::Get().calls[rank];
}

}  // namespace coppice::kernels::cuda::fake
