#include "coordinator/cluster/service_rate.h"

#include <cmath>

namespace coppice::coordinator {
namespace {

constexpr double kMemory_s = 30;    // time constant: after it an observation counts 1/e
constexpr double kFewestTimes = 4;  // services; one long answer alone tells nothing
constexpr double kLeast_s = 1;

}  // namespace

void ServiceRate::Advance(double now_s, bool waiting) {
  if (at_s_ >= 0 && waiting) {
    const double passed = now_s - at_s_, kept = std::exp(-passed / kMemory_s);
    seconds_ = seconds_ * kept + passed;
    cost_ *= kept;
    times_ *= kept;
  }
  at_s_ = now_s;
}

void ServiceRate::Served(double cost, bool waiting) {
  if (!waiting) return;
  cost_ += cost;
  times_ += 1;
}

std::optional<double> ServiceRate::PerSecond() const {
  if (times_ < kFewestTimes || seconds_ < kLeast_s || cost_ <= 0) return std::nullopt;
  return cost_ / seconds_;
}

}  // namespace coppice::coordinator
