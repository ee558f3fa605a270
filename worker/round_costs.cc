#include "worker/round_costs.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>

namespace coppice::worker {
namespace {

constexpr double kLevelGain = 0.3, kTypicalGain = 0.04, kDraftGain = 0.1;
constexpr double kMostSurprise = 0.693147181;  // one measurement counts as at most twice or half
constexpr double kUnknown = 2;  // so many times the largest measured rows may take as long
constexpr double kRightOfRidge = 0.5;
constexpr double kMessageDrift = 1.02;  // the least time of messages is forgotten so slowly

// 1, 2, 3, ... 8 rows, then steps of a quarter.
int Size(int rows) {
  const int step = 1 << std::max(0, static_cast<int>(std::bit_width(unsigned(rows))) - 3);
  return std::max(1, rows / step * step);
}

double Surprise(double measured, double expected) {
  return std::clamp(std::log(measured / expected), -kMostSurprise, kMostSurprise);
}

}  // namespace

void RoundCosts::Expect(absl::Span<const kernels::RowCost> products) {
  for (const kernels::RowCost& cost : products)
    products_[static_cast<int>(cost.rows)] = cost.seconds;
  for (auto ridge = products_.begin(); ridge != products_.end(); ++ridge) {
    const auto [rows, seconds] = *ridge;
    const bool left = std::any_of(std::next(ridge), products_.end(), [&](const auto& more) {
      return more.second < seconds * (1 + kRightOfRidge * (more.first - rows) / rows);
    });
    if (left) continue;
    ridge_ = rows;
    break;
  }
}

int RoundCosts::SizeOf(int rows) const {
  const auto known = products_.lower_bound(rows);
  return known != products_.end() ? known->first : Size(rows);
}

double RoundCosts::Growth(int from, int to) const {
  return std::max(0.0, products_.lower_bound(to)->second - products_.lower_bound(from)->second);
}

void RoundCosts::RecordStep(int rows, double seconds, bool alone) {
  if (!(seconds > 0)) return;
  Measured& measured = steps_[SizeOf(rows)];
  Typical& typical = alone ? measured.alone : measured.beside;
  if (++typical.count == 1) {
    typical.seconds = seconds / level_;
    return;
  }
  // The first measurements of a size say more about it than about the machine.
  const double surprise = Surprise(seconds, typical.seconds * level_);
  if (alone) level_ *= std::exp(kLevelGain * std::min(1.0, typical.count / 8.0) * surprise);
  typical.seconds *= std::exp(std::max(kTypicalGain, 1.0 / typical.count) * surprise);
}

double RoundCosts::Step(int rows, bool alone) const {
  if (steps_.empty()) return 0;
  const int size = SizeOf(rows);
  const auto above = steps_.lower_bound(size);
  if (above != steps_.end() && above->first == size) return level_ * above->second.Seconds(alone);
  if (above == steps_.begin()) {
    const double growth_s = ProductsKnown(above->first) ? Growth(size, above->first) : 0;
    return level_ * std::max(0.0, above->second.Seconds(alone) - growth_s);
  }
  const auto below = std::prev(above);
  const double least_s = below->second.Seconds(alone);
  if (ProductsKnown(size)) return level_ * (least_s + Growth(below->first, size));
  const double share_s = above == steps_.end() ? least_s * size / (kUnknown * below->first)
                                               : above->second.Seconds(alone) * size / above->first;
  return level_ * std::max(least_s, share_s);
}

int RoundCosts::RowsWithin(double seconds, int most) const {
  if (Step(most, false) <= seconds) return most;
  const int least = steps_.begin()->first;
  if (least > 1 && least <= most && Step(least, false) > seconds) return least / 2;
  if (least == 1) seconds = std::max(seconds, 2 * Step(1, false));
  int within = 1, beyond = most + 1;
  while (beyond - within > 1) {
    const int middle = (within + beyond) / 2;
    (Step(middle, false) <= seconds ? within : beyond) = middle;
  }
  return within;
}

void RoundCosts::RecordDraft(DraftShape shape, double seconds, double node_s, int drafting) {
  if (shape.depth <= 0 || !(node_s > 0)) return;
  const double messages_s = std::max(0.0, seconds - node_s);
  const int nodes = shape.width * drafting;
  if (level_s_ == 0) {
    message_s_ = messages_s;
    level_s_ = 0.8 * node_s / shape.depth;
    node_s_ = 0.2 * node_s / (shape.depth * nodes);
    return;
  }
  message_s_ = std::min(message_s_ * kMessageDrift, messages_s);
  // Each part answers for its share of the surprise.
  const double level_s = level_s_ + node_s_ * nodes;
  const double gain = kDraftGain * Surprise(node_s, shape.depth * level_s);
  level_s_ *= std::exp(gain * level_s_ / level_s);
  node_s_ *= std::exp(gain * node_s_ * nodes / level_s);
}

double RoundCosts::Draft(DraftShape shape, int drafting) const {
  if (shape.depth == 0) return 0;
  // Nothing is known: a level takes a tenth of a step.
  if (level_s_ == 0) return 0.1 * Step(1, true) * (1 + shape.depth);
  return message_s_ + shape.depth * (level_s_ + node_s_ * shape.width * drafting);
}

}  // namespace coppice::worker
