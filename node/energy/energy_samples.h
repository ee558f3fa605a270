// The readings of a counter of energy, and how much a node has used at a time after the last of
// them. Owned by SampledMeter. Thread-compatible, no clock of its own.
#pragma once

#include <optional>

namespace coppice::node {

class EnergySamples {
 public:
  // A counter that stands still is taken for a coarse one, not for no power, for so long.
  static constexpr double kHold_s = 0.25;
  // Without a reading for so long nothing is measured: the source hangs.
  static constexpr double kStale_s = 5;

  // joules: of the source, never less than before. counts: this node is the one that counts what
  // the source measures from now on (energy_claim.h).
  void Add(double time_s, double joules, bool counts);
  // What this node has counted until the last reading; never falls.
  double counted() const { return counted_; }
  // Until now_s. For the time since the counter last moved the power before that is carried on: the
  // lower one of the last two moves, for no longer than the last one took, or than wait_s, which is
  // between two readings at present. Rather too low, which the next reading makes good, than too
  // high; yet it may fall again. nullopt: nothing is measured at this time.
  std::optional<double> Estimate(double now_s, double wait_s) const;

 private:
  bool any_ = false, counts_ = false;
  double counted_ = 0;              // J
  double joules_ = 0, time_s_ = 0;  // of the source, when it last moved
  double read_s_ = 0;               // last reading
  double took_s_ = 0;               // the last move
  double watts_ = 0, watts_before_ = 0;
};

}  // namespace coppice::node
