// Keeps a strict order of priorities from starving anybody: of what goes to those of a better
// priority while others that came before them wait, these get an eighth. So one that needs `cost`
// waits for at most eight times as much service of a better priority. Used by the coordinator's
// queue and by the worker's admission. A value.
#pragma once

namespace coppice {

class OutrankedShare {
 public:
  static constexpr double kShare = 1.0 / 8;

  // One was served for `cost`, and another that came before it waits only for its priority.
  void Passed(double cost) { owed_ += kShare * cost; }
  // Whether one that waits for its priority, and needs `cost`, is next.
  bool Due(double cost) const { return owed_ > 0 && owed_ >= cost; }
  // It was served, or nobody waits for its priority.
  void Reset() { owed_ = 0; }

 private:
  double owed_ = 0;
};

}  // namespace coppice
