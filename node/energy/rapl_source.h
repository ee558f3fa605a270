// RAPL: the energy counters of Intel and AMD processors, as the kernel's powercap tree shows them.
// Counts whole packages, whoever uses them.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "node/energy/energy_source.h"

namespace coppice::node {

inline constexpr char kPowercap[] = "/sys/class/powercap";

// Opens the package zones below `root`: intel-rapl:N with a name that begins with "package". Their
// parts (intel-rapl:N:M: cores, memory), the whole board (psys) and the second view of the same
// counters (intel-rapl-mmio) are left out, since they would count twice. An error says what is
// missing and how to allow it. *clock must outlive the source.
absl::StatusOr<std::unique_ptr<EnergySource>> OpenRapl(const std::string& root, const Clock* clock);

}  // namespace coppice::node
