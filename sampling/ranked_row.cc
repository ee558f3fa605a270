#include "sampling/ranked_row.h"

#include <algorithm>
#include <limits>

#include "sampling/deterministic_math.h"
#include "sampling/row_kernels.h"

namespace coppice::sampling {
namespace {

constexpr double kLowest = std::numeric_limits<float>::lowest();

// Finite logits of the allowed tokens.
void CollectAllowed(absl::Span<const float> logits, const AllowedTokens& allowed, double threshold,
                    std::vector<TokenId>* tokens) {
  tokens->clear();
  for (const TokenId token : allowed.listed) {
    if (static_cast<size_t>(token) >= logits.size()) break;
    if (logits[token] >= threshold) tokens->push_back(token);
  }
}

// The best `count` tokens have at least this logit. One rounding may have made f32 of it.
double ThresholdOf(absl::Span<const float> maxima, size_t count) {
  return std::max(kLowest, LeastOfLargest(maxima, count) - kTieSlack);
}

bool AnyFinite(absl::Span<const float> logits, const AllowedTokens& allowed) {
  return std::any_of(allowed.listed.begin(), allowed.listed.end(), [&](TokenId token) {
    return static_cast<size_t>(token) < logits.size() && logits[token] >= kLowest;
  });
}

}  // namespace

bool RankLogits(absl::Span<const float> logits, const RankQuery& query, std::vector<float>* maxima,
                RankedTokens* ranked) {
  ranked->tokens.clear();
  ranked->log_probs.clear();
  ranked->log_sum = LogitsLogSumExp(logits).log;
  if (ranked->log_sum == kLogZero) return false;
  if (query.allowed != nullptr && !AnyFinite(logits, *query.allowed)) return false;
  const double least = std::max(kLowest, query.least + ranked->log_sum - kTieSlack);
  if (query.allowed != nullptr) {
    CollectAllowed(logits, *query.allowed, least, &ranked->tokens);
  } else {
    LogitMaxima(logits, maxima);
    // Most rows of a wide search have few tokens that good.
    if (least > kLowest) CollectLogits(logits, *maxima, least, &ranked->tokens);
    if (least <= kLowest || ranked->tokens.size() > query.count) {
      CollectLogits(logits, *maxima, std::max(least, ThresholdOf(*maxima, query.count)),
                    &ranked->tokens);
    }
  }
  for (const TokenId token : ranked->tokens) {
    const double x = std::min(logits[token], std::numeric_limits<float>::max());
    ranked->log_probs.push_back(std::min(0.0, x - ranked->log_sum));
  }
  return true;
}

}  // namespace coppice::sampling
