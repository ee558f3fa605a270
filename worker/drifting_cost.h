// The cost of steps of several sizes on a machine whose speed drifts. Other tenants, clocks and
// heat slow all sizes alike, and sizes are measured at different times. So a measurement is
// modelled as level x typical cost of its size. Every measurement moves the level quickly and the
// typical cost slowly. A size that was last measured while the machine was slow is not mistaken for
// an expensive one, nor one measured while it was fast for a cheap one. Under another load the
// machine has another level; the first measurements under a load move its level alone.
// Thread-compatible.
#pragma once

#include <map>

namespace coppice::worker {

class DriftingCost {
 public:
  // seconds > 0. `load`: other work of the machine at the time; each load has its own speed.
  void Record(int size, double seconds, int load = 0);
  // The sizes that were measured, each with the seconds that it would take now.
  std::map<int, double> Now() const;
  // The factor on these seconds under another load. If that load was not measured, the factor of
  // the nearest measured one.
  double Slowdown(int load) const;
  bool empty() const { return typical_.empty(); }

 private:
  struct Typical {
    double seconds = 0;
    int count = 0;
  };
  struct Level {
    double value = 1;
    int count = 0;
  };
  double LevelOf(int load) const;

  std::map<int, Typical> typical_;
  std::map<int, Level> levels_;  // by load
};

}  // namespace coppice::worker
