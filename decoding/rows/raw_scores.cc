#include "decoding/rows/raw_scores.h"

#include <algorithm>
#include <limits>

#include "decoding/rows/row_kernels.h"
#include "decoding/rows/warp.h"

namespace coppice::decoding {
namespace {

constexpr double kImpossible = -std::numeric_limits<double>::infinity();

// The token's logit, if the list holds it.
const float* FindLogit(const TokenList& list, TokenId token) {
  const auto at = std::lower_bound(list.tokens.begin(), list.tokens.end(), token);
  if (at == list.tokens.end() || *at != token) return nullptr;
  return &list.logits[at - list.tokens.begin()];
}

}  // namespace

RowNeed WithRawScores(RowNeed need, int top) {
  if (need.form == RowNeed::Form::kWhole) return need;
  need.raw_sums = true;
  need.raw_top = top;
  return need;
}

RowNeed RawScoreNeed(int top) {
  RowNeed need;
  need.form = RowNeed::Form::kRaw;
  need.raw_sums = true;
  need.raw_top = std::max(1, top);
  return need;
}

RawScores::RawScores(absl::Span<const float> logits, int top) : whole_(logits) {
  std::vector<double> x(logits.size());
  WidenRow(logits, x.data());
  log_sum_ = ChunkedLogSumExp(x, nullptr).log;
  if (top == 0) return;
  for (const TokenId token : TopTokens(x, top)) top_.emplace_back(token, Normalised(x[token]));
}

RawScores::RawScores(const ListedRow& row, int top)
    : listed_(&row), log_sum_(JoinChunks(row.raw_sums).log) {
  if (top == 0) return;
  std::vector<double> x(row.raw.logits.size());
  WidenRow(row.raw.logits, x.data());
  for (const TokenId place : TopTokens(x, top))
    top_.emplace_back(row.raw.tokens[place], Normalised(x[place]));
}

double RawScores::Normalised(double logit) const {
  return logit == kImpossible ? kImpossible : std::min(0.0, logit - log_sum_);
}

double RawScores::LogProb(TokenId token) const {
  if (listed_ == nullptr) {
    return token >= 0 && static_cast<size_t>(token) < whole_.size() ? Normalised(whole_[token])
                                                                    : kImpossible;
  }
  if (const float* logit = FindLogit(listed_->raw, token)) return Normalised(*logit);
  for (const TokenList& list : listed_->lists) {
    if (const float* logit = FindLogit(list, token)) return Normalised(*logit);
  }
  return kImpossible;
}

}  // namespace coppice::decoding
