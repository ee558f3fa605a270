// The energy of a node process: its settings, and the meter of the device that it computes on.
// Called by worker_main and draft_main when the model is loaded.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "node/energy/energy_meter.h"
#include "node/energy/nvml_source.h"
#include "node/energy/rapl_source.h"

namespace coppice::node {

// Each is a flag of both kinds of node (node/node_flags).
struct EnergyFlags {
  std::string source = "auto";  // or rapl, nvml, off
  std::string powercap = kPowercap;
  std::string nvml_library = kNvmlLibrary;
};

// Why the source does not fit --backend=`backend`. "": it does.
std::string EnergyFault(const EnergyFlags& flags, const std::string& backend);

struct NodeEnergy {
  uint64_t domain = 0;                 // EnergyDomain of the device it computes on
  std::unique_ptr<EnergyMeter> meter;  // nullptr: nothing is measured
};
// pci_bus_id: of the GPU, "" = the host's processors. unmeasured: why the meter of this process
// would not count everything that the node computes on, "" if it would. Without a meter, one log
// line gives the reason.
NodeEnergy StartEnergy(const EnergyFlags& flags, EnergyClaim::Claimant claimant,
                       const std::string& pci_bus_id, const std::string& unmeasured);

}  // namespace coppice::node
