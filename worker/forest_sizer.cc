#include "worker/forest_sizer.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "decoding/params.h"

namespace coppice::worker {
namespace {

constexpr double kForget = 0.98;  // decay of coverage counts per round; memory of about 50 rounds
constexpr double kPriorTrials = 10;
constexpr double kPriorInforming = 2;  // rounds; half of them inform the next
constexpr double kRootsGain = 0.05;
constexpr int kWorthSteps = 6;
constexpr double kMostWorth = 4;  // layers, at most
constexpr double kWorthExploring = 0.75;
// The part of drafted layers that counts when sequences share steps. RoundCosts::Turn leaves out
// that some drafts are requested alone or arrive late (docs/decisions.md, "Sequences with drafts
// share their passes").
constexpr double kSharedLayers = 0.92;
// The rounds after which a sequence explores that was prepared for exploring. Each sequence takes
// the next number: a text may be harder to draft at its beginning than later.
constexpr uint64_t kExplorersRounds[] = {0, 8, 3, 24, 1, 64};
constexpr double kHope = 0.4;  // share of the expected misses

// Prior probability that a layer of this width is missed: 0.5 at one node, 0.3 at 2 W
// (docs/algorithms.md 10.1). Measurements scale the curve and correct single widths.
double PriorMiss(int width, int beam_width) {
  return 0.5 / std::pow(1 + 2.0 * (width - 1) / std::max(2, beam_width), 0.37);
}

// Rows of all running sequences, if one of them has `own`.
int RowsOfAll(int all, int own, const SizerLimits& limits) {
  return all > 0 && limits.running > 1 ? all : limits.running * own;
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

double ForestSizer::Coverage(const Covers& covers, int beam_width, int width, Mood mood) {
  double scale =
      (kPriorTrials * 0.4 + covers.missed) / (kPriorTrials * 0.4 + covers.expected_missed);
  if (mood == Mood::kHopeful) scale *= kHope;
  const double expected = std::clamp(scale * PriorMiss(width, beam_width), 0.001, 0.999);
  const auto cover = covers.by_width.find(width);
  if (cover == covers.by_width.end()) return 1 - expected;
  return 1 -
         (kPriorTrials * expected + cover->second.missed) / (kPriorTrials + cover->second.trials);
}

double ForestSizer::DeepCoverage(const Covers& covers, int width, double uninformed) {
  const auto cover = covers.by_width.find(width);
  if (cover == covers.by_width.end()) return uninformed;
  return 1 - (kPriorTrials * (1 - uninformed) + cover->second.deep_missed) /
                 (kPriorTrials + cover->second.deep_trials);
}

double ForestSizer::Coverage(absl::string_view method, int beam_width, int width,
                             bool informed) const {
  const auto found = learned_.find({std::string(method), beam_width});
  const Covers covers = found == learned_.end() ? Covers() : found->second.Of(informed);
  return Coverage(covers, beam_width, width);
}

ForestSizer::Expected ForestSizer::Expect(Covered covered, const SizerLimits& limits,
                                          DraftShape shape) const {
  double layers = 1, reached = 1;
  for (int l = 0; l < shape.depth; ++l) layers += reached *= l == 0 ? covered.first : covered.deep;
  const int nodes = limits.draft.Nodes(shape.width, shape.depth);
  const int rows = nodes == 0
                       ? RowsOfAll(limits.all_plain_rows, limits.plain_rows, limits)
                       : RowsOfAll(limits.all_roots, limits.roots, limits) + limits.running * nodes;
  if (shape.depth > 0 && limits.running > 1) layers *= kSharedLayers;
  return {layers, costs_.Turn(limits.running, rows, shape), 0};
}

std::vector<ForestSizer::Expected> ForestSizer::Expect(absl::Span<const DraftShape> candidates,
                                                       const Learned& learned,
                                                       const SizerLimits& limits, Mood mood) const {
  const Covers& covers = learned.Of(limits.informed);
  std::vector<Expected> all;
  all.reserve(candidates.size());
  Covered covered;
  int covered_width = -1;  // of `covered`: candidates of one width are adjacent
  for (const DraftShape shape : candidates) {
    if (costs_.products_known() && !limits.draft.chosen && !costs_.drafts_measured() &&
        shape.depth > decoding::kAutoDraftDepth) {
      all.push_back({0, 1, 0});  // deep drafts wait until it is known what a level costs
      continue;
    }
    if (shape.depth > 0 && std::exchange(covered_width, shape.width) != shape.width) {
      covered.first = Coverage(covers, limits.beam_width, shape.width, mood);
      const double uninformed =
          limits.informed ? Coverage(learned.of_uninformed, limits.beam_width, shape.width, mood)
                          : covered.first;
      covered.deep = DeepCoverage(covers, shape.width, uninformed);
    }
    all.push_back(Expect(covered, limits, shape));
    if (shape.depth > 0 && limits.beam_width > 1) all.back().informs = Informs(covers, shape.depth);
  }
  return all;
}

double ForestSizer::Informs(const Covers& covers, int depth) {
  double rounds = kPriorInforming, informing = kPriorInforming / 2;
  for (const auto& [of, seen] : covers.by_depth) {
    rounds += seen.rounds;
    informing += seen.informing;
  }
  const auto seen = covers.by_depth.find(depth);
  if (seen == covers.by_depth.end()) return informing / rounds;
  return (kPriorTrials * informing / rounds + seen->second.informing) /
         (kPriorTrials + seen->second.rounds);
}

// Two states, and the worth of a round in each: its layers, minus the worth of its seconds, plus
// the worth of being informed times its probability. The best uninformed round is then worth
// nothing.
double ForestSizer::WorthOfBeingInformed(absl::Span<const DraftShape> candidates,
                                         const Learned& learned, SizerLimits limits) const {
  if (limits.beam_width < 2 || learned.informed_roots <= 0) return 0;
  limits.informed = false;
  limits.roots = limits.plain_rows;
  const std::vector<Expected> uninformed = Expect(candidates, learned, limits, Mood::kSober);
  limits.informed = true;
  limits.roots = std::max(1, static_cast<int>(std::lround(learned.informed_roots)));
  const std::vector<Expected> informed = Expect(candidates, learned, limits, Mood::kSober);
  double worth = 0;
  for (int i = 0; i < kWorthSteps; ++i) {
    double rate = 0, most = 0;
    for (const Expected& round : uninformed) {
      if (round.seconds <= 0) return 0;
      rate = std::max(rate, (round.layers + round.informs * worth) / round.seconds);
    }
    for (const Expected& round : informed)
      most = std::max(most, round.layers + round.informs * worth - rate * round.seconds);
    worth = std::min(most, kMostWorth);
  }
  return worth;
}

std::vector<double> ForestSizer::Rates(absl::Span<const DraftShape> candidates,
                                       const Learned& learned, const SizerLimits& limits,
                                       Mood mood) const {
  const double worth = WorthOfBeingInformed(candidates, learned, limits);
  std::vector<double> rates;
  rates.reserve(candidates.size());
  for (const Expected& round : Expect(candidates, learned, limits, mood)) {
    const double layers = round.layers + round.informs * worth - (limits.informed ? worth : 0);
    rates.push_back(round.layers <= 0 ? 0 : round.seconds <= 0 ? layers : layers / round.seconds);
  }
  return rates;
}

// The least used of the shapes that may be equally good. After a long time without drafts, the best
// of them, since their cost or coverage may have changed.
DraftShape ForestSizer::Explore(absl::Span<const DraftShape> candidates,
                                absl::Span<const double> rates, int top, const Learned& learned) {
  DraftShape least_used = candidates[top], best_draft;
  double best_rate = -std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (rates[i] >= kWorthExploring * rates[top] &&
        learned.Used(candidates[i]) < learned.Used(least_used)) {
      least_used = candidates[i];
    }
    if (candidates[i].depth > 0 && rates[i] > best_rate) {
      best_rate = rates[i];
      best_draft = candidates[i];
    }
  }
  return learned.gap < kRarest ? least_used : best_draft;
}

DraftShape ForestSizer::Choose(absl::string_view method, const SizerLimits& limits) {
  if (limits.max_depth <= 0 || !limits.draft.drafts) return {};
  const std::vector<DraftShape> candidates = Candidates(limits);
  if (candidates.empty()) return {};
  const bool free = !limits.draft.chosen;
  Learned& learned = learned_[{std::string(method), limits.beam_width}];
  if (std::exchange(learned.step, step_) != step_) {
    ++learned.rounds;
    learned.explored.reset();
  }
  const bool may_explore = free && limits.explores && limits.max_depth >= decoding::kAutoDraftDepth;
  if (may_explore && std::exchange(learned.able_step, step_) != step_) ++learned.able;
  const uint64_t round = learned.rounds - 1;
  if (!limits.informed) learned.roots = limits.roots;
  learned.plain_rows = limits.plain_rows;
  const std::vector<DraftShape> first = FirstShapes(limits);
  DraftShape best;
  if (free && round < first.size() && !costs_.products_known()) {
    best = Clip(first[round], limits);
  } else {
    const std::vector<double> rates = Rates(candidates, learned, limits, Mood::kSober);
    const auto best_of = [&](absl::Span<const double> of) {
      return std::max_element(of.begin(), of.end()) - of.begin();
    };
    const int top = static_cast<int>(best_of(rates));
    best = candidates[top];
    if (free && round > 0 && round < kYoung && round % kHopeEvery == 0) {
      best = candidates[best_of(Rates(candidates, learned, limits, Mood::kHopeful))];
    }
    if (free && limits.explores && learned.explored) {
      best = Clip(*learned.explored, limits);
    } else if (may_explore && learned.able > learned.explore_at) {
      learned.gap = candidates[top].depth > 0 ? kExploreEvery : std::min(2 * learned.gap, kRarest);
      learned.explore_at = learned.able - 1 + learned.gap;
      learned.explorer_at = learned.rounds + kRarest;
      best = Explore(candidates, rates, top, learned);
      learned.explored = best;
    }
  }
  ++learned.used[{best.width, best.depth}];
  return best;
}

NextShapes ForestSizer::ChooseAhead(absl::string_view method, SizerLimits limits) {
  limits.informed = false;
  limits.roots = limits.plain_rows;
  const DraftShape uninformed = Choose(method, limits);
  const Learned& learned = learned_[{std::string(method), limits.beam_width}];
  if (learned.informed_roots <= 0) return {uninformed, uninformed};
  limits.informed = true;
  limits.roots = std::max(1, static_cast<int>(std::lround(learned.informed_roots)));
  return {uninformed, Choose(method, limits)};
}

bool ForestSizer::WorthPreparing(absl::string_view method, SizerLimits limits) {
  Learned& learned = learned_[{std::string(method), limits.beam_width}];
  if (learned.rounds < kYoung || limits.draft.chosen) return true;
  limits.max_nodes = std::max(0, limits.max_nodes + limits.plain_rows - learned.plain_rows);
  limits.roots = learned.roots;
  limits.plain_rows = learned.plain_rows;
  limits.all_roots = limits.all_plain_rows = 0;
  const std::vector<DraftShape> candidates = Candidates(limits);
  const std::vector<double> rates = Rates(candidates, learned, limits, Mood::kSober);
  const auto best = std::max_element(rates.begin(), rates.end());
  if (best != rates.end() && candidates[best - rates.begin()].depth > 0) return true;
  if (limits.max_depth <= decoding::kAutoDraftDepth || learned.rounds < learned.explorer_at)
    return false;
  learned.explorer_at = learned.rounds + kRarest;
  const uint64_t after = kExplorersRounds[learned.explorers++ % std::size(kExplorersRounds)];
  learned.explore_at = std::min(learned.explore_at, learned.able + after);
  return true;
}

void ForestSizer::RecordPass(int rows, double seconds) {
  costs_.RecordPass(rows, seconds);
  ++step_;
}

void ForestSizer::RecordRound(absl::string_view method, int beam_width, const DraftedRound& round) {
  const DraftShape shape = round.shape;
  if (shape.depth <= 0 || shape.width <= 0) return;
  Learned& learned = learned_[{std::string(method), beam_width}];
  if (round.next_roots > 0) {
    const double before = learned.informed_roots > 0 ? learned.informed_roots : round.next_roots;
    learned.informed_roots = before + kRootsGain * (round.next_roots - before);
  }
  Covers& covers = round.informed ? learned.of_informed : learned.of_uninformed;
  Informing& informing = covers.by_depth[shape.depth];
  informing.rounds = kForget * informing.rounds + 1;
  informing.informing = kForget * informing.informing + (round.next_roots > 0 ? 1 : 0);
  const int covered = std::clamp(round.layers - 1, 0, shape.depth);
  const int first_missed = covered == 0 ? 1 : 0;
  covers.missed = kForget * covers.missed + first_missed;
  covers.expected_missed = kForget * covers.expected_missed + PriorMiss(shape.width, beam_width);
  Cover& cover = covers.by_width[shape.width];
  cover.trials = kForget * cover.trials + 1;
  cover.missed = kForget * cover.missed + first_missed;
  const int deep_trials = std::min(covered + 1, shape.depth) - 1;
  if (deep_trials <= 0) return;  // the first layer was missed, or it is the only one
  cover.deep_trials = kForget * cover.deep_trials + deep_trials;
  cover.deep_missed = kForget * cover.deep_missed + (deep_trials - (covered - 1));
}

}  // namespace coppice::worker
