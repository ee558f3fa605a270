// A meter that has used so much more each time that it is asked for an estimate: at the end of every
// step, and while the node is idle.
#pragma once

#include <optional>
#include <string>

#include "node/energy/energy_meter.h"

namespace coppice::test {

class CountingMeter : public node::EnergyMeter {
 public:
  explicit CountingMeter(double joules_each) : each_(joules_each) {}
  std::optional<double> Estimate(double) const override {
    if (asked_++ >= lost_after) return std::nullopt;
    return joules_ += each_;
  }
  std::optional<double> Counted(double) const override {
    return asked_ > lost_after ? std::nullopt : std::optional(joules_);
  }
  std::string kind() const override { return "count"; }

  int lost_after = 1 << 30;  // questions

 private:
  const double each_;
  mutable double joules_ = 0;
  mutable int asked_ = 0;
};

}  // namespace coppice::test
