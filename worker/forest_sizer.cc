#include "worker/forest_sizer.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

#include "decoding/params.h"

namespace coppice::worker {
namespace {

constexpr double kForget = 0.98;  // decay of coverage counts per round; memory of about 50 rounds
constexpr double kPriorTrials = 10;
constexpr double kWorthExploring = 0.75;
constexpr double kMessageShare = 0.3;  // share of messages in the wait for a draft of one level
constexpr double kHope = 0.4;          // of the misses that are expected

// The key of a shape among the measured drafts.
constexpr int kDepths = 32;  // more than any depth
int DraftKey(DraftShape shape) {
  return shape.width * kDepths + std::min(shape.depth, kDepths - 1);
}

// Buckets of rows of a pass: the sizes of `products`, those that passes are padded to. Without them
// fine where it matters: 1, 2, 3, ... 8, then steps of a quarter.
int Bucket(const std::vector<kernels::RowCost>& products, int rows) {
  if (!products.empty()) {
    const auto size = std::lower_bound(products.begin(), products.end(), rows,
                                       [](const kernels::RowCost& p, int r) { return p.rows < r; });
    return static_cast<int>(size == products.end() ? products.back().rows : size->rows);
  }
  if (rows <= 8) return std::max(1, rows);
  const int step = 1 << std::max(0, static_cast<int>(std::log2(rows)) - 2);
  return rows / step * step;
}

// Prior probability that a layer of this width is missed: 0.5 at one node, 0.3 at 2 W
// (docs/algorithms.md 10.1). Measurements scale the curve and correct single widths.
double PriorMiss(int width, int beam_width) {
  return 0.5 / std::pow(1 + 2.0 * (width - 1) / std::max(2, beam_width), 0.37);
}

int Widest(const SizerLimits& limits) {
  return limits.draft.width > 0 ? limits.draft.width : decoding::AutoDraftWidth(limits.beam_width);
}

std::vector<DraftShape> Candidates(const SizerLimits& limits) {
  const int widest = Widest(limits);
  std::vector<int> widths;
  if (limits.draft.width == 0) {
    for (int width = 1; width < widest; width += 1 + width / 4) widths.push_back(width);
  }
  widths.push_back(widest);
  std::vector<int> depths = {limits.draft.depth};
  if (limits.draft.depth == 0) {
    depths.clear();
    for (int depth = 1; depth <= decoding::kMaxAutoDraftDepth; ++depth) depths.push_back(depth);
  }
  std::vector<DraftShape> shapes;
  for (int width : widths) {
    for (int depth : depths) {
      const DraftShape shape = ForestSizer::Clip({width, depth}, limits);
      if (shape.depth > 0) shapes.push_back(shape);
    }
  }
  // No draft is also a choice, unless the request prescribes one.
  if (!limits.draft.chosen) shapes.push_back({});
  return shapes;
}

// Shapes that the first rounds of a method try, to learn what rows cost and how good drafts are.
std::vector<DraftShape> FirstShapes(const SizerLimits& limits) {
  const int widest = Widest(limits);
  const int half = (widest + 1) / 2;
  const int few = std::min(widest, 2);
  return {{widest, decoding::kAutoDraftDepth}, {half, 2}, {few, 2}, {}, {half, 1}, {few, 2}};
}

}  // namespace

DraftShape ForestSizer::Clip(DraftShape shape, const SizerLimits& limits) {
  shape.depth = std::min(
      {shape.depth, limits.max_depth, limits.draft.DeepestWithin(shape.width, limits.max_nodes)});
  return shape.depth > 0 ? shape : DraftShape{};
}

std::vector<ForestSizer::Measured> ForestSizer::List(const DriftingCost& cost) {
  std::vector<Measured> list;
  for (const auto& [size, seconds] : cost.Now()) list.push_back({size, seconds, seconds, size});
  for (size_t i = list.size(); i-- > 1;) {
    if (list[i].least >= list[i - 1].least) continue;
    list[i - 1].least = list[i].least;
    list[i - 1].least_size = list[i].least_size;
  }
  return list;
}

// The products of a pass. More rows than are known: in proportion to the rows.
double ForestSizer::Costs::Products(int rows) const {
  const int bucket = Bucket(products, rows);
  for (const kernels::RowCost& known : products) {
    if (known.rows == bucket) return known.seconds * std::max(1.0, double(rows) / bucket);
  }
  return 0;
}

// Products and the rest, which comes from the measured sizes: between two of them in proportion,
// above all of them that of the largest, below them what their trend promises. Where that is too
// good, the size is chosen, measured, and known.
double ForestSizer::Costs::KnownPass(int rows) const {
  const double expected = Products(rows);
  if (pass.empty()) return expected;
  const auto rest = [&](const Measured& m) { return m.least - Products(m.size); };
  if (pass.size() == 1) return expected + std::max(0.0, rest(pass[0]));
  const int bucket = Bucket(products, rows);
  auto above = std::lower_bound(pass.begin() + 1, pass.end() - 1, bucket,
                                [](const Measured& m, int size) { return m.size < size; });
  const double low = rest(*std::prev(above)), high = rest(*above);
  const double share =
      static_cast<double>(bucket - std::prev(above)->size) / (above->size - std::prev(above)->size);
  double between = low + std::min(share, 1.0) * (high - low);
  if (share < 0) between = std::min(between, low);
  return expected + std::max(0.0, between);
}

double ForestSizer::Costs::Pass(int rows) const {
  if (!products.empty()) return KnownPass(rows);
  if (pass.empty()) return 0;
  const int bucket = Bucket(products, rows);
  const auto from = std::lower_bound(pass.begin(), pass.end(), bucket,
                                     [](const Measured& m, int size) { return m.size < size; });
  if (from == pass.end()) {
    // There are more rows than were measured. Assume the worst: time proportional to the rows.
    return pass.back().seconds * rows / pass.back().size;
  }
  if (from->size == bucket || from == pass.begin()) return from->least;
  const Measured& below = *std::prev(from);
  if (below.seconds >= from->least) return from->least;
  const double share = static_cast<double>(bucket - below.size) / (from->least_size - below.size);
  return below.seconds + share * (from->least - below.seconds);
}

ForestSizer::Costs ForestSizer::CostsNow() const {
  Costs costs{List(pass_), {}, products_};
  for (const auto& [size, seconds] : draft_.Now()) {
    const int depth = size % kDepths;
    costs.drafts[size / kDepths].push_back({depth, seconds, seconds, depth});
  }
  return costs;
}

namespace {

// Scales from the nearest measured depth. A part of every wait is for messages. The rest is
// proportional to the levels.
template <class List>
double AtDepth(const List& measured, int depth) {
  auto nearest = std::lower_bound(measured.begin(), measured.end(), depth,
                                  [](const auto& m, int size) { return m.size < size; });
  if (nearest == measured.end()) nearest = std::prev(nearest);
  const double levels = static_cast<double>(depth) / nearest->size;
  return nearest->seconds * (kMessageShare + (1 - kMessageShare) * levels);
}

}  // namespace

// Widths that were not measured: on the line through two that were, the nearest on either side or
// beyond. A narrower draft takes no more, and at least half.
double ForestSizer::Costs::Draft(DraftShape shape) const {
  if (shape.depth == 0 || drafts.empty()) return 0;
  auto above = drafts.lower_bound(shape.width);
  if (above != drafts.end() && above->first == shape.width)
    return AtDepth(above->second, shape.depth);
  if (drafts.size() == 1) return AtDepth(drafts.begin()->second, shape.depth);
  if (above == drafts.begin()) ++above;
  if (above == drafts.end()) --above;
  const auto below = std::prev(above);
  const double narrow = AtDepth(below->second, shape.depth);
  const double wide = std::max(narrow, AtDepth(above->second, shape.depth));
  const double share =
      static_cast<double>(shape.width - below->first) / (above->first - below->first);
  return std::max(narrow / 2, narrow + share * (wide - narrow));
}

double ForestSizer::Coverage(const Learned& learned, int beam_width, int width, Mood mood) {
  double scale =
      (kPriorTrials * 0.4 + learned.missed) / (kPriorTrials * 0.4 + learned.expected_missed);
  if (mood == Mood::kHopeful) scale *= kHope;
  const double expected = std::clamp(scale * PriorMiss(width, beam_width), 0.001, 0.999);
  const auto cover = learned.by_width.find(width);
  if (cover == learned.by_width.end()) return 1 - expected;
  return 1 -
         (kPriorTrials * expected + cover->second.missed) / (kPriorTrials + cover->second.trials);
}

double ForestSizer::DeepCoverage(const Learned& learned, int width, double first) {
  const auto cover = learned.by_width.find(width);
  if (cover == learned.by_width.end()) return first;
  return 1 - (kPriorTrials * (1 - first) + cover->second.deep_missed) /
                 (kPriorTrials + cover->second.deep_trials);
}

double ForestSizer::Coverage(absl::string_view method, int beam_width, int width) const {
  const auto found = learned_.find({std::string(method), beam_width});
  return Coverage(found == learned_.end() ? Learned() : found->second, beam_width, width);
}

double ForestSizer::LayersPerSecond(const Costs& costs, Covered covered, const SizerLimits& limits,
                                    DraftShape shape) {
  double layers = 1, reached = 1;
  for (int l = 0; l < shape.depth; ++l) layers += reached *= l == 0 ? covered.first : covered.deep;
  const int nodes = limits.draft.Nodes(shape.width, shape.depth);
  const int rows = limits.running * (nodes == 0 ? limits.plain_rows : limits.roots + nodes);
  const double seconds = costs.Pass(rows) + costs.Draft(shape) / limits.running;
  return seconds <= 0 ? layers : layers / seconds;
}

std::vector<double> ForestSizer::Rates(absl::Span<const DraftShape> candidates, const Costs& costs,
                                       const Learned& learned, const SizerLimits& limits,
                                       Mood mood) const {
  std::vector<double> rates;
  rates.reserve(candidates.size());
  Covered covered;
  int covered_width = -1;  // of `covered`: candidates of one width are adjacent
  for (const DraftShape shape : candidates) {
    if (!products_.empty() && !limits.draft.chosen && costs.drafts.empty() &&
        shape.depth > decoding::kAutoDraftDepth) {
      rates.push_back(0);  // deep drafts wait until it is known what a level costs
      continue;
    }
    if (shape.depth > 0 && std::exchange(covered_width, shape.width) != shape.width) {
      covered.first = Coverage(learned, limits.beam_width, shape.width, mood);
      covered.deep = DeepCoverage(learned, shape.width, covered.first);
    }
    rates.push_back(LayersPerSecond(costs, covered, limits, shape));
  }
  return rates;
}

DraftShape ForestSizer::Choose(absl::string_view method, const SizerLimits& limits) {
  if (limits.max_depth <= 0 || !limits.draft.drafts) return {};
  const std::vector<DraftShape> candidates = Candidates(limits);
  if (candidates.empty()) return {};
  const bool free = !limits.draft.chosen;
  Learned& learned = learned_[{std::string(method), limits.beam_width}];
  const uint64_t round = learned.rounds++;
  const std::vector<DraftShape> first = FirstShapes(limits);
  DraftShape best;
  if (free && round < first.size() && products_.empty()) {
    best = Clip(first[round], limits);
  } else {
    const Costs costs = CostsNow();
    const std::vector<double> rates = Rates(candidates, costs, learned, limits, Mood::kSober);
    const auto best_of = [&](absl::Span<const double> of) {
      return std::max_element(of.begin(), of.end()) - of.begin();
    };
    const auto top = best_of(rates);
    best = candidates[top];
    if (free && round > 0 && round < kYoung && round % kHopeEvery == 0) {
      best = candidates[best_of(Rates(candidates, costs, learned, limits, Mood::kHopeful))];
    }
    if (free && round % kExploreEvery == 0) {
      // Explore: of the shapes that may be equally good, take the least used.
      for (size_t i = 0; i < candidates.size(); ++i) {
        if (rates[i] >= kWorthExploring * rates[top] &&
            learned.Used(candidates[i]) < learned.Used(best)) {
          best = candidates[i];
        }
      }
    }
  }
  ++learned.used[{best.width, best.depth}];
  return best;
}

void ForestSizer::RecordPass(int rows, double seconds) {
  pass_.Record(Bucket(products_, rows), seconds);
}

void ForestSizer::RecordRound(absl::string_view method, int beam_width, DraftShape shape,
                              int layers) {
  if (shape.depth <= 0 || shape.width <= 0) return;
  Learned& learned = learned_[{std::string(method), beam_width}];
  const int covered = std::clamp(layers - 1, 0, shape.depth);
  const int first_missed = covered == 0 ? 1 : 0;
  learned.missed = kForget * learned.missed + first_missed;
  learned.expected_missed = kForget * learned.expected_missed + PriorMiss(shape.width, beam_width);
  Cover& cover = learned.by_width[shape.width];
  cover.trials = kForget * cover.trials + 1;
  cover.missed = kForget * cover.missed + first_missed;
  const int deep_trials = std::min(covered + 1, shape.depth) - 1;
  if (deep_trials <= 0) return;  // the first layer was missed, or it is the only one
  cover.deep_trials = kForget * cover.deep_trials + deep_trials;
  cover.deep_missed = kForget * cover.deep_missed + (deep_trials - (covered - 1));
}

void ForestSizer::RecordDraft(DraftShape shape, double seconds) {
  if (shape.depth > 0) draft_.Record(DraftKey(shape), seconds);
}

}  // namespace coppice::worker
