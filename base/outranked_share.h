// Keeps a strict order of priorities from starving anybody: of what goes to those of a better
// priority while others that came before them wait, these get an eighth. So one waits for its
// priority for at most eight times what the last service of each kind cost. Used by the
// coordinator's queue and by the worker's admission. A value.
#pragma once

namespace coppice {

class OutrankedShare {
 public:
  static constexpr double kShare = 1.0 / 8;

  // One was served for `cost`, and another that came before it waits only for its priority.
  void Passed(double cost) {
    owed_ += kShare * cost;
    usual_ = cost;
  }
  // Whether one that waits for its priority is next: as much as a usual service is owed.
  bool Due() const { return owed_ > 0 && owed_ >= usual_; }
  // It was served for `cost`, which may be more than was owed.
  void Paid(double cost) { owed_ -= cost; }
  // Nobody waits for its priority.
  void Reset() { owed_ = 0; }

 private:
  double owed_ = 0, usual_ = 0;
};

}  // namespace coppice
