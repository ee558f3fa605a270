// The ranks of a replica as threads of one process. Each thread has a communicator, which keeps the
// contract of comm/communicator.h (sums are in rank order). RunRanks starts and joins the threads. When
// one of them has returned, collectives of the others fail instead of waiting for it.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/types/span.h"
#include "base/status.h"
#include "comm/communicator.h"

namespace coppice::test {

// Of threads that may leave: then nobody passes any more.
class LeavingBarrier {
 public:
  explicit LeavingBarrier(int count) : count_(count) {}

  absl::Status Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    const int round = round_;
    if (++arrived_ == count_) {
      arrived_ = 0;
      ++round_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return round_ != round || left_; });
    return round_ != round ? absl::OkStatus() : absl::UnavailableError("another rank has left");
  }
  void Leave() {
    const std::lock_guard<std::mutex> lock(mutex_);
    left_ = true;
    changed_.notify_all();
  }

 private:
  const int count_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int arrived_ = 0, round_ = 0;
  bool left_ = false;
};

class ThreadCommunicator : public comm::Communicator {
 public:
  struct Shared {
    explicit Shared(int ranks) : barrier(ranks), floats(ranks), bytes(ranks) {}
    LeavingBarrier barrier;
    std::vector<absl::Span<const float>> floats;
    std::vector<const std::string*> bytes;
  };

  ThreadCommunicator(int rank, int ranks, std::shared_ptr<Shared> shared)
      : rank_(rank), ranks_(ranks), shared_(std::move(shared)) {}

  int rank() const override { return rank_; }
  int size() const override { return ranks_; }

  absl::Status AllReduceSum(absl::Span<float> data) override {
    shared_->floats[rank_] = data;
    COPPICE_RETURN_IF_ERROR(shared_->barrier.Wait());
    std::vector<float> sum(shared_->floats[0].begin(), shared_->floats[0].end());
    for (int rank = 1; rank < ranks_; ++rank) {
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += shared_->floats[rank][i];
    }
    COPPICE_RETURN_IF_ERROR(shared_->barrier.Wait());
    std::copy(sum.begin(), sum.end(), data.begin());
    return absl::OkStatus();
  }

  absl::Status Gather(absl::Span<const float> mine, absl::Span<float> all) override {
    if (all.size() != (rank_ == 0 ? mine.size() * ranks_ : 0))
      return absl::InternalError("Gather: size of all");
    shared_->floats[rank_] = mine;
    COPPICE_RETURN_IF_ERROR(shared_->barrier.Wait());
    if (rank_ == 0) {
      auto out = all.begin();
      for (const auto& piece : shared_->floats) out = std::copy(piece.begin(), piece.end(), out);
    }
    return shared_->barrier.Wait();
  }

  absl::Status Broadcast(std::string* data) override {
    shared_->bytes[rank_] = data;
    COPPICE_RETURN_IF_ERROR(shared_->barrier.Wait());
    const std::string first = *shared_->bytes[0];
    COPPICE_RETURN_IF_ERROR(shared_->barrier.Wait());
    *data = first;
    return absl::OkStatus();
  }

  absl::Status Barrier() override { return shared_->barrier.Wait(); }

 private:
  int rank_;
  int ranks_;
  std::shared_ptr<Shared> shared_;
};

// Calls body(communicator) on one thread for each rank and waits for all.
inline void RunRanks(int ranks, const std::function<void(comm::Communicator*)>& body) {
  const auto shared = std::make_shared<ThreadCommunicator::Shared>(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadCommunicator communicator(rank, ranks, shared);
      body(&communicator);
      shared->barrier.Leave();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace coppice::test
