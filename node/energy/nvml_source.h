// NVML: the energy of one NVIDIA GPU. The library is part of the driver, not of the toolkit: it is
// loaded at run time, and nothing of it is needed to build. Counts the whole device, whoever uses
// it: with MIG, all of its instances.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "node/energy/energy_source.h"

namespace coppice::node {

inline constexpr char kNvmlLibrary[] = "libnvidia-ml.so.1";

// The device is named by its PCI bus id, as CUDA reports it ("0000:3b:00.0"): NVML numbers devices
// in another order than CUDA, and ignores CUDA_VISIBLE_DEVICES. If the device has no energy counter
// (before Volta), its power is integrated over the readings. Errors name the call. *clock must
// outlive the source.
absl::StatusOr<std::unique_ptr<EnergySource>> OpenNvml(const std::string& library,
                                                       const std::string& pci_bus_id,
                                                       const Clock* clock);

}  // namespace coppice::node
