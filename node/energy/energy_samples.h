// Readings of an energy counter, and an estimate of what a node has used since the last one. Owned
// by SampledMeter. Thread-compatible, no clock of its own.
#pragma once

#include <optional>

namespace coppice::node {

class EnergySamples {
 public:
  // For this long, a counter that does not change is assumed to be coarse, not to measure zero
  // power.
  static constexpr double kHold_s = 0.25;
  // After this long without a reading the source hangs, and nothing is measured.
  static constexpr double kStale_s = 5;

  // joules: of the source, never less than before. counts: this node counts what the source
  // measures from now on (energy_claim.h).
  void Add(double time_s, double joules, bool counts);
  // The energy that this node has counted until the last reading; never falls.
  double counted() const { return counted_; }
  // The energy that this node has counted until now_s. For the time since the counter last changed,
  // the lower power of its last two changes is assumed, for at most the time of the last change or
  // wait_s, the present time between two readings. So the estimate tends to be too low, which the
  // next reading corrects, rather than too high. It may fall. nullopt: nothing is measured at this
  // time.
  std::optional<double> Estimate(double now_s, double wait_s) const;

 private:
  bool any_ = false, counts_ = false;
  double counted_ = 0;              // J
  double joules_ = 0, time_s_ = 0;  // of the source, at its last change
  double read_s_ = 0;               // time of the last reading
  double took_s_ = 0;               // duration of the last change
  double watts_ = 0, watts_before_ = 0;
};

}  // namespace coppice::node
