#include "worker/forest_sizer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "decoding/params.h"

namespace coppice::worker {
namespace {

constexpr double kForget = 0.98;      // decay of misses: a memory of about 50 rounds
constexpr double kPriorMisses = 4;    // expected ones, before any is observed
constexpr double kForgetStep = 0.99;  // decay of a regime
constexpr int kSettling = 8;          // first steps, which a regime is not judged by
constexpr int kFirstSteps = 24;       // steps before it is judged
constexpr int kLongRegime = 200;      // steps after which a pause begins at the shortest again
constexpr double kMostLost = 0.01;    // the share of the time that drafts may lose
constexpr int kFirstPlainSteps = 48;  // steps without drafts before the first draft at a load
constexpr int kAloneCounts = 16;      // of which one that was alone counts for so many
constexpr int kPlainEvery = 48;       // so many steps later there are some again,
constexpr int kMostPlain = 8;         // until one was alone, at most so many
constexpr int kFirstTrial = 512, kMostDoublings = 3, kTrialRounds = 16;

// Prior probability that a layer of this width is missed: 0.5 at one node, 0.3 at 2 W
// (docs/algorithms.md 10.1). Measurements scale the curve.
double PriorMiss(int width, int beam_width) {
  return 0.5 / std::pow(1 + 2.0 * (width - 1) / std::max(2, beam_width), 0.37);
}

// 1, 2, 3 to 4, 5 to 8, ... sequences that run.
int Load(int running) { return std::bit_width(static_cast<unsigned>(std::max(1, running) - 1)); }

}  // namespace

DraftShape ForestSizer::Clip(DraftShape shape, const SizerLimits& limits) {
  shape.depth = std::min(
      {shape.depth, limits.max_depth, limits.draft.DeepestWithin(shape.width, limits.max_nodes)});
  return shape.depth > 0 ? shape : DraftShape{};
}

void ForestSizer::Misses::Add(bool missed, double expectation) {
  seen = kForget * seen + missed;
  expected = kForget * expected + expectation;
}

double ForestSizer::Layers(const Learned& learned, int beam_width, DraftShape shape) {
  const auto scale = [](const Misses& misses, double prior) {
    return (kPriorMisses * prior + misses.seen) / (kPriorMisses + misses.expected);
  };
  const double first = scale(learned.first, 1), deep = scale(learned.deep, first);
  const double miss = PriorMiss(shape.width, beam_width);
  double layers = 1, reached = 1;
  for (int l = 0; l < shape.depth; ++l)
    layers += reached *= 1 - std::min(0.999, miss * (l == 0 ? first : deep));
  return layers;
}

ForestSizer::Best ForestSizer::BestDraft(const Learned& learned, const SizerLimits& limits) const {
  const decoding::DraftSize& draft = limits.draft;
  const int widest = draft.width > 0 ? draft.width : decoding::AutoDraftWidth(limits.beam_width);
  const int deepest = draft.depth > 0 ? draft.depth : decoding::kMaxAutoDraftDepth;
  const double plain_s = costs_.Step(limits.plain_rows, /*alone=*/true);
  const int most_rows = draft.chosen ? std::numeric_limits<int>::max() : costs_.ridge();
  Best best;
  for (int width = draft.width > 0 ? widest : 1; width <= widest; width += 1 + width / 4) {
    for (int depth = draft.depth > 0 ? deepest : 1; depth <= deepest; ++depth) {
      const DraftShape shape = Clip({width, depth}, limits);
      if (shape.depth == 0) continue;
      const int nodes = limits.running * draft.Nodes(shape.width, shape.depth);
      if (limits.plain_rows + nodes > most_rows) continue;
      const int rows = limits.roots + nodes;
      const double seconds =
          costs_.Step(rows, /*alone=*/false) + costs_.Draft(shape, limits.running);
      const double layers = Layers(learned, limits.beam_width, shape);
      const double gain = seconds > 0 ? layers * plain_s / seconds : layers;
      if (best.shape.depth == 0 || gain > best.gain) best = {shape, gain};
    }
  }
  return best;
}

DraftShape ForestSizer::Decide(const Learned& learned, const SizerLimits& limits) const {
  if (limits.max_depth <= 0 || !limits.draft.drafts) return {};
  const Best best = BestDraft(learned, limits);
  if (limits.draft.chosen || (learned.trial_rounds > 0 && limits.prepared)) return best.shape;
  const bool plain = best.gain <= 1 || StaysPlain(learned, limits.running);
  return plain ? DraftShape{} : best.shape;
}

bool ForestSizer::StaysPlain(const Learned& learned, int running) const {
  const auto found = learned.regimes.find(Load(running));
  if (found == learned.regimes.end()) return true;
  const Regime& regime = found->second;
  return now_s_ < regime.paused_until_s || regime.plain_steps < kFirstPlainSteps ||
         regime.since_plain >= kPlainEvery;
}

bool ForestSizer::Allows(absl::string_view method, const SizerLimits& limits) {
  if (limits.max_depth <= 0 || !limits.draft.drafts) return false;
  const Learned& learned = learned_[{std::string(method), limits.beam_width}];
  return limits.draft.chosen || learned.trial_rounds > 0 || !StaysPlain(learned, limits.running);
}

DraftShape ForestSizer::Choose(absl::string_view method, const SizerLimits& limits) {
  const DraftShape shape = Decide(learned_[{std::string(method), limits.beam_width}], limits);
  rounds_.asked += shape.depth > 0;
  return shape;
}

bool ForestSizer::WorthPreparing(absl::string_view method, SizerLimits limits) {
  if (limits.draft.chosen) return true;
  Learned& learned = learned_[{std::string(method), limits.beam_width}];
  if (learned.trial_rounds > 0 && !learned.trial_taken &&
      limits.max_depth >= decoding::kMaxAutoDraftDepth)
    return learned.trial_taken = true;
  limits.roots = limits.plain_rows = learned.beams * limits.running;
  limits.prepared = false;
  return Decide(learned, limits).depth > 0;
}

void ForestSizer::RecordRound(absl::string_view method, int beam_width,
                              const decoding::DraftSize& draft, DraftShape shape, int layers) {
  Learned& learned = learned_[{std::string(method), beam_width}];
  if (draft.drafts && !draft.chosen) rounds_.of = &learned;
  ++rounds_.all;
  rounds_.layers += layers;
  if (shape.depth <= 0) return;
  ++rounds_.drafted;
  const int covered = std::clamp(layers - 1, 0, shape.depth);
  const double prior = PriorMiss(shape.width, beam_width);
  learned.first.Add(covered == 0, prior);
  for (int l = 1; l <= covered && l < shape.depth; ++l) learned.deep.Add(l == covered, prior);
  if (learned.trial_rounds > 0) --learned.trial_rounds;
}

void ForestSizer::RecordStep(const StepTimes& step) {
  const Rounds rounds = std::exchange(rounds_, {});
  now_s_ += step.since_s;
  const bool plain = rounds.drafted + rounds.asked + std::exchange(asked_, rounds.asked) == 0;
  const bool alone = plain && rounds.all == step.running && !step.reading;
  // What the step has done would have taken this long in steps without drafts.
  const double prompts_s = costs_.Step(step.rows, /*alone=*/true) -
                           costs_.Step(step.rows - step.prompt_rows, /*alone=*/true);
  const double worth_s =
      rounds.layers * costs_.Step(step.plain_rows, /*alone=*/true) / step.running +
      (step.prompt_rows > 0 ? std::max(0.0, prompts_s) : 0);
  if (!step.reading || step.prompt_rows > 0)
    costs_.RecordStep(step.rows, alone ? step.since_s : step.seconds, alone);
  if (rounds.of == nullptr) return;
  if (plain) return EndPlainStep(step, alone, rounds.of);
  // Where most have no draft, as in a trial in a crowd, the step says nothing about drafts for all.
  if (2 * (rounds.drafted + rounds.asked) < rounds.all) return;
  rounds.of->plain_steps = 0;
  if (HavePaid(worth_s, step.since_s, now_s_, &rounds.of->regimes[Load(step.running)]))
    rounds.of->trials = 0;
}

void ForestSizer::EndPlainStep(const StepTimes& step, bool alone, Learned* learned) {
  learned->beams = std::max(1, step.plain_rows / step.running);
  Regime& regime = learned->regimes[Load(step.running)];
  regime.plain_steps += alone ? kAloneCounts : 1;
  if (alone || ++regime.since_plain >= kPlainEvery + kMostPlain) regime.since_plain = 0;
  if (now_s_ < regime.paused_until_s) return;
  if (++learned->plain_steps < kFirstTrial << std::min(learned->trials, kMostDoublings)) return;
  learned->plain_steps = 0;
  ++learned->trials;
  learned->trial_rounds = kTrialRounds;
  learned->trial_taken = false;
}

bool ForestSizer::HavePaid(double worth_s, double seconds, double now_s, Regime* regime) {
  if (regime->steps == kSettling) regime->worth_s = regime->seconds = 0;
  regime->worth_s = kForgetStep * regime->worth_s + worth_s;
  regime->seconds = kForgetStep * regime->seconds + seconds;
  regime->lost_s += seconds - worth_s;
  ++regime->since_plain;
  if (++regime->steps > kLongRegime) regime->pause_s = 0;
  if (regime->steps < kFirstSteps) return false;
  if (regime->worth_s >= regime->seconds) return true;
  regime->pause_s =
      std::max({regime->lost_s / kMostLost, 2 * regime->pause_s, 2 * regime->seconds});
  regime->paused_until_s = now_s + regime->pause_s;
  regime->worth_s = regime->seconds = regime->lost_s = 0;
  regime->steps = 0;
  return false;
}

}  // namespace coppice::worker
