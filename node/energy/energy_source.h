// A counter of energy: of the host's processor packages (rapl_source.h) or of one GPU
// (nvml_source.h). Opened by node_energy, read by the thread of a SampledMeter.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace coppice::node {

class EnergySource {
 public:
  virtual ~EnergySource() = default;
  // Joules since the source was opened; never falls. An error: it can no longer measure.
  virtual absl::StatusOr<double> Joules() = 0;
  virtual const char* kind() const = 0;         // "rapl", "nvml": label of the metrics
  virtual std::string description() const = 0;  // what is counted, for the log
};

}  // namespace coppice::node
