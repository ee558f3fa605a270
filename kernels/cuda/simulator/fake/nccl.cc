// The functions of NCCL that the backend calls. The library's header says what they do and return;
// fake_nccl.h says what is stricter here. The lock of the device state guards all of it.
#include <nccl.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "kernels/cuda/simulator/fake/device_state.h"
#include "kernels/cuda/simulator/fake/fake_nccl.h"
#include "kernels/cuda/simulator/fake/nccl_rank.h"
#include "kernels/cuda/simulator/fake/rank_link.h"

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
  bool failed = false, wrong = false;                   // wrong: the sum that is being enqueued
  double late_s = 0;                                    // delay of the end that is being called
  std::map<int, std::map<std::string, int64_t>> calls;  // by rank
  std::map<std::string, int> listeners;                 // listeners of ids that were never used
  int64_t ids = 0, recoveries = 0;
  NcclAbilities abilities;
};

}  // namespace
}  // namespace coppice::kernels::cuda::fake

using namespace coppice::kernels::cuda::fake;  // NOLINT: the functions below are of this file

struct ncclComm {
  std::shared_ptr<NcclRank> comm;
};

namespace {

// The live communicators.
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
  nccl.wrong = nccl.failure->wrong;
  const double late_s = nccl.failure->late_s;
  nccl.failure.reset();
  nccl.late_s = late_s;
  if (nccl.wrong || late_s > 0) return Outcome::kGoOn;
  return later ? Outcome::kLater : Outcome::kFailed;
}

// always: body runs although the call fails.
template <class Body>
ncclResult_t NcclCall(const char* name, int rank, Body&& body, bool always = false) {
  DeviceState& state = DeviceState::Get();
  const std::lock_guard<std::mutex> lock(state.mutex);
  ncclResult_t result = ncclSuccess;
  if (Count(name, rank, &result) == Outcome::kGoOn) return body(state);
  if (always) body(state);
  return result;
}

ncclResult_t Refuse(DeviceState& state, const char* rule) {
  state.Violate(rule);
  return ncclInvalidUsage;
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

// The lock of the state is held, but for while it waits.
void BeLate(DeviceState& state) {
  NcclState& nccl = NcclState::Get();
  const int64_t recoveries = nccl.recoveries;
  for (double late_s = std::exchange(nccl.late_s, 0); late_s > 0 && nccl.recoveries == recoveries;
       late_s -= 0.001) {
    state.mutex.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    state.mutex.lock();
  }
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
      "ncclCommDestroy", handle,
      [&](DeviceState& state, NcclRank& comm) {
        if (comm.has_windows()) state.Violate("a communicator ends before its windows");
        BeLate(state);
        return End(state, handle);
      },
      true);
}

ncclResult_t ncclCommAbort(ncclComm_t handle) {
  return CommCall(
      "ncclCommAbort", handle,
      [&](DeviceState& state, NcclRank& comm) {
        comm.Abort();
        while (comm.held_by_graph()) {
          state.mutex.unlock();
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
          state.mutex.lock();
        }
        BeLate(state);
        return End(state, handle);
      },
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
    AllReduceCall call = {static_cast<const float*>(from), static_cast<float*>(to), count};
    call.place = comm.PlaceOf(to, bytes);
    call.wrong = std::exchange(NcclState::Get().wrong, false);
    comm.LaunchLater([=, &state, of = handle->comm]() mutable {
      call.captured = stream->capture != nullptr;
      const auto held = call.captured ? of->captured() : nullptr;
      state.Queue(stream, [=, of = of, held = held] { return of->Run(call); });
    });
    return ncclInProgress;
  });
}

// At least as large as a page, as in NCCL.
ncclResult_t ncclMemAlloc(void** out, size_t bytes) {
  return NcclCall("ncclMemAlloc", DeviceState::CurrentDevice(), [&](DeviceState& state) {
    const size_t whole = (bytes + kWindowAlignment - 1) / kWindowAlignment * kWindowAlignment;
    if (state.Capturing()) return Refuse(state, "ncclMemAlloc while a stream is captured");
    if (state.Allocate(Place::kDevice, whole, out) != cudaSuccess) return ncclUnhandledCudaError;
    state.nccl_memory.insert(*out);
    return ncclSuccess;
  });
}

ncclResult_t ncclMemFree(void* data) {
  const auto free = [&](DeviceState& state) {
    if (state.nccl_memory.erase(data) == 0) return Refuse(state, "NCCL frees what it has not made");
    for (const ncclComm_t handle : Handles()) {
      if (handle->comm->HasWindowOf(data)) state.Violate("memory is freed before its window");
    }
    if (state.DeviceBusy()) state.Violate("memory of NCCL is freed while work is queued");
    return state.Free(Place::kDevice, data) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
  };
  return NcclCall("ncclMemFree", DeviceState::CurrentDevice(), free, /*always=*/true);
}

ncclResult_t ncclCommWindowRegister(ncclComm_t handle, void* data, size_t bytes, ncclWindow_t* out,
                                    int flags) {
  return CommCall("ncclCommWindowRegister", handle, [&](DeviceState& state, NcclRank& comm) {
    if (!NcclState::Get().abilities.symmetric) return ncclSuccess;
    const auto address = reinterpret_cast<uintptr_t>(data);
    if (!comm.joined() || !comm.idle() || state.Capturing() || flags != NCCL_WIN_COLL_SYMMETRIC ||
        bytes == 0 || address % kWindowAlignment != 0 || !state.nccl_memory.count(data) ||
        !state.Holds(Place::kDevice, data, bytes))
      return Refuse(state, "a window before the call before it was done, or not of NCCL's memory");
    comm.Register({static_cast<const uint8_t*>(data), bytes}, out);
    return ncclInProgress;
  });
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t handle, ncclWindow_t window) {
  return CommCall("ncclCommWindowDeregister", handle, [&](DeviceState& state, NcclRank& comm) {
    if (state.DeviceBusy() || state.Capturing() || !comm.idle())
      return Refuse(state, "a window is deregistered while work is queued");
    if (!comm.Deregister(window)) return Refuse(state, "a window that does not live");
    return ncclSuccess;
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
  ++nccl.recoveries;
  nccl.calls.clear();
  nccl.abilities = {};
  for (const auto& [name, listener] : nccl.listeners) close(listener);
  nccl.listeners.clear();
}

void SetNcclAbilities(const NcclAbilities& abilities) {
  const std::lock_guard<std::mutex> lock(DeviceState::Get().mutex);
  NcclState::Get().abilities = abilities;
}

NcclAbilities GetNcclAbilities() {
  const std::lock_guard<std::mutex> lock(DeviceState::Get().mutex);
  return NcclState::Get().abilities;
}

std::map<std::string, int64_t> NcclCalls(int rank) {
  const std::lock_guard<std::mutex> lock(DeviceState::Get().mutex);
  return NcclState::Get().calls[rank];
}

}  // namespace coppice::kernels::cuda::fake
