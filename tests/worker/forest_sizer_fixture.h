// For tests of the sizer: limits of a sequence, and a simulated replica.
#pragma once

#include <functional>
#include <map>
#include <utility>

#include "worker/forest_sizer.h"

namespace coppice::worker {

inline SizerLimits Limits(int beam_width, int running = 1) {
  SizerLimits limits;
  limits.beam_width = beam_width;
  limits.running = limits.roots = limits.plain_rows = running;
  limits.max_depth = 100;
  limits.max_nodes = 500;
  limits.draft.drafts = true;
  return limits;
}

inline SizerLimits Prescribed(int width, int depth) {
  SizerLimits limits = Limits(4);
  limits.draft.chosen = true;
  limits.draft.width = width;
  limits.draft.depth = depth;
  return limits;
}

// Steps of the target: rows are free, or cost in full.
inline double FreeRows(int) { return 0.010; }
inline double DearRows(int rows) { return 0.002 * rows; }

// A replica whose sequences share all steps.
struct Replica {
  // step_s: of the target, by rows; level_s: of a draft; coverage: of a first layer; deep_coverage:
  // of those below, -1: the same.
  explicit Replica(std::function<double(int)> step_s, double level_s = 0.0002,
                   double coverage = 0.9, double deep_coverage = -1)
      : step_s(std::move(step_s)),
        level_s(level_s),
        coverage(coverage),
        deep_coverage(deep_coverage) {}

  std::function<double(int)> step_s;
  double level_s, coverage, deep_coverage;
  double hidden_s = 0;                        // what a step with drafts takes besides
  double drafted_s = 0, seconds = 0;          // time of steps with drafts, and of all
  std::map<std::pair<int, int>, int> chosen;  // steps by shape

  // One step. The draft is there when it begins.
  void Step(ForestSizer* sizer, const SizerLimits& limits, DraftShape shape) {
    const int nodes = shape.width * shape.depth;
    for (int i = 0; i < limits.running; ++i) {
      int layers = 1;
      while (layers <= shape.depth &&
             Chance() < (layers == 1 || deep_coverage < 0 ? coverage : deep_coverage)) {
        ++layers;
      }
      sizer->RecordRound("m", limits.beam_width, limits.draft, shape, layers);
    }
    StepTimes step;
    step.rows = nodes > 0 ? limits.roots + limits.running * nodes : limits.plain_rows;
    step.running = limits.running;
    step.plain_rows = limits.plain_rows;
    step.seconds = step.since_s = step_s(step.rows);
    if (nodes > 0) {
      step.since_s += hidden_s + level_s * shape.depth;
      sizer->costs()->RecordDraft(shape, level_s * shape.depth, level_s * shape.depth,
                                  limits.running);
      drafted_s += step.since_s;
    }
    seconds += step.since_s;
    ++chosen[{shape.width, shape.depth}];
    // The others choose as the first, at the end of the step.
    for (int i = 1; i < limits.running; ++i) sizer->Choose("m", limits);
    next = sizer->Choose("m", limits);
    sizer->RecordStep(step);
  }
  void Run(ForestSizer* sizer, const SizerLimits& limits, int steps) {
    for (int i = 0; i < steps; ++i) Step(sizer, limits, next);
  }
  // The shape of most of the steps to come.
  DraftShape Usual(ForestSizer* sizer, const SizerLimits& limits, int steps) {
    chosen.clear();
    Run(sizer, limits, steps);
    std::pair<int, int> usual;
    for (const auto& [shape, count] : chosen)
      if (count > chosen[usual]) usual = shape;
    return {usual.first, usual.second};
  }
  double drafted_share() const { return drafted_s / seconds; }

  DraftShape next;

 private:
  double Chance() {
    state_ = state_ * 1664525u + 1013904223u;
    return (state_ >> 8) * 0x1p-24;
  }
  unsigned state_ = 1;
};

}  // namespace coppice::worker
