// The functions of NCCL that the backend calls. What they do and return is said in the library's
// header; what is stricter here in fake_nccl.h. Rank 0 is the middle of a star: it collects, adds and
// sends. All of it under the lock of the device state.
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "kernels/cuda/fake/device_state.h"
#include "kernels/cuda/fake/fake_nccl.h"
#include "kernels/cuda/fake/rank_link.h"

namespace coppice::kernels::cuda::fake {
namespace {

constexpr char kHello = 'h', kGo = 'g', kData = 'd', kSum = 's', kError = 'e', kBye = 'b';
constexpr int kPollsBeforeEnqueue = 2;

struct Hello {
  int32_t rank, ranks, device;
};
struct AllReduceCall {
  const float* from = nullptr;
  float* to = nullptr;
  uint64_t count = 0;
};

template <class T>
std::string Message(char kind, const T& head, const std::string& rest = "") {
  return std::string(1, kind) + std::string(reinterpret_cast<const char*>(&head), sizeof head) +
         rest;
}
template <class T>
T HeadOf(const std::string& message) {
  T head;
  std::memcpy(&head, message.data() + 1, sizeof head);
  return head;
}

// values[r][i], added from a rank on that depends on i.
std::vector<float> Sum(const std::vector<std::vector<float>>& values) {
  const size_t ranks = values.size(), count = values[0].size();
  std::vector<float> sum(count);
  for (size_t i = 0; i < count; ++i) {
    const size_t first = i * ranks / count;
    sum[i] = values[first][i];
    for (size_t r = 1; r < ranks; ++r) sum[i] += values[(first + r) % ranks][i];
  }
  return sum;
}

class Comm {
 public:
  Comm(int rank, int ranks, int listener) : rank_(rank), ranks_(ranks), listener_(listener) {}
  ~Comm() {
    if (listener_ >= 0) close(listener_);
  }

  int rank() const { return rank_; }
  void Join(const std::string& name) {
    if (rank_ == 0) {
      links_.resize(ranks_);
      devices_.resize(ranks_, -1);
      devices_[0] = DeviceState::CurrentDevice();
      return;
    }
    links_.push_back(RankLink::Connect(name));
    if (links_[0] == nullptr) return Fail(ncclSystemError);
    links_[0]->Send(Message(kHello, Hello{rank_, ranks_, DeviceState::CurrentDevice()}));
  }

  // What ncclCommGetAsyncError says.
  ncclResult_t Poll() {
    Progress();
    if (error_ != ncclSuccess) return error_;
    if (launch_ && ++polls_ == kPollsBeforeEnqueue) std::exchange(launch_, nullptr)();
    const bool ended = !finalizing_ || (!running_ && AllSent());
    return joined_ && launch_ == nullptr && ended ? ncclSuccess : ncclInProgress;
  }
  void Fail(ncclResult_t error) {
    if (error_ == ncclSuccess) error_ = error;
  }
  void LaunchLater(std::function<void()> launch) {
    launch_ = std::move(launch);
    polls_ = 0;
  }
  bool idle() const { return launch_ == nullptr; }
  bool joined() const { return joined_; }

  void Finalize() {
    finalizing_ = true;
    for (const auto& link : links_) {
      if (link != nullptr) link->Send(std::string(1, kBye));
    }
  }
  // Collectives that wait end without a result, and the other ranks learn that this one is gone.
  void Abort() {
    aborted_ = true;
    launch_ = nullptr;
    links_.clear();
  }

  // A piece of work: not ready until every rank has come.
  cudaError_t Run(const AllReduceCall& call) {
    if (aborted_) return cudaSuccess;
    Progress();
    if (error_ != ncclSuccess) return cudaErrorNotReady;
    if (!running_) Begin(call);
    const bool done = rank_ == 0 ? Collect(call) : TakeSum(call);
    if (done) running_ = false;
    return done ? cudaSuccess : cudaErrorNotReady;
  }

 private:
  void Progress() {
    if (aborted_) return;
    if (rank_ == 0 && !joined_ && error_ == ncclSuccess) AcceptRanks();
    for (size_t i = 0; i < links_.size(); ++i) {
      if (links_[i] != nullptr) Read(static_cast<int>(i), links_[i].get());
    }
    // A rank that is not asked for anything may be the last to hear of an error.
    if (rank_ != 0 || error_ == ncclSuccess || told_) return;
    told_ = true;
    for (const auto& link : links_) {
      if (link != nullptr) link->Send(Message(kError, static_cast<int32_t>(error_)));
    }
  }

  void AcceptRanks() {
    while (auto link = RankLink::Accept(listener_)) guests_.push_back(std::move(link));
    for (auto& guest : guests_) {
      std::string message;
      guest->Pump();
      if (!guest->Take(&message)) continue;
      const auto hello = HeadOf<Hello>(message);
      if (hello.ranks != ranks_ || hello.rank <= 0 || hello.rank >= ranks_ ||
          devices_[hello.rank] >= 0)
        return Fail(ncclInvalidArgument);
      devices_[hello.rank] = hello.device;
      links_[hello.rank] = std::move(guest);
    }
    std::erase(guests_, nullptr);
    if (std::count(devices_.begin(), devices_.end(), -1) > 0) return;
    if (std::set<int>(devices_.begin(), devices_.end()).size() < devices_.size()) {
      return Fail(ncclInvalidUsage);
    }
    joined_ = true;
    for (int r = 1; r < ranks_; ++r) links_[r]->Send(std::string(1, kGo));
  }

  void Read(int peer, RankLink* link) {
    link->Pump();
    for (std::string message; link->Take(&message);) {
      if (message[0] == kGo) joined_ = true;
      if (message[0] == kError) Fail(static_cast<ncclResult_t>(HeadOf<int32_t>(message)));
      if (message[0] == kBye) left_.insert(peer);
      if (message[0] == kData) data_[peer].push_back(message);
      if (message[0] == kSum) sums_.push_back(message.substr(1));
    }
    const bool needed = running_ || !left_.count(peer);
    if (link->closed() && needed && data_[peer].empty() && sums_.empty()) Fail(ncclRemoteError);
  }

  void Begin(const AllReduceCall& call) {
    running_ = true;
    answered_ = false;
    const std::string bytes(reinterpret_cast<const char*>(call.from), call.count * sizeof(float));
    if (rank_ > 0) links_[0]->Send(Message(kData, call.count, bytes));
  }

  bool Collect(const AllReduceCall& call) {
    if (answered_) return AllSent();
    for (int r = 1; r < ranks_; ++r) {
      if (data_[r].empty()) return false;
    }
    std::vector<std::vector<float>> values(ranks_, std::vector<float>(call.count));
    std::memcpy(values[0].data(), call.from, call.count * sizeof(float));
    for (int r = 1; r < ranks_; ++r) {
      const std::string message = std::move(data_[r].front());
      data_[r].pop_front();
      if (HeadOf<uint64_t>(message) != call.count) {
        Fail(ncclInvalidArgument);
        return false;
      }
      std::memcpy(values[r].data(), message.data() + 1 + sizeof call.count,
                  call.count * sizeof(float));
    }
    const std::vector<float> sum = Sum(values);
    std::memcpy(call.to, sum.data(), call.count * sizeof(float));
    const std::string bytes(reinterpret_cast<const char*>(sum.data()), call.count * sizeof(float));
    for (int r = 1; r < ranks_; ++r) links_[r]->Send(kSum + bytes);
    answered_ = true;
    return AllSent();
  }

  bool TakeSum(const AllReduceCall& call) {
    if (sums_.empty()) return false;
    std::memcpy(call.to, sums_.front().data(), call.count * sizeof(float));
    sums_.pop_front();
    return true;
  }

  bool AllSent() const {
    return std::all_of(links_.begin(), links_.end(),
                       [](const auto& link) { return link == nullptr || link->sent(); });
  }

  const int rank_, ranks_, listener_;              // listener: rank 0's, else -1
  std::vector<std::unique_ptr<RankLink>> links_;   // rank 0: by rank; others: to rank 0
  std::vector<std::unique_ptr<RankLink>> guests_;  // have not said who they are
  std::vector<int> devices_;                       // by rank; -1 = has not come
  bool joined_ = false, finalizing_ = false, aborted_ = false, told_ = false;
  ncclResult_t error_ = ncclSuccess;
  std::function<void()> launch_;  // puts a collective on its stream
  int polls_ = 0;
  std::map<int, std::deque<std::string>> data_;  // of ranks, for collectives to come
  std::deque<std::string> sums_;
  std::set<int> left_;  // have finalized
  bool running_ = false, answered_ = false;
};

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
  std::shared_ptr<Comm> comm;
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
  *out = new ncclComm{std::make_shared<Comm>(rank, ranks, listener)};
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
  return CommCall("ncclCommGetAsyncError", handle, [&](DeviceState&, Comm& comm) {
    *error = comm.Poll();
    return ncclSuccess;
  });
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  return CommCall("ncclCommFinalize", handle, [&](DeviceState&, Comm& comm) {
    comm.Finalize();
    return ncclInProgress;
  });
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  return CommCall(
      "ncclCommDestroy", handle, [&](DeviceState& state, Comm&) { return End(state, handle); },
      true);
}

ncclResult_t ncclCommAbort(ncclComm_t handle) {
  return CommCall(
      "ncclCommAbort", handle, [&](DeviceState& state, Comm&) { return End(state, handle); }, true);
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t handle, cudaStream_t stream) {
  return CommCall("ncclAllReduce", handle, [&](DeviceState& state, Comm& comm) {
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
