// Warping (docs/algorithms.md 1): temperature, top-k, top-p, min-p and logit bias on one row.
// The joint readings over all rows of a layer: decoding/joint_law.h. Called by every verifier and
// drafter. Pure functions.
//
// Reproducible on every machine: no libm, no fma, and the log-sum-exp is formed over kLseChunks
// vocabulary chunks in fixed order (row_kernels.h), eight accumulators each, whatever the vector
// width.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "decoding/distribution.h"
#include "decoding/params.h"

namespace coppice {

// log sum exp(x), nats; -inf when nothing is finite.
double LogSumExp(absl::Span<const double> x);

// Steps before the cuts, in place: bias, division by a temperature > 0.
void TemperRow(const WarpParams& warp, absl::Span<double> x);
// True when the warp keeps every token: no top-k, top-p or min-p, temperature > 0.
bool KeepsWholeRow(const WarpParams& warp);
// True when the cuts act on the flat scores of a whole layer and rows stay uncut: JOINT with a cut,
// and JOINT and ROWCUT at temperature 0 (decoding/joint_law.h).
bool CutsJointly(const WarpParams& warp);
// Steps 2-5 (all but the division) on a tempered row.
Distribution CutRow(absl::Span<const double> x, const WarpParams& warp);
// The `count` first tokens by (x descending, id ascending), fewer when fewer are finite; in that
// order.
std::vector<TokenId> TopTokens(absl::Span<const double> x, size_t count);

// warp_row: logits [vocab], NaN counts as -inf. Bias entries outside the vocabulary are ignored.
// Never empty: a row without any finite logit becomes one-hot on token 0.
Distribution WarpRow(absl::Span<const double> logits, const WarpParams& warp);
Distribution WarpRow(absl::Span<const float> logits, const WarpParams& warp);

}  // namespace coppice
