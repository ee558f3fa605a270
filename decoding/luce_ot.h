// Luce-OT verification of n iid drafts (LOT), docs/algorithms.md 4.8: one draft is selected by
// weights and tested against the law of what is selected. Law: the target's row, for any weights;
// acceptance comes near the optimum. Called by decoding/tree_decoder.h. Pure but for the
// ChoiceSource.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "decoding/node_rule.h"

namespace coppice {

inline constexpr int kLuceRounds = 10;

// s of 4.8: law of the selected draft among n drawn iid from q, each selected in proportion to its
// weight. q, weights > 0 over the same tokens; sums to the mass of q to 1e-14.
std::vector<double> LuceSelectionLaw(absl::Span<const double> q, absl::Span<const double> weights,
                                     int n);

struct LuceWeights {
  std::vector<double> weights;    // the best of the evaluated ones, largest 1
  std::vector<double> selection;  // their s
  double acceptance = 0;          // sum of min(p, s)
};
// The weights after `rounds` evaluations. p, q >= 0 over the support of q, whose least likely
// tokens may be 0 in f64; some q is not.
LuceWeights FindLuceWeights(absl::Span<const double> p, absl::Span<const double> q, int n,
                            int rounds = kLuceRounds);

NodeVerdict VerifyLuceOt(const NodeInput& input, ChoiceSource* choices);

}  // namespace coppice
