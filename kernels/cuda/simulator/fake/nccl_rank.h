// One rank of the fake NCCL. Rank 0 is the centre of a star: it collects, adds and sends. Used
// under the lock of the device state.
#pragma once

#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/simulator/fake/device_state.h"
#include "kernels/cuda/simulator/fake/rank_link.h"

namespace coppice::kernels::cuda::fake {

inline constexpr char kHello = 'h', kGo = 'g', kData = 'd', kSum = 's', kError = 'e', kBye = 'b',
                      kWindow = 'w';
inline constexpr size_t kWindowAlignment = 4096;
inline constexpr int kPollsBeforeEnqueue = 2;

struct RankHello {
  int32_t rank, ranks, device;
  uint64_t host;  // of NCCL_HOSTID
};
inline uint64_t ThisHost() {
  const char* const id = std::getenv("NCCL_HOSTID");
  return id == nullptr ? 0 : std::hash<std::string>()(id);
}
// A place in the windows, which the ranks have registered in the same order.
struct WindowPlace {
  int64_t window = -1;  // -1 = in no window
  uint64_t offset = 0;
  bool operator==(const WindowPlace&) const = default;
};
struct AllReduceCall {
  const float* from = nullptr;
  float* to = nullptr;
  uint64_t count = 0;
  WindowPlace place;
  bool wrong = false;  // the sum must come out wrong
  bool captured = false;
};
// What ranks send to rank 0 about their sum.
struct SumHead {
  uint64_t count;
  WindowPlace place;
  uint64_t captured;
  bool operator==(const SumHead&) const = default;
};
struct RankWindow {
  const uint8_t* data = nullptr;
  uint64_t bytes = 0;
};

template <class T>
std::string Message(char kind, const T& head, const std::string& rest = "") {
  std::string message(1, kind);
  message.append(reinterpret_cast<const char*>(&head), sizeof head);
  return message.append(rest);
}
template <class T>
T HeadOf(const std::string& message) {
  T head;
  std::memcpy(&head, message.data() + 1, sizeof head);
  return head;
}

// Sums values[r][i] over r, starting at a rank that depends on i.
inline std::vector<float> SumAsInARing(const std::vector<std::vector<float>>& values) {
  const size_t ranks = values.size(), count = values[0].size();
  std::vector<float> sum(count);
  for (size_t i = 0; i < count; ++i) {
    const size_t first = i * ranks / count;
    sum[i] = values[first][i];
    for (size_t r = 1; r < ranks; ++r) sum[i] += values[(first + r) % ranks][i];
  }
  return sum;
}

class NcclRank {
 public:
  NcclRank(int rank, int ranks, int listener) : rank_(rank), ranks_(ranks), listener_(listener) {}
  ~NcclRank() {
    if (listener_ >= 0) close(listener_);
  }

  int rank() const { return rank_; }
  // Part of each captured sum.
  std::shared_ptr<const bool> captured() const { return captured_; }
  bool held_by_graph() const { return captured_.use_count() > 1; }
  void Join(const std::string& name) {
    if (rank_ == 0) {
      links_.resize(ranks_);
      devices_.resize(ranks_, -1);
      devices_[0] = DeviceState::CurrentDevice();
      places_.insert({ThisHost(), devices_[0]});
      return;
    }
    links_.push_back(RankLink::Connect(name));
    if (links_[0] == nullptr) return Fail(ncclSystemError);
    links_[0]->Send(
        Message(kHello, RankHello{rank_, ranks_, DeviceState::CurrentDevice(), ThisHost()}));
  }

  // The result of ncclCommGetAsyncError.
  ncclResult_t Poll() {
    Progress();
    if (error_ != ncclSuccess) return error_;
    if (launch_ && ++polls_ == kPollsBeforeEnqueue) std::exchange(launch_, nullptr)();
    const bool ended = !finalizing_ || (!running_ && AllSent() && !held_by_graph());
    const bool idle_now = idle();
    return joined_ && idle_now && ended ? ncclSuccess : ncclInProgress;
  }
  void Fail(ncclResult_t error) {
    if (error_ == ncclSuccess) error_ = error;
  }
  void LaunchLater(std::function<void()> launch) {
    launch_ = std::move(launch);
    polls_ = 0;
  }
  bool idle() const { return launch_ == nullptr && registering_ == nullptr; }
  bool joined() const { return joined_; }

  // *out is written once every rank has come with a window of the same size.
  void Register(const RankWindow& window, ncclWindow_t* out) {
    registering_ = out;
    windows_[next_window_] = window;
    if (rank_ > 0) links_[0]->Send(Message(kWindow, window.bytes));
  }
  // Returns whether the window was registered.
  bool Deregister(ncclWindow_t window) {
    return windows_.erase(reinterpret_cast<intptr_t>(window) - 1) == 1;
  }
  bool has_windows() const { return !windows_.empty(); }
  bool HasWindowOf(const void* data) const {
    return std::any_of(windows_.begin(), windows_.end(),
                       [&](const auto& window) { return window.second.data == data; });
  }
  WindowPlace PlaceOf(const void* data, uint64_t bytes) const {
    const auto* const begin = static_cast<const uint8_t*>(data);
    for (const auto& [number, window] : windows_) {
      if (begin >= window.data && begin + bytes <= window.data + window.bytes)
        return {number, static_cast<uint64_t>(begin - window.data)};
    }
    return {};
  }

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
    registering_ = nullptr;
    windows_.clear();
    links_.clear();
  }

  // A piece of work: not ready until every rank has come.
  cudaError_t Run(const AllReduceCall& call) {
    if (aborted_) return cudaSuccess;
    Progress();
    if (error_ != ncclSuccess) return cudaErrorNotReady;
    if (call.place != PlaceOf(call.to, call.count * sizeof(float))) {
      DeviceState::Get().Violate("a sum in a window that is gone");
    }
    if (!running_) Begin(call);
    const bool done = rank_ == 0 ? Collect(call) : TakeSum(call);
    if (done) running_ = false;
    if (done && call.wrong) *call.to += 1;
    return done ? cudaSuccess : cudaErrorNotReady;
  }

 private:
  void Progress() {
    if (aborted_) return;
    if (rank_ == 0 && !joined_ && error_ == ncclSuccess) AcceptRanks();
    for (size_t i = 0; i < links_.size(); ++i) {
      if (links_[i] != nullptr) Read(static_cast<int>(i), links_[i].get());
    }
    if (rank_ == 0 && registering_ != nullptr && error_ == ncclSuccess) CollectWindows();
    // A rank that is never asked may be the last to learn of an error.
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
      const auto hello = HeadOf<RankHello>(message);
      if (hello.ranks != ranks_ || hello.rank <= 0 || hello.rank >= ranks_ ||
          devices_[hello.rank] >= 0)
        return Fail(ncclInvalidArgument);
      devices_[hello.rank] = hello.device;
      places_.insert({hello.host, hello.device});
      links_[hello.rank] = std::move(guest);
    }
    std::erase(guests_, nullptr);
    if (std::count(devices_.begin(), devices_.end(), -1) > 0) return;
    if (places_.size() < devices_.size()) return Fail(ncclInvalidUsage);
    joined_ = true;
    for (int r = 1; r < ranks_; ++r) links_[r]->Send(std::string(1, kGo));
  }

  void CollectWindows() {
    for (int r = 1; r < ranks_; ++r) {
      if (window_bytes_[r].empty()) return;
    }
    for (int r = 1; r < ranks_; ++r) {
      const uint64_t bytes = window_bytes_[r].front();
      window_bytes_[r].pop_front();
      if (bytes == windows_[next_window_].bytes) continue;
      DeviceState::Get().Violate("windows of different sizes");
      return Fail(ncclInvalidArgument);
    }
    for (int r = 1; r < ranks_; ++r) links_[r]->Send(std::string(1, kWindow));
    Registered();
  }
  void Registered() {
    *std::exchange(registering_, nullptr) = reinterpret_cast<ncclWindow_t>(++next_window_);
  }

  void Read(int peer, RankLink* link) {
    link->Pump();
    for (std::string message; link->Take(&message);) {
      if (message[0] == kGo) joined_ = true;
      if (message[0] == kError) Fail(static_cast<ncclResult_t>(HeadOf<int32_t>(message)));
      if (message[0] == kBye) left_.insert(peer);
      if (message[0] == kData) data_[peer].push_back(message);
      if (message[0] == kWindow && rank_ == 0)
        window_bytes_[peer].push_back(HeadOf<uint64_t>(message));
      if (message[0] == kWindow && rank_ > 0) Registered();
      if (message[0] == kSum) sums_.push_back(message.substr(1));
    }
    const bool needed = running_ || !left_.count(peer);
    if (link->closed() && needed && data_[peer].empty() && sums_.empty()) Fail(ncclRemoteError);
  }

  static SumHead SumOf(const AllReduceCall& call) {
    return {call.count, call.place, call.captured};
  }
  void Begin(const AllReduceCall& call) {
    running_ = true;
    answered_ = false;
    const std::string bytes(reinterpret_cast<const char*>(call.from), call.count * sizeof(float));
    if (rank_ > 0) links_[0]->Send(Message(kData, SumOf(call), bytes));
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
      const auto head = HeadOf<SumHead>(message);
      if (head.captured != uint64_t{call.captured}) {
        DeviceState::Get().Violate("a sum that is captured on some of the ranks");
      }
      if (head != SumOf(call)) {
        Fail(ncclInvalidArgument);
        return false;
      }
      std::memcpy(values[r].data(), message.data() + 1 + sizeof head, call.count * sizeof(float));
    }
    const std::vector<float> sum = SumAsInARing(values);
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

  const std::shared_ptr<const bool> captured_ = std::make_shared<const bool>(true);
  const int rank_, ranks_, listener_;              // listener: rank 0's, else -1
  std::vector<std::unique_ptr<RankLink>> links_;   // rank 0: by rank; others: to rank 0
  std::vector<std::unique_ptr<RankLink>> guests_;  // links whose ranks are not known yet
  std::vector<int> devices_;                       // [ranks]; -1 = has not connected
  std::set<std::pair<uint64_t, int>> places_;      // pairs of host and device
  bool joined_ = false, finalizing_ = false, aborted_ = false, told_ = false;
  ncclResult_t error_ = ncclSuccess;
  std::function<void()> launch_;  // puts a collective on its stream
  int polls_ = 0;
  std::map<int64_t, RankWindow> windows_;  // by number; includes the one that is being registered
  int64_t next_window_ = 0;
  ncclWindow_t* registering_ = nullptr;
  std::map<int, std::deque<uint64_t>> window_bytes_;  // by rank, for future registrations
  std::map<int, std::deque<std::string>> data_;       // by rank, for future collectives
  std::deque<std::string> sums_;
  std::set<int> left_;  // ranks that have finalized
  bool running_ = false, answered_ = false;
};

}  // namespace coppice::kernels::cuda::fake
