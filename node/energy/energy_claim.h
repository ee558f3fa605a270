// Who counts what a meter measures. A processor package or a GPU is measured whole, so when several
// processes of a host compute on it, only one of them may count it. A claim is the name of a local
// socket: it is gone when its process is, however that ends. Thread-compatible.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace coppice::node {

// What is measured, as a number: equal for all processes that compute on the same thing. `place`
// names it within its host: a GPU's place on the bus, or where its processors are told. Never 0.
uint64_t EnergyDomain(absl::string_view kind, absl::string_view place);

class EnergyClaim {
 public:
  // Leaders of replicas go before draft nodes, whichever comes first: a leader counts its drafts
  // when they are made on the same thing.
  enum class Claimant { kLeader, kDraftNode };
  EnergyClaim(uint64_t domain, Claimant claimant);
  ~EnergyClaim();
  EnergyClaim(const EnergyClaim&) = delete;
  EnergyClaim& operator=(const EnergyClaim&) = delete;

  // Tries again when another process had it. To be called about once a second: a few system calls.
  bool Holds();

 private:
  const std::string leaders_, own_;  // names of sockets
  int socket_ = -1;
};

}  // namespace coppice::node
