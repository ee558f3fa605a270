// The model's own log-probabilities of one target row, which answers report as `logprobs`:
// log softmax of the logits, with no bias, no temperature and no cut (docs/algorithms.md 8.1). Read
// from the row as it came, whole or as a candidate list; both give the same bits. Pure.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "plan/candidate_row.h"
#include "plan/step_plan.h"
#include "plan/token_score.h"

namespace coppice::sampling {

// Adds to the need of a decision what RawScores reads: the raw log-sum-exp and the `top` largest
// logits. A whole row has both already.
RowNeed WithRawScores(RowNeed need, int top);
// The need of a row from which nothing is decided: only the scores of the tokens that the caller
// names as its bias.
RowNeed RawScoreNeed(int top);

class RawScores {
 public:
  // top: alternatives listed, fewer when fewer tokens are possible. No logit is NaN or +inf. The
  // row must outlive the scores.
  RawScores(absl::Span<const float> logits, int top);
  // The same, where log_sum, the log-sum-exp of the logits, is known.
  RawScores(absl::Span<const float> logits, int top, double log_sum);
  // The candidate list of a need that WithRawScores or RawScoreNeed has made.
  RawScores(const CandidateRow& row, int top);

  const Alternatives& top() const { return top_; }
  // nats; -inf for a token that no list of the row holds: it cannot have been chosen
  // from it, unless the row bans every token.
  double LogProb(TokenId token) const;

 private:
  double Normalised(double logit) const;

  absl::Span<const float> whole_;
  const CandidateRow* listed_ = nullptr;
  double log_sum_ = 0;
  Alternatives top_;
};

}  // namespace coppice::sampling
