// Vector loops over one row of the vocabulary: log-sum-exp and selection. Called by
// logits_processing and processed_row. Highway picks the instruction set at run time. The bits do
// not depend on it: no fma, and every sum uses eight accumulators in a fixed order, whatever the
// vector width. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "base/types.h"
#include "plan/candidate_row.h"

namespace coppice::sampling {

inline constexpr size_t kMaxBlock = 32;  // tokens per entry of BlockMaxima
inline constexpr size_t kRowPadding = 32;
// By which a list of the largest entries goes beyond its last one, nats: far above the rounding
// error of adding a score.
inline constexpr double kTieSlack = 1e-6;

// f32 -> f64; NaN becomes -inf, +inf a large finite value.
void WidenRow(absl::Span<const float> logits, double* x);
// x[i] /= divisor.
void DivideRow(double divisor, absl::Span<double> x);

struct LogSum {
  TokenId argmax;  // lowest token of the largest x
  double max;
  double log;  // log sum exp(x), nats; -inf when every x is
};
// exp(x - chunk maximum) below exp(-700) counts as 0. `weights`, if not null, receives max(exp(x -
// max), FLT_MIN) as f32; it has room for x.size() rounded up to kRowPadding, the padding is zeroed.
LogSum ChunkedLogSumExp(absl::Span<const double> x, float* weights);
// The same bits as ChunkedLogSumExp of the widened row, which is not written anywhere; argmax is
// not known: -1.
LogSum LogitsLogSumExp(absl::Span<const float> logits);
// For one chunk: its largest x (-inf if every x is), and the sum of exp(x - largest). (-inf, 0) if
// it is empty.
void SumChunk(absl::Span<const double> x, double* max, double* sum);
// The log-sum-exp of all chunks, the same bits as ChunkedLogSumExp; argmax is not known: -1.
LogSum JoinChunks(const ChunkSums& chunks);
// sum exp(x - max), max >= every x; exp below exp(-700) counts as 0.
double SumOfExp(absl::Span<const double> x, double max);

// Largest value of every block of kMaxBlock entries.
void BlockMaxima(absl::Span<const double> x, std::vector<double>* maxima);
// Tokens with x >= threshold, ascending.
void CollectAtLeast(absl::Span<const double> x, absl::Span<const double> block_maxima,
                    double threshold, std::vector<TokenId>* tokens);

// The same for logits. NaN counts as -inf.
void LogitMaxima(absl::Span<const float> logits, std::vector<float>* maxima);
void CollectLogits(absl::Span<const float> logits, absl::Span<const float> maxima, double threshold,
                   std::vector<TokenId>* tokens);
// At most the `count`-th largest logit, of their LogitMaxima; the lowest f32 if there may be fewer.
float LeastOfLargest(absl::Span<const float> maxima, size_t count);
// The tokens of the `count` largest logits, and possibly some more; ascending. NaN counts as -inf,
// which is never listed.
std::vector<TokenId> LargestLogits(absl::Span<const float> logits, size_t count);

}  // namespace coppice::sampling
