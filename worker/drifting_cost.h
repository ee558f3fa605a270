// What steps of several sizes cost on a machine whose speed drifts: other tenants, clocks and heat
// slow all sizes alike, and sizes are measured at different times. A measurement is level x typical
// cost of its size; the level follows every measurement quickly, the typical costs slowly. So a
// size that was last measured in a bad minute is not held for dear, and one from a good minute not
// for cheap. Thread-compatible.
#pragma once

#include <map>

namespace coppice::worker {

class DriftingCost {
 public:
  void Record(int size, double seconds);  // seconds > 0
  // Sizes that were measured, and what each would take now, seconds.
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
