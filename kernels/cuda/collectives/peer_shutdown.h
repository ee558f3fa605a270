// Lets the ranks of one host, each in its own process, tell each other at their end that they no
// longer use each other's memory. It works without the device and without the other ranks' help: in
// an anonymous page of shared memory. Thread-compatible.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "comm/communicator.h"

namespace coppice::kernels::cuda {

class PeerShutdown {
 public:
  // Collective; when one rank fails, all return an error. *communicator is not used later.
  static absl::StatusOr<std::unique_ptr<PeerShutdown>> Join(comm::Communicator* communicator);
  PeerShutdown(const PeerShutdown&) = delete;
  PeerShutdown& operator=(const PeerShutdown&) = delete;
  ~PeerShutdown();

  // This rank has closed what it had opened of the others.
  void Leave();
  // Waits, at most this long, until each of the others has left or its process has ended. False:
  // one of them has not.
  bool AllLeft(double within_s) const;

 private:
  struct Page;
  PeerShutdown(Page* page, int rank, int ranks) : page_(page), rank_(rank), ranks_(ranks) {}

  Page* const page_;
  const int rank_, ranks_;
};

}  // namespace coppice::kernels::cuda
