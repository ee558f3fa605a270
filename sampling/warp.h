// Warping (docs/algorithms.md 1): temperature, top-k, top-p, min-p and logit bias on one row. For
// the joint readings over all rows of a layer see decoding/law/joint_law.h. Called by every
// verifier and drafter. Pure functions.
//
// Results are the same on every machine: no libm, no fma, and the log-sum-exp is taken over
// kLseChunks vocabulary chunks in fixed order (row_kernels.h), with eight accumulators each,
// whatever the vector width.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "sampling/distribution.h"
#include "sampling/row_kernels.h"
#include "sampling/row_params.h"

namespace coppice::sampling {

// log sum exp(x), nats; -inf when nothing is finite.
double LogSumExp(absl::Span<const double> x);

// The steps before the cuts, in place: leaves what is `allowed`, adds the bias, applies the
// penalties of `repeated`, divides by the temperature if it is > 0.
void TemperRow(const WarpParams& warp, absl::Span<double> x);
// Makes -inf of what is not allowed. x [vocab].
void KeepAllowed(const AllowedTokens& allowed, absl::Span<double> x);
// True when the output's format allows so few tokens that only these are looked at.
bool FewAllowed(const WarpParams& warp);
// True when the warp keeps every token that is allowed: no top-k, top-p or min-p, temperature > 0.
bool KeepsWholeRow(const WarpParams& warp);
// True when TemperRow changes no logit.
bool KeepsLogits(const WarpParams& warp);
// The warp without its cuts: temperature, bias, penalties and mode stay.
WarpParams WithoutCuts(WarpParams warp);
// True when the cuts act on the flat scores of a whole layer and rows stay uncut: JOINT with a cut,
// and JOINT and ROWCUT at temperature 0 (decoding/law/joint_law.h).
bool CutsJointly(const WarpParams& warp);
// The other steps, on a row from TemperRow: one-hot at temperature 0, the cuts, renormalisation.
// When x holds only the largest entries of the row, they must include all that the cuts keep, and
// `sum` is the log-sum-exp of the whole row.
Distribution CutRow(absl::Span<const double> x, const WarpParams& warp,
                    const LogSum* sum = nullptr);
// The first `count` tokens by (x descending, id ascending), in that order. Fewer when fewer are
// finite.
std::vector<TokenId> TopTokens(absl::Span<const double> x, size_t count);
// The same, with the BlockMaxima of x.
std::vector<TokenId> TopTokens(absl::Span<const double> x, absl::Span<const double> maxima,
                               size_t count);

// warp_row of docs/algorithms.md 1. logits [vocab]; NaN counts as -inf. Ignores bias entries
// outside the vocabulary. The result is never empty: a row without finite logits becomes one-hot on
// token 0.
Distribution WarpRow(absl::Span<const double> logits, const WarpParams& warp);
Distribution WarpRow(absl::Span<const float> logits, const WarpParams& warp);
// The same from a shortlist (decoding/row_need.h). `sums` is read only for top-p without
// top-k.
Distribution WarpList(const TokenList& list, const ChunkSums& sums, const WarpParams& warp);
// What TemperRow gives for the listed tokens of the whole row.
std::vector<double> TemperList(const TokenList& list, const WarpParams& warp);

}  // namespace coppice::sampling
