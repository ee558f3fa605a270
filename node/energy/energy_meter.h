// The energy meter of a node. The engine of a worker and the draft service ask it once a step,
// which costs a lock. Its own thread reads the counter, so that a slow or hanging driver never
// delays a step.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "node/energy/energy_claim.h"
#include "node/energy/energy_source.h"

namespace coppice::node {

class EnergyMeter {
 public:
  virtual ~EnergyMeter() = default;
  // Joules that this node has counted until now_s (base/clock.h), idle or not; an estimate for the
  // time since the last reading. nullopt: nothing is measured, or another process counts it. Any
  // thread.
  virtual std::optional<double> Estimate(double now_s) const = 0;
  // The same at the last reading; never falls.
  virtual std::optional<double> Counted(double now_s) const = 0;
  virtual std::string kind() const = 0;  // "rapl", "nvml"
};

struct MeterOptions {
  // The least seconds between two readings while estimates are asked for, and the least time
  // between them as a multiple of the time that a reading takes.
  double period_s = 0.01;
  double period_readings = 50;
  // If there was no call for idle_after_s (Start counts as one), readings become rarer. Each wait
  // is twice as long as the one before. The power measured in one wait is assumed for the next, so
  // longer waits would charge idle energy to the request that ends the idle time.
  double idle_after_s = 1;
  // The longest of these waits. A call ends it.
  double idle_period_s = 0.25;
  // Seconds between two looks at the claim.
  double claim_period_s = 1;
};

// Reads `source` until it fails. The failure is logged, and nothing is measured afterwards. Start
// makes the first reading and returns its error. claim null: this process counts. *clock must
// outlive the process, because a source that hangs is left to its thread.
class SampledMeter final : public EnergyMeter {
 public:
  static absl::StatusOr<std::unique_ptr<SampledMeter>> Start(const MeterOptions& options,
                                                             std::unique_ptr<EnergySource> source,
                                                             std::unique_ptr<EnergyClaim> claim,
                                                             const Clock* clock);
  ~SampledMeter() override;

  std::optional<double> Estimate(double now_s) const override;
  std::optional<double> Counted(double now_s) const override;
  std::string kind() const override;
  double reading_s() const;  // duration of a reading

 private:
  struct Shared;  // state shared with the thread
  explicit SampledMeter(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}
  const std::shared_ptr<Shared> shared_;
};

}  // namespace coppice::node
