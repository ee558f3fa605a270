// Warping (docs/algorithms.md 1): temperature, top-k, top-p, min-p and logit bias on one row.
// The joint readings over all rows of a layer: decoding/law/joint_law.h. Called by every verifier and
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
#include "decoding/rows/row_kernels.h"

namespace coppice::decoding {

// log sum exp(x), nats; -inf when nothing is finite.
double LogSumExp(absl::Span<const double> x);

// Steps before the cuts, in place: bias, division by a temperature > 0.
void TemperRow(const WarpParams& warp, absl::Span<double> x);
// True when the warp keeps every token: no top-k, top-p or min-p, temperature > 0.
bool KeepsWholeRow(const WarpParams& warp);
// The warp without its cuts: temperature, bias and mode stay.
WarpParams WithoutCuts(WarpParams warp);
// True when the cuts act on the flat scores of a whole layer and rows stay uncut: JOINT with a cut,
// and JOINT and ROWCUT at temperature 0 (decoding/law/joint_law.h).
bool CutsJointly(const WarpParams& warp);
// Steps 2-5 (all but the division) on a tempered row. `sum`: the log-sum-exp of the whole row when x
// holds its largest entries alone; they must reach as far as the cuts do.
Distribution CutRow(absl::Span<const double> x, const WarpParams& warp,
                    const LogSum* sum = nullptr);
// The `count` first tokens by (x descending, id ascending), fewer when fewer are finite; in that
// order.
std::vector<TokenId> TopTokens(absl::Span<const double> x, size_t count);

// warp_row: logits [vocab], NaN counts as -inf. Bias entries outside the vocabulary are ignored.
// Never empty: a row without any finite logit becomes one-hot on token 0.
Distribution WarpRow(absl::Span<const double> logits, const WarpParams& warp);
Distribution WarpRow(absl::Span<const float> logits, const WarpParams& warp);
// The same from a shortlist that LawNeed (decoding/rows/row_need.h) asked for. `sums` is read when top-p
// acts without top-k.
Distribution WarpList(const TokenList& list, const ChunkSums& sums, const WarpParams& warp);
// (logit + bias) / temperature of the listed tokens, as TemperRow gives them for the whole row.
std::vector<double> TemperList(const TokenList& list, const WarpParams& warp);

}  // namespace coppice::decoding
