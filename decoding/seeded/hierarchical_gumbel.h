// The keys of Gumbel top-k (docs/algorithms.md 5.8): Gumbel noise of a beam's children, conditioned
// on their maximum being the beam's own key. Used by verifier and drafter. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "base/types.h"
#include "sampling/deterministic_math.h"

namespace coppice::decoding {

// M_b = ls + G(PARENT, 0, H(b), 0): no child of b has a larger key.
double BeamKey(uint64_t seed, uint64_t hash, double log_score);
// Keys of the children `tokens` with log pt = log_probs. All of the support must be given, since
// the maximum is over it. -inf, which saves time: some that are not among the `count` largest or
// are below `least`.
std::vector<double> ChildKeys(uint64_t seed, uint64_t hash, double log_score, double beam_key,
                              absl::Span<const TokenId> tokens, absl::Span<const double> log_probs,
                              size_t count, double least = sampling::kLogZero);

}  // namespace coppice::decoding
