#include "worker/forest_sizer.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <vector>

#include "decoding/params.h"

namespace coppice {
namespace {

constexpr double kMoving = 0.15;  // weight of a new measurement in a moving mean
constexpr double kForget = 0.98;  // of coverage counts, per round: about 50 rounds of memory
constexpr double kPriorTrials = 3;

// Rows of a pass are told apart finely where it matters: 1, 2, 3, ... 8, then in steps of a
// quarter.
int Bucket(int rows) {
  if (rows <= 8) return std::max(1, rows);
  const int step = 1 << std::max(0, static_cast<int>(std::log2(rows)) - 2);
  return rows / step * step;
}

double Update(double mean, double value) {
  return mean == 0 ? value : (1 - kMoving) * mean + kMoving * value;
}

// What is assumed of a width before it was tried: half of the layers at 1 node, 0.7 at 2 W
// (ALGORITHMS.md 10.1).
double PriorCoverage(int width, int beam_width) {
  return 1 - 0.5 / std::pow(1 + 2.0 * (width - 1) / std::max(2, beam_width), 0.37);
}

std::vector<DraftShape> Ladder(const SizerLimits& limits) {
  const int widest = AutoDraftWidth(limits.beam_width);
  std::vector<int> widths;
  if (limits.fixed_width > 0) {
    widths = {limits.fixed_width};
  } else {
    for (int width = widest; width >= 1; width = width * 2 / 3) widths.push_back(width);
  }
  std::vector<int> depths = {kAutoDraftDepth, 3, 2, 1, kMaxAutoDraftDepth};
  if (limits.fixed_depth > 0) depths = {limits.fixed_depth};
  std::vector<DraftShape> shapes;
  for (int depth : depths) {
    const int useful = std::min(depth, limits.max_depth);
    for (int width : widths) {
      const DraftShape shape{width, std::min(useful, std::max(0, limits.max_nodes / width))};
      if (shape.depth > 0) shapes.push_back(shape);
    }
  }
  // No draft is a shape too, unless the request asks for one.
  if (limits.fixed_width == 0 && limits.fixed_depth == 0) shapes.push_back({});
  return shapes;
}

}  // namespace

double ForestSizer::PassSeconds(int rows) const {
  const int bucket = Bucket(rows);
  const auto above = pass_s_.lower_bound(bucket);
  if (above == pass_s_.end()) {
    // Beyond what was seen: in proportion to the rows, at worst.
    return pass_s_.empty() ? 0 : pass_s_.rbegin()->second * rows / pass_s_.rbegin()->first;
  }
  if (above->first == bucket || above == pass_s_.begin()) return above->second;
  const auto below = std::prev(above);
  const double share = static_cast<double>(bucket - below->first) / (above->first - below->first);
  return below->second + share * (above->second - below->second);
}

double ForestSizer::Coverage(const std::string& method, int beam_width, int width) const {
  const double prior = PriorCoverage(width, beam_width);
  const auto found = learned_.find({method, beam_width});
  if (found == learned_.end()) return prior;
  const auto cover = found->second.by_width.find(width);
  if (cover == found->second.by_width.end()) return prior;
  return (kPriorTrials * prior + cover->second.covered) / (kPriorTrials + cover->second.trials);
}

DraftShape ForestSizer::Choose(const std::string& method, const SizerLimits& limits) {
  if (limits.max_depth <= 0) return {};
  const std::vector<DraftShape> ladder = Ladder(limits);
  if (ladder.empty()) return {};
  if (limits.fixed_width > 0 && limits.fixed_depth > 0) return ladder.front();
  Learned& learned = learned_[{method, limits.beam_width}];
  const uint64_t round = learned.rounds++;
  if (round < ladder.size()) return ladder[round];
  if (round % kExploreEvery == 0) return ladder[round / kExploreEvery % ladder.size()];
  const auto layers_per_second = [&](DraftShape shape) {
    const double coverage = Coverage(method, limits.beam_width, shape.width);
    double layers = 1, reached = 1;
    for (int l = 0; l < shape.depth; ++l) layers += reached *= coverage;
    const int rows = limits.running * (limits.roots + shape.width * shape.depth);
    const double seconds = PassSeconds(rows) + level_s_ * shape.depth / limits.running;
    return seconds <= 0 ? layers : layers / seconds;
  };
  return *std::max_element(ladder.begin(), ladder.end(), [&](DraftShape a, DraftShape b) {
    return layers_per_second(a) < layers_per_second(b);
  });
}

void ForestSizer::RecordPass(int rows, double seconds) {
  double& mean = pass_s_[Bucket(rows)];
  mean = Update(mean, seconds);
}

void ForestSizer::RecordRound(const std::string& method, int beam_width, DraftShape shape,
                              int layers) {
  if (shape.depth <= 0 || shape.width <= 0) return;
  Cover& cover = learned_[{method, beam_width}].by_width[shape.width];
  const int covered = std::clamp(layers - 1, 0, shape.depth);
  cover.trials = kForget * cover.trials + std::min(covered + 1, shape.depth);
  cover.covered = kForget * cover.covered + covered;
}

void ForestSizer::RecordDraft(int depth, double seconds) {
  if (depth > 0) level_s_ = Update(level_s_, seconds / depth);
}

}  // namespace coppice
