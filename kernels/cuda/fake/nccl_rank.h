// One rank of the fake NCCL. Rank 0 is the middle of a star: it collects, adds and sends. Used under
// the lock of the device state.
#pragma once

#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/fake/device_state.h"
#include "kernels/cuda/fake/rank_link.h"

namespace coppice::kernels::cuda::fake {

inline constexpr char kHello = 'h', kGo = 'g', kData = 'd', kSum = 's', kError = 'e', kBye = 'b';
inline constexpr int kPollsBeforeEnqueue = 2;

struct RankHello {
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
  void Join(const std::string& name) {
    if (rank_ == 0) {
      links_.resize(ranks_);
      devices_.resize(ranks_, -1);
      devices_[0] = DeviceState::CurrentDevice();
      return;
    }
    links_.push_back(RankLink::Connect(name));
    if (links_[0] == nullptr) return Fail(ncclSystemError);
    links_[0]->Send(Message(kHello, RankHello{rank_, ranks_, DeviceState::CurrentDevice()}));
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
      const auto hello = HeadOf<RankHello>(message);
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

}  // namespace coppice::kernels::cuda::fake
