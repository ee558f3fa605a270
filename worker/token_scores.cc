#include "worker/token_scores.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "decoding/forest_index.h"
#include "sampling/logit_check.h"

namespace coppice::worker {
namespace {

absl::Status BadLogit(TokenId token, float logit) {
  return absl::InvalidArgumentError(
      absl::StrCat("target logits of a prompt row: token ", token, " is ", logit));
}

// The rows of a round by path: those of its roots, and of the paths that became forest nodes.
class RowsOfPaths {
 public:
  RowsOfPaths(const decoding::RoundStart& start, const decoding::DraftForest& forest,
              const decoding::PathTree& paths)
      : start_(start), index_(forest) {
    for (int i = start.paths; i < paths.size(); ++i) {
      const decoding::PathId path{i};
      of_new_.push_back(index_.Child(Of(paths.parent(path)), paths.token(path)));
    }
  }
  // -1: the path has no row in this round.
  int Of(decoding::PathId path) const {
    if (Index(path) >= start_.paths) return of_new_[Index(path) - start_.paths];
    const auto root = std::find(start_.roots.begin(), start_.roots.end(), path);
    return root == start_.roots.end() ? -1 : static_cast<int>(root - start_.roots.begin());
  }

 private:
  const decoding::RoundStart& start_;
  const decoding::ForestIndex index_;
  std::vector<int> of_new_;  // [new paths]; parents come before children
};

}  // namespace

absl::Status TokenScores::RecordRound(const decoding::RoundStart& start,
                                      const decoding::DraftForest& forest,
                                      const decoding::PathTree& paths, const ScoredRows& rows,
                                      HostThreads* threads) {
  log_prob_.resize(paths.size(), 0.0);
  below_.resize(paths.size());
  const RowsOfPaths row_of(start, forest, paths);
  // New paths by parent: each parent's row is read once.
  std::vector<decoding::PathId> order;
  for (int i = start.paths; i < paths.size(); ++i) {
    const decoding::PathId path{i};
    if (row_of.Of(paths.parent(path)) < 0) {
      return absl::InternalError(absl::StrCat("path ", i, " was extended without a row"));
    }
    order.push_back(path);
  }
  std::stable_sort(order.begin(), order.end(), [&](decoding::PathId a, decoding::PathId b) {
    return paths.parent(a) < paths.parent(b);
  });
  std::vector<size_t> begin;  // of each parent's children in `order`
  for (size_t i = 0; i < order.size(); ++i) {
    if (i == 0 || paths.parent(order[i]) != paths.parent(order[i - 1])) begin.push_back(i);
  }
  begin.push_back(order.size());
  threads->RunJobs(static_cast<int>(begin.size()) - 1, [&](int job) {
    const decoding::PathId parent = paths.parent(order[begin[job]]);
    const sampling::RawScores scores = rows.Scores(row_of.Of(parent), *top);
    below_[Index(parent)] = scores.top();
    for (size_t i = begin[job]; i < begin[job + 1]; ++i)
      log_prob_[Index(order[i])] = scores.LogProb(paths.token(order[i]));
  });
  return absl::OkStatus();
}

std::vector<TokenScore> TokenScores::Of(const decoding::PathTree& paths,
                                        absl::Span<const TokenId> tokens, size_t from) const {
  std::vector<TokenScore> scores;
  decoding::PathId path = decoding::kRootPath;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const decoding::PathId parent = path;
    path = paths.Find(parent, tokens[i]);
    COPPICE_CHECK_MSG(path != decoding::kNoPath, "tokens that are no path of the tree");
    if (i >= from) scores.push_back({log_prob_[Index(path)], below_[Index(parent)]});
  }
  return scores;
}

absl::StatusOr<TokenScore> ScorePromptToken(const kernels::StepRows& step, int need, TokenId token,
                                            int top) {
  const auto score = [&](const sampling::RawScores& scores) {
    return TokenScore{scores.LogProb(token), scores.top()};
  };
  if (const CandidateRow* listed = step.Listed(need)) {
    if (listed->bad_token >= 0) return BadLogit(listed->bad_token, listed->bad_logit);
    return score(sampling::RawScores(*listed, top));
  }
  const absl::Span<const float> logits = step.Whole(need);
  if (const int bad = sampling::FirstBadLogit(logits); bad >= 0) return BadLogit(bad, logits[bad]);
  return score(sampling::RawScores(logits, top));
}

}  // namespace coppice::worker
