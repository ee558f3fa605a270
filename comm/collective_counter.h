// A communicator that counts the bytes of its collectives, for the metrics. Wraps the communicator
// of a replica.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "comm/communicator.h"

namespace coppice::comm {

class CollectiveCounter final : public Communicator {
 public:
  explicit CollectiveCounter(std::unique_ptr<Communicator> wrapped)
      : wrapped_(std::move(wrapped)) {}

  // Payload of the calls of all ranks. A sum counts its data once for each rank, a gather each
  // rank's piece, a broadcast the data that each rank then has. All ranks call with equal sizes, so
  // this rank knows the total. 0 with one rank. Any thread.
  uint64_t bytes() const { return size() == 1 ? 0 : mine_.load() * size(); }

  int rank() const override { return wrapped_->rank(); }
  int size() const override { return wrapped_->size(); }
  absl::Status AllReduceSum(absl::Span<float> data) override {
    mine_ += data.size() * sizeof(float);
    return wrapped_->AllReduceSum(data);
  }
  absl::Status Gather(absl::Span<const float> mine, absl::Span<float> all) override {
    mine_ += mine.size() * sizeof(float);
    return wrapped_->Gather(mine, all);
  }
  absl::Status Broadcast(std::string* data) override {
    const absl::Status status = wrapped_->Broadcast(data);
    mine_ += data->size();
    return status;
  }
  absl::Status Barrier() override { return wrapped_->Barrier(); }
  void Progress() override { wrapped_->Progress(); }

 private:
  const std::unique_ptr<Communicator> wrapped_;
  std::atomic<uint64_t> mine_ = 0;
};

}  // namespace coppice::comm
