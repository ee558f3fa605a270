// The raw log-probabilities of one sequence's tokens, kept path by path until they are reported
// (`logprobs`), and those of its prompt (`echo`). They are read from the rows that decide the
// tokens, in the same step; no row is kept for them. Owned by the sequence; thread-compatible.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/host_threads.h"
#include "decoding/forest.h"
#include "decoding/path_tree.h"
#include "decoding/round_forest.h"
#include "kernels/backend.h"
#include "plan/token_score.h"
#include "sampling/raw_scores.h"

namespace coppice::worker {

// Reads the scores of a row of one round, numbered as in DraftForest. Any thread.
class ScoredRows {
 public:
  virtual ~ScoredRows() = default;
  virtual sampling::RawScores Scores(int row, int top) const = 0;
};

class TokenScores {
 public:
  // Alternatives of each token; nullopt: no scores are wanted.
  std::optional<int> top;
  bool of_prompt = false;  // also scores the prompt's tokens; needs top

  // Records the tokens by which a round has extended the tree: each is scored by the row of its
  // parent, which is one of the round. Internal: a path was extended without a row.
  absl::Status RecordRound(const decoding::RoundStart& start, const decoding::DraftForest& forest,
                           const decoding::PathTree& paths, const ScoredRows& rows,
                           HostThreads* threads);
  // The scores of the tokens of a path of the tree, without the first `from`.
  std::vector<TokenScore> Of(const decoding::PathTree& paths, absl::Span<const TokenId> tokens,
                             size_t from = 0) const;

 private:
  std::vector<double> log_prob_;  // [paths] log-probability of the last token; nats
  // [paths] alternatives in the place of its children; empty if it has none.
  std::vector<Alternatives> below_;
};

// The score of `token` in the row of its predecessor, at `need` of the step. InvalidArgument names
// a logit that is NaN or +inf.
absl::StatusOr<TokenScore> ScorePromptToken(const kernels::StepRows& step, int need, TokenId token,
                                            int top);

}  // namespace coppice::worker
