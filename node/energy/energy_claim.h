// A claim to count what a meter measures. A meter measures a whole processor package or GPU, so if
// several processes of a host compute on it, only one of them may count it. A claim is the name of
// a local socket, which the system frees when the process ends. Thread-compatible.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace coppice::node {

// A number for the measured device, equal for all processes that compute on it. `place` names the
// device within its host: a GPU's address on the PCI bus, or the path of the processors' meters.
// Never 0.
uint64_t EnergyDomain(absl::string_view kind, absl::string_view place);

class EnergyClaim {
 public:
  // Leaders of replicas have priority over draft nodes, whichever starts first. A leader also
  // counts the drafts that are made on the same device.
  enum class Claimant { kLeader, kDraftNode };
  EnergyClaim(uint64_t domain, Claimant claimant);
  ~EnergyClaim();
  EnergyClaim(const EnergyClaim&) = delete;
  EnergyClaim& operator=(const EnergyClaim&) = delete;

  // Tries again if another process had the claim. Costs a few system calls; call it about once a
  // second.
  bool Holds();

 private:
  const std::string leaders_, own_;  // names of sockets
  int socket_ = -1;
};

}  // namespace coppice::node
