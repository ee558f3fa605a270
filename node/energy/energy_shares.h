// Divides the energy of a node among the requests that it works on: each joule goes to the rows of
// the step that it was used for. Owned by the engine of a worker or by the draft service.
// Thread-compatible.
#pragma once

#include <optional>

#include "node/energy/energy_meter.h"

namespace coppice::node {

// The known energy of one request.
class EnergyTally {
 public:
  void Add(std::optional<double> joules) {  // nullopt: a part that was not measured
    joules_ += joules.value_or(0);
    whole_ = whole_ && joules.has_value();
  }
  // nullopt when a part is missing.
  std::optional<double> total() const { return whole_ ? std::optional(joules_) : std::nullopt; }
  // The total since the last Take. A missing part stays missing.
  std::optional<double> Take() {
    const std::optional<double> taken = total();
    joules_ = 0;
    return taken;
  }

 private:
  double joules_ = 0;
  bool whole_ = true;
};

class EnergyShares {
 public:
  // meter: nullptr = nothing is measured; else it must outlive this.
  explicit EnergyShares(const EnergyMeter* meter) : meter_(meter) {}

  // The node was idle until now. The energy that it used belongs to no request.
  void Idle(double now_s) { idle_ += Since(now_s).value_or(0); }
  // A step with `rows` rows ends now. Returns the joules per row: the energy since the last call,
  // divided by the rows. nullopt: not measured, or not from the beginning.
  std::optional<double> StepEnds(double now_s, int rows);

  // Sums over all calls: together the energy that the meter has counted.
  double idle_joules() const { return idle_; }
  double step_joules() const { return in_steps_; }

 private:
  std::optional<double> Since(double now_s);

  const EnergyMeter* const meter_;
  bool begun_ = false;  // `divided_` is known
  double divided_ = 0;  // joules of the meter that were given to steps or to idling
  double idle_ = 0, in_steps_ = 0;
};

}  // namespace coppice::node
