// The data plane of one replica: collectives over its ranks, on host f32 buffers. Implementations:
// Single (one rank) and Mpi (communicator_mpi.cc). Every rank calls the same collectives in the
// same order from one thread. Sums are formed in rank order, so a result does not depend on message
// sizes or on the order of arrival.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace coppice::comm {

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // data[i] = sum over ranks, in rank order, on every rank.
  virtual absl::Status AllReduceSum(absl::Span<float> data) = 0;
  // Concatenates equal-sized pieces in rank order on rank 0; `all` is [size * mine.size()] there,
  // empty elsewhere.
  virtual absl::Status Gather(absl::Span<const float> mine, absl::Span<float> all) = 0;
  // Copies rank 0's bytes to every rank; `data` is resized on the others. For start-up only.
  virtual absl::Status Broadcast(std::string* data) = 0;
  virtual absl::Status Barrier() = 0;
  // A collective may return before this rank's data has left the process, and another rank may then
  // wait for it. Call this again and again while waiting for something else, so that it leaves.
  virtual void Progress() {}
};

std::unique_ptr<Communicator> MakeSingleCommunicator();

}  // namespace coppice::comm
