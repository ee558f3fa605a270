#include "decoding/lossy/mjsd.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "decoding/lossy/path_decoder.h"
#include "sampling/deterministic_math.h"
#include "sampling/target_row.h"

namespace coppice::decoding {
namespace {

// log q(token) of the proposal at `place`; -inf if it was not sent or does not list the token.
double LogProposal(const DraftForest& forest, TreePlace place, TokenId token) {
  for (const Proposal& proposal : forest.proposals) {
    if (proposal.place != place) continue;
    const int at = FindToken(proposal.row, token);
    return at < 0 ? sampling::kLogZero : proposal.row.log_probs[at];
  }
  return sampling::kLogZero;
}

class MjsdDecoder : public PathDecoder {
 public:
  MjsdDecoder(const DecodingParams& params, std::shared_ptr<ChoiceSource> choices)
      : PathDecoder(params, std::move(choices)),
        log_threshold_(sampling::Log(params.mjsd_threshold)),
        kept_row_(LikelihoodParams(params)),
        later_row_(LikelihoodParams(params)) {}

 private:
  Kept Keep(const DraftForest& forest, absl::Span<const TokenId> path,
            sampling::RowSource* rows) override;

  double log_threshold_;              // log tau, -inf for tau = 0
  sampling::ProcessedRow kept_row_;   // the row after the longest prefix that has passed
  sampling::ProcessedRow later_row_;  // the row after the drafts beyond it
};

// eta = the longest prefix with min(0, lp - lq) > log tau, even if a shorter one fails.
PathDecoder::Kept MjsdDecoder::Keep(const DraftForest& forest, absl::Span<const TokenId> path,
                                    sampling::RowSource* rows) {
  if (!CheckMjsdForest(forest).ok()) path = {};
  Kept kept;
  kept.next = &kept_row_;
  kept_row_.Read(rows, 0, PathAfter({}));
  std::vector<double> scores;
  const sampling::ProcessedRow* row = &kept_row_;
  double lp = 0, lq = 0;
  for (int i = 0; i < static_cast<int>(path.size()); ++i) {
    const double log_prob = row->LogProb(path[i]);
    if (log_prob == sampling::kLogZero) break;  // no longer prefix can pass
    lp += log_prob;
    lq += LogProposal(forest, forest.parent[i], path[i]);
    scores.push_back(row->Find(path[i]).score_log_prob);
    const bool passes = std::min(0.0, lp - lq) > log_threshold_;
    if (passes) kept.scores = scores;
    const bool last = i + 1 == static_cast<int>(path.size());
    if (last && (!passes || Ends(path.subspan(0, i + 1)))) break;
    sampling::ProcessedRow& next = passes ? kept_row_ : later_row_;
    next.Read(rows, i + 1, PathAfter(path.subspan(0, i + 1)));
    row = &next;
  }
  return kept;
}

}  // namespace

absl::Status CheckMjsdForest(const DraftForest& forest) {
  for (int node = 0; node < forest.size(); ++node) {
    if (LogProposal(forest, forest.parent[node], forest.token[node]) == sampling::kLogZero) {
      return absl::InvalidArgumentError(
          absl::StrCat("mjsd: draft node ", node, " was taken from no proposal that was sent"));
    }
  }
  return absl::OkStatus();
}

std::unique_ptr<BeamDecoder> MakeMjsdDecoder(const DecodingParams& params,
                                             std::shared_ptr<ChoiceSource> choices) {
  return std::make_unique<MjsdDecoder>(params, std::move(choices));
}

std::unique_ptr<BeamDecoder> MakeMjsdDecoder(const DecodingParams& params) {
  return MakeMjsdDecoder(params, std::make_shared<SeededChoices>(params.seed));
}

}  // namespace coppice::decoding
