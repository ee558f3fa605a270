// For tests of the sizer: limits of a sequence, and a simulated replica.
#pragma once

#include <functional>
#include <map>
#include <utility>

#include "worker/forest_sizer.h"

namespace coppice::worker {

inline SizerLimits Limits(int beam_width) {
  SizerLimits limits;
  limits.beam_width = beam_width;
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

// Runs `rounds` rounds against a simulated replica and returns how often each shape was chosen in
// the second half.
inline std::map<std::pair<int, int>, int> Simulate(ForestSizer* sizer, SizerLimits limits,
                                                   int rounds,
                                                   const std::function<double(int)>& pass_seconds,
                                                   double level_seconds, double coverage,
                                                   double deep_coverage = -1) {
  std::map<std::pair<int, int>, int> chosen;
  unsigned state = 1;
  for (int i = 0; i < rounds; ++i) {
    const DraftShape shape = sizer->Choose("m", limits);
    int layers = 1;
    for (int l = 0; l < shape.depth; ++l) {
      state = state * 1664525u + 1013904223u;
      if ((state >> 8) * 0x1p-24 >= (l == 0 || deep_coverage < 0 ? coverage : deep_coverage)) break;
      ++layers;
    }
    const int rows = limits.running * (limits.roots + shape.width * shape.depth);
    sizer->RecordPass(rows, pass_seconds(rows));
    if (shape.depth > 0) sizer->costs()->RecordDraft(shape, level_seconds * shape.depth);
    sizer->RecordRound("m", limits.beam_width, {shape, layers});
    if (i >= rounds / 2) ++chosen[{shape.width, shape.depth}];
  }
  return chosen;
}

}  // namespace coppice::worker
