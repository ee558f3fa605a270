#include "worker/drifting_cost.h"

#include <algorithm>
#include <cmath>

namespace coppice::worker {
namespace {

constexpr double kLevelGain = 0.15;
constexpr double kTypicalGain = 0.04;
constexpr double kTrustedAfter = 4;            // measurements of a size
constexpr double kMostSurprise = 0.693147181;  // one measurement counts as at most twice or half

}  // namespace

void DriftingCost::Record(int size, double seconds) {
  if (!(seconds > 0)) return;
  Typical& typical = typical_[size];
  ++typical.count;
  if (typical.count == 1) {
    typical.seconds = seconds / level_;
    return;
  }
  const double surprise =
      std::clamp(std::log(seconds / (typical.seconds * level_)), -kMostSurprise, kMostSurprise);
  // The first measurements of a size say more about it than about the machine.
  const double trust = (typical.count - 1) / (typical.count - 1 + kTrustedAfter);
  level_ *= std::exp(kLevelGain * trust * surprise);
  typical.seconds *= std::exp(std::max(kTypicalGain, 1.0 / typical.count) * surprise);
}

std::map<int, double> DriftingCost::Now() const {
  std::map<int, double> now;
  for (const auto& [size, typical] : typical_)
    now.emplace_hint(now.end(), size, typical.seconds * level_);
  return now;
}

}  // namespace coppice::worker
