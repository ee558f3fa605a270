#include "node/energy/node_energy.h"

#include <spdlog/spdlog.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace coppice::node {
namespace {

const Clock* MeterClock() {  // lives as long as a thread that hangs in a driver
  static const SteadyClock* const clock = new SteadyClock;
  return clock;
}

absl::StatusOr<std::unique_ptr<EnergySource>> OpenSource(const EnergyFlags& flags,
                                                         const std::string& pci_bus_id) {
  if (!pci_bus_id.empty()) return OpenNvml(flags.nvml_library, pci_bus_id, MeterClock());
  return OpenRapl(flags.powercap, MeterClock());
}

absl::StatusOr<std::unique_ptr<SampledMeter>> StartMeter(const EnergyFlags& flags,
                                                         EnergyClaim::Claimant claimant,
                                                         uint64_t domain,
                                                         const std::string& pci_bus_id) {
  COPPICE_ASSIGN_OR_RETURN(auto source, OpenSource(flags, pci_bus_id));
  const std::string what = absl::StrCat(source->kind(), ", ", source->description());
  COPPICE_ASSIGN_OR_RETURN(
      auto meter,
      SampledMeter::Start({}, std::move(source), std::make_unique<EnergyClaim>(domain, claimant),
                          MeterClock()));
  spdlog::info("energy: {}; a reading takes {:.0f} us{}", what, meter->reading_s() * 1e6,
               meter->Counted(MeterClock()->NowSeconds())
                   ? ""
                   : "; another process of this host counts it as long as it runs");
  return meter;
}

}  // namespace

std::string EnergyFault(const EnergyFlags& flags, const std::string& backend) {
  if (flags.source != (backend == "cpu" ? "nvml" : "rapl")) return "";
  return absl::StrCat(flags.source, " does not count what --backend=", backend, " computes on");
}

NodeEnergy StartEnergy(const EnergyFlags& flags, EnergyClaim::Claimant claimant,
                       const std::string& pci_bus_id, const std::string& unmeasured) {
  std::error_code ignored;
  const std::string root = std::filesystem::weakly_canonical(flags.powercap, ignored).string();
  NodeEnergy energy;
  energy.domain = pci_bus_id.empty() ? EnergyDomain("rapl", root.empty() ? flags.powercap : root)
                                     : EnergyDomain("nvml", pci_bus_id);
  if (flags.source == "off") return energy;
  absl::Status status = absl::FailedPreconditionError(unmeasured);
  if (unmeasured.empty()) {
    auto meter = StartMeter(flags, claimant, energy.domain, pci_bus_id);
    status = meter.status();
    if (meter.ok()) energy.meter = *std::move(meter);
  }
  if (status.ok()) return energy;
  spdlog::log(flags.source == "auto" ? spdlog::level::info : spdlog::level::warn,
              "energy is not measured: {}", std::string(status.message()));
  return energy;
}

}  // namespace coppice::node
