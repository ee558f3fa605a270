#include "node/energy/energy_shares.h"

#include <algorithm>

namespace coppice::node {

// If an estimate was too high, the next differences are 0 until it is compensated, so nothing is
// given twice.
std::optional<double> EnergyShares::Since(double now_s) {
  const std::optional<double> now = meter_ == nullptr ? std::nullopt : meter_->Estimate(now_s);
  const bool from_the_begin = begun_;
  const double before = divided_;
  begun_ = now.has_value();
  if (!now) return std::nullopt;
  divided_ = from_the_begin ? std::max(before, *now) : *now;
  if (!from_the_begin) return std::nullopt;
  return divided_ - before;
}

std::optional<double> EnergyShares::StepEnds(double now_s, int rows) {
  if (rows <= 0) return 0;  // only copies: counted with the next step
  const std::optional<double> used = Since(now_s);
  if (!used) return std::nullopt;
  in_steps_ += *used;
  return *used / rows;
}

}  // namespace coppice::node
