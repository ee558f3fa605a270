#include "worker/drifting_cost.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace coppice::worker {
namespace {

constexpr double kLevelGain = 0.15;
constexpr double kTypicalGain = 0.04;
constexpr double kTrustedAfter = 4;            // measurements of a size, or under a load
constexpr double kMostSurprise = 0.693147181;  // one measurement counts as at most twice or half

}  // namespace

void DriftingCost::Record(int size, double seconds, int load) {
  if (!(seconds > 0)) return;
  Typical& typical = typical_[size];
  ++typical.count;
  if (typical.count == 1) {
    typical.seconds = seconds / LevelOf(load);
    return;
  }
  Level& level = levels_.try_emplace(load, Level{LevelOf(load), 0}).first->second;
  ++level.count;
  const double change = std::log(seconds / (typical.seconds * level.value));
  const double surprise = std::clamp(change, -kMostSurprise, kMostSurprise);
  if (levels_.size() > 1 && level.count <= kTrustedAfter) {
    level.value *= std::exp(surprise / level.count);
    return;
  }
  // The first measurements of a size say more about it than about the machine.
  const double trust = (typical.count - 1) / (typical.count - 1 + kTrustedAfter);
  level.value *= std::exp(kLevelGain * trust * surprise);
  typical.seconds *= std::exp(std::max(kTypicalGain, 1.0 / typical.count) * surprise);
}

std::map<int, double> DriftingCost::Now() const {
  std::map<int, double> now;
  for (const auto& [size, typical] : typical_)
    now.emplace_hint(now.end(), size, typical.seconds * LevelOf(0));
  return now;
}

double DriftingCost::LevelOf(int load) const {
  if (levels_.empty()) return 1;
  const auto above = levels_.lower_bound(load);
  if (above == levels_.begin() || (above != levels_.end() && above->first == load))
    return above->second.value;
  const auto below = std::prev(above);
  return above == levels_.end() || load - below->first <= above->first - load ? below->second.value
                                                                              : above->second.value;
}

double DriftingCost::Slowdown(int load) const { return LevelOf(load) / LevelOf(0); }

}  // namespace coppice::worker
