// Luce-OT verification of n iid drafts (LOT), docs/algorithms.md 4.8: selects one draft by weights
// and tests it against the distribution of the selected draft. Distribution: the target's row, for
// any weights. Acceptance is close to the optimum. Called by decoding/tree/tree_decoder.h. Pure
// except for the ChoiceSource.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "decoding/tree/node_rule.h"

namespace coppice::decoding {

inline constexpr int kLuceRounds = 10;

// s of 4.8: the distribution of the draft selected in proportion to its weight among n iid drafts
// from q. q, weights > 0 over the same tokens. The result sums to the mass of q to 1e-14.
std::vector<double> LuceSelectionDistribution(absl::Span<const double> q,
                                              absl::Span<const double> weights, int n);

struct LuceWeights {
  std::vector<double> weights;    // the best of the evaluated ones, largest 1
  std::vector<double> selection;  // s for these weights
  double acceptance = 0;          // sum of min(p, s)
};
// The best weights of `rounds` evaluations. p, q >= 0 over the support of q. Single entries of q
// may be 0 in f64, but not all.
LuceWeights FindLuceWeights(absl::Span<const double> p, absl::Span<const double> q, int n,
                            int rounds = kLuceRounds);

NodeVerdict VerifyLuceOt(const NodeInput& input, ChoiceSource* choices);

}  // namespace coppice::decoding
