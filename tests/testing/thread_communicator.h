// The ranks of a replica as threads of one process. Each thread has a communicator, which keeps the
// contract of comm/communicator.h (sums are in rank order). RunRanks starts and joins the threads.
#pragma once

#include <barrier>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/types/span.h"
#include "comm/communicator.h"

namespace coppice::test {

class ThreadCommunicator : public comm::Communicator {
 public:
  struct Shared {
    explicit Shared(int ranks) : barrier(ranks), floats(ranks), bytes(ranks) {}
    std::barrier<> barrier;
    std::vector<absl::Span<const float>> floats;
    std::vector<const std::string*> bytes;
  };

  ThreadCommunicator(int rank, int ranks, std::shared_ptr<Shared> shared)
      : rank_(rank), ranks_(ranks), shared_(std::move(shared)) {}

  int rank() const override { return rank_; }
  int size() const override { return ranks_; }

  absl::Status AllReduceSum(absl::Span<float> data) override {
    shared_->floats[rank_] = data;
    shared_->barrier.arrive_and_wait();
    std::vector<float> sum(shared_->floats[0].begin(), shared_->floats[0].end());
    for (int rank = 1; rank < ranks_; ++rank) {
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += shared_->floats[rank][i];
    }
    shared_->barrier.arrive_and_wait();
    std::copy(sum.begin(), sum.end(), data.begin());
    return absl::OkStatus();
  }

  absl::Status Gather(absl::Span<const float> mine, absl::Span<float> all) override {
    if (all.size() != (rank_ == 0 ? mine.size() * ranks_ : 0))
      return absl::InternalError("Gather: size of all");
    shared_->floats[rank_] = mine;
    shared_->barrier.arrive_and_wait();
    if (rank_ == 0) {
      auto out = all.begin();
      for (const auto& piece : shared_->floats) out = std::copy(piece.begin(), piece.end(), out);
    }
    shared_->barrier.arrive_and_wait();
    return absl::OkStatus();
  }

  absl::Status Broadcast(std::string* data) override {
    shared_->bytes[rank_] = data;
    shared_->barrier.arrive_and_wait();
    const std::string first = *shared_->bytes[0];
    shared_->barrier.arrive_and_wait();
    *data = first;
    return absl::OkStatus();
  }

  absl::Status Barrier() override {
    shared_->barrier.arrive_and_wait();
    return absl::OkStatus();
  }

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
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace coppice::test
