#include "node/energy/node_energy.h"

#include <spdlog/spdlog.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "node/energy/nvml_source.h"
#include "node/energy/rapl_source.h"

ABSL_FLAG(std::string, energy_source, "auto",
          "what measures energy: auto (rapl with --backend=cpu, nvml with --backend=cuda), rapl, "
          "nvml or off");
ABSL_FLAG(std::string, powercap, coppice::node::kPowercap,
          "where RAPL is read: the powercap folder of sysfs, or where a container has it");
ABSL_FLAG(std::string, nvml_library, coppice::node::kNvmlLibrary,
          "library of the NVIDIA driver that is loaded to read a GPU's energy");

namespace coppice::node {
namespace {

const Clock* MeterClock() {  // lives as long as a thread that hangs in a driver
  static const SteadyClock* const clock = new SteadyClock;
  return clock;
}

absl::StatusOr<std::unique_ptr<EnergySource>> OpenSource(const std::string& pci_bus_id,
                                                         const std::string& powercap) {
  if (!pci_bus_id.empty())
    return OpenNvml(absl::GetFlag(FLAGS_nvml_library), pci_bus_id, MeterClock());
  return OpenRapl(powercap, MeterClock());
}

absl::StatusOr<std::unique_ptr<SampledMeter>> StartMeter(EnergyClaim::Claimant claimant,
                                                         uint64_t domain,
                                                         const std::string& pci_bus_id,
                                                         const std::string& powercap) {
  COPPICE_ASSIGN_OR_RETURN(auto source, OpenSource(pci_bus_id, powercap));
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

absl::Status CheckEnergyFlags(const std::string& backend) {
  const std::string source = absl::GetFlag(FLAGS_energy_source);
  const bool known = source == "auto" || source == "off" || source == "rapl" || source == "nvml";
  if (!known) {
    return absl::InvalidArgumentError(
        absl::StrCat("--energy_source: '", source, "', expected auto, rapl, nvml or off"));
  }
  if (source == (backend == "cpu" ? "nvml" : "rapl")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--energy_source: ", source, " does not count what --backend=", backend, " computes on"));
  }
  return absl::OkStatus();
}

NodeEnergy StartEnergy(EnergyClaim::Claimant claimant, const std::string& pci_bus_id,
                       const std::string& unmeasured) {
  const std::string wanted = absl::GetFlag(FLAGS_energy_source);
  const std::string powercap = absl::GetFlag(FLAGS_powercap);
  std::error_code ignored;
  const std::string root = std::filesystem::weakly_canonical(powercap, ignored).string();
  NodeEnergy energy;
  energy.domain = pci_bus_id.empty() ? EnergyDomain("rapl", root.empty() ? powercap : root)
                                     : EnergyDomain("nvml", pci_bus_id);
  if (wanted == "off") return energy;
  absl::Status status = absl::FailedPreconditionError(unmeasured);
  if (unmeasured.empty()) {
    auto meter = StartMeter(claimant, energy.domain, pci_bus_id, powercap);
    status = meter.status();
    if (meter.ok()) energy.meter = *std::move(meter);
  }
  if (status.ok()) return energy;
  spdlog::log(wanted == "auto" ? spdlog::level::info : spdlog::level::warn,
              "energy is not measured: {}", std::string(status.message()));
  return energy;
}

}  // namespace coppice::node
