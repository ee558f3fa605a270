// The energy of a node process: its flags, and the meter of the device that it computes on. Called
// by worker_main and draft_main when the model is loaded.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "node/energy/energy_meter.h"

namespace coppice::node {

// InvalidArgument names a flag that does not fit: --energy_source for --backend=`backend`.
absl::Status CheckEnergyFlags(const std::string& backend);

struct NodeEnergy {
  uint64_t domain = 0;                 // EnergyDomain of the device it computes on
  std::unique_ptr<EnergyMeter> meter;  // nullptr: nothing is measured
};
// pci_bus_id: of the GPU, "" = the host's processors. unmeasured: why the meter of this process
// would not count all that the node computes on, "" when it would. Without a meter one line of the
// log says why.
NodeEnergy StartEnergy(EnergyClaim::Claimant claimant, const std::string& pci_bus_id,
                       const std::string& unmeasured);

}  // namespace coppice::node
