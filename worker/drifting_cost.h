// The cost of steps of several sizes on a machine whose speed drifts. Other tenants, clocks and
// heat slow all sizes alike, and sizes are measured at different times. So a measurement is
// modelled as level x typical cost of its size. Every measurement moves the level quickly and the
// typical cost slowly. A size that was last measured while the machine was slow is not mistaken for
// an expensive one, nor one measured while it was fast for a cheap one. Thread-compatible.
#pragma once

#include <map>

namespace coppice::worker {

class DriftingCost {
 public:
  void Record(int size, double seconds);  // seconds > 0
  // The sizes that were measured, each with the seconds that it would take now.
  std::map<int, double> Now() const;
  bool empty() const { return typical_.empty(); }

 private:
  struct Typical {
    double seconds = 0;
    int count = 0;
  };
  std::map<int, Typical> typical_;
  double level_ = 1;
};

}  // namespace coppice::worker
