// Logits processing (docs/algorithms.md 1): temperature, top-k, top-p, min-p and logit bias on one
// row. For the joint readings over all rows of a layer see decoding/joint/joint_distribution.h.
// Called by every verifier and drafter. Pure functions.
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

// The steps before the cuts, in place: keeps what is `allowed`, adds the bias, applies the
// penalties of `repeated`, divides by the temperature if it is > 0.
void TemperRow(const SamplingParams& sampling, absl::Span<double> x);
// Sets everything that is not allowed to -inf. x [vocab].
void KeepAllowed(const AllowedTokens& allowed, absl::Span<double> x);
// True when the output's format allows so few tokens that only these are read.
bool FewAllowed(const SamplingParams& sampling);
// True when the sampling parameters keep every token that is allowed: no top-k, top-p or min-p,
// temperature > 0.
bool KeepsWholeRow(const SamplingParams& sampling);
// True when TemperRow changes no logit.
bool KeepsLogits(const SamplingParams& sampling);
// The sampling parameters without their cuts: temperature, bias, penalties and mode stay.
SamplingParams WithoutCuts(SamplingParams sampling);
// True when the cuts act on the flat scores of a whole layer and rows stay uncut: JOINT with a cut,
// and JOINT and ROWCUT at temperature 0 (decoding/joint/joint_distribution.h).
bool CutsJointly(const SamplingParams& sampling);
// The other steps, on a row from TemperRow: one-hot at temperature 0, the cuts, renormalisation.
// When x holds only the largest entries of the row, they must include all that the cuts keep, and
// `sum` is the log-sum-exp of the whole row.
Distribution CutRow(absl::Span<const double> x, const SamplingParams& sampling,
                    const LogSum* sum = nullptr);
// The first `count` tokens by (x descending, id ascending), in that order. Fewer when fewer are
// finite.
std::vector<TokenId> TopTokens(absl::Span<const double> x, size_t count);
// The same, with the BlockMaxima of x.
std::vector<TokenId> TopTokens(absl::Span<const double> x, absl::Span<const double> maxima,
                               size_t count);

// process_row of docs/algorithms.md 1. logits [vocab]; NaN counts as -inf. Ignores bias entries
// outside the vocabulary. The result is never empty: a row without finite logits becomes one-hot on
// token 0.
Distribution ProcessRow(absl::Span<const double> logits, const SamplingParams& sampling);
Distribution ProcessRow(absl::Span<const float> logits, const SamplingParams& sampling);
// The same from a candidate list (decoding/row_need.h). `sums` is read only for top-p without
// top-k.
Distribution ProcessList(const TokenList& list, const ChunkSums& sums,
                         const SamplingParams& sampling);
// The same from a list of all tokens that the format of `sampling` allows.
Distribution ProcessAllowed(const TokenList& list, const SamplingParams& sampling);
// What TemperRow gives for the listed tokens of the whole row.
std::vector<double> TemperList(const TokenList& list, const SamplingParams& sampling);

}  // namespace coppice::sampling
