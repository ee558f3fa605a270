#include "sampling/raw_scores.h"

#include <algorithm>

#include "sampling/deterministic_math.h"
#include "sampling/logits_processing.h"
#include "sampling/row_kernels.h"

namespace coppice::sampling {
namespace {

// The token's logit, if the list holds it.
const float* FindLogit(const TokenList& list, TokenId token) {
  const auto at = std::lower_bound(list.tokens.begin(), list.tokens.end(), token);
  if (at == list.tokens.end() || *at != token) return nullptr;
  return &list.logits[at - list.tokens.begin()];
}

double LogSumOf(absl::Span<const float> logits) {
  thread_local std::vector<double> x;  // kept, because it is as large as a vocabulary
  x.resize(logits.size());
  WidenRow(logits, x.data());
  return ChunkedLogSumExp(x, nullptr).log;
}

}  // namespace

RowNeed WithRawScores(RowNeed need, int top) {
  if (need.form == RowNeed::Form::kWhole) return need;
  need.raw_sums = true;
  need.raw_top = std::max(need.raw_top, top);
  return need;
}

RowNeed RawScoreNeed(int top) {
  RowNeed need;
  need.form = RowNeed::Form::kRaw;
  need.raw_sums = true;
  need.raw_top = std::max(1, top);
  return need;
}

RawScores::RawScores(absl::Span<const float> logits, int top)
    : RawScores(logits, top, LogSumOf(logits)) {}

RawScores::RawScores(absl::Span<const float> logits, int top, double log_sum)
    : whole_(logits), log_sum_(log_sum) {
  if (top == 0) return;
  std::vector<TokenId> tokens = LargestLogits(logits, top);
  const size_t listed = std::min(tokens.size(), static_cast<size_t>(top));
  std::partial_sort(tokens.begin(), tokens.begin() + listed, tokens.end(),
                    [logits](TokenId a, TokenId b) {
                      return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
                    });
  for (size_t i = 0; i < listed; ++i) top_.emplace_back(tokens[i], Normalised(logits[tokens[i]]));
}

RawScores::RawScores(const CandidateRow& row, int top)
    : listed_(&row), log_sum_(JoinChunks(row.raw_sums).log) {
  if (top == 0) return;
  std::vector<double> x(row.raw.logits.size());
  WidenRow(row.raw.logits, x.data());
  for (const TokenId place : TopTokens(x, top))
    top_.emplace_back(row.raw.tokens[place], Normalised(x[place]));
}

double RawScores::Normalised(double logit) const {
  return logit == kLogZero ? kLogZero : std::min(0.0, logit - log_sum_);
}

double RawScores::LogProb(TokenId token) const {
  if (listed_ == nullptr) {
    return token >= 0 && static_cast<size_t>(token) < whole_.size() ? Normalised(whole_[token])
                                                                    : kLogZero;
  }
  if (const float* logit = FindLogit(listed_->raw, token)) return Normalised(*logit);
  for (const TokenList& list : listed_->lists) {
    if (const float* logit = FindLogit(list, token)) return Normalised(*logit);
  }
  return kLogZero;
}

}  // namespace coppice::sampling
