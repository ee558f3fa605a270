#include "node/energy/energy_samples.h"

#include <algorithm>

namespace coppice::node {

void EnergySamples::Add(double time_s, double joules, bool counts) {
  read_s_ = time_s;
  const double used = any_ ? joules - joules_ : 0;
  const double since_s = time_s - time_s_;
  if (any_ && counts == counts_ && used == 0 && since_s < kHold_s) return;
  if (counts_) counted_ += used;
  took_s_ = any_ ? since_s : 0;
  watts_before_ = watts_;
  watts_ = took_s_ > 0 ? used / took_s_ : 0;
  joules_ = joules;
  time_s_ = time_s;
  counts_ = counts;
  any_ = true;
}

std::optional<double> EnergySamples::Estimate(double now_s, double wait_s) const {
  if (!any_ || !counts_ || now_s - read_s_ > kStale_s) return std::nullopt;
  const double carried_s = std::clamp(now_s - time_s_, 0.0, std::max(took_s_, wait_s));
  return counted_ + std::min(watts_, watts_before_) * carried_s;
}

}  // namespace coppice::node
