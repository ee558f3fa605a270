// Gumbel noise in vector loops (docs/algorithms.md 2): for many tokens, for many beams, and the
// noisy argmax over a whole row. Called by every method that draws. Highway picks the instruction
// set at run time; the bits are those of sampling/rng.h on all of them. Pure functions.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "sampling/rng.h"
#include "sampling/row_kernels.h"

namespace coppice::sampling {

// Nats. Larger margins of a pruned argmax are reported as this.
inline constexpr double kMarginCap = 0.01;

// Where a draw's noise comes from (docs/algorithms.md 2); idx is the token.
struct NoiseKey {
  uint64_t seed;
  Domain domain;
  uint64_t hash;
  uint32_t slot;
};
// noise[i] = Gumbel(key, tokens[i]), the same bits as sampling/rng.h.
void GumbelMany(const NoiseKey& key, absl::Span<const TokenId> tokens, double* noise);
// noise[i] = Gumbel of (seed, domain, hashes[i], slot, index 0): one beam each. key.hash is not
// read.
void GumbelOfHashes(const NoiseKey& key, absl::Span<const uint64_t> hashes, double* noise);

struct NoisyWinner {
  TokenId token;
  double margin;  // winner's key minus runner-up's, at most kMarginCap
};
// argmax over v of min(0, x[v] - sum.log) + Gumbel(key, v), the lowest token on ties. `weights` are
// those of ChunkedLogSumExp. Evaluates only tokens that a conservative test on 32 bits of the noise
// cannot discard. x may be a piece of a row that begins with token `first`, an even number; then
// `sum` is that of the piece, and the winner is a token of the row.
NoisyWinner ArgmaxWithNoise(absl::Span<const double> x, const float* weights, const LogSum& sum,
                            const NoiseKey& key, TokenId first = 0);

}  // namespace coppice::sampling
