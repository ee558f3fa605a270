#include "decoding/tree/greedy_multi_draft.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "sampling/logits_processing.h"

namespace coppice::decoding {

std::vector<TokenId> MostLikelyTokens(const sampling::Distribution& row, int count) {
  std::vector<int> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  const int kept = std::min(count, static_cast<int>(order.size()));
  std::partial_sort(order.begin(), order.begin() + kept, order.end(), [&](int a, int b) {
    return row.log_probs[a] != row.log_probs[b] ? row.log_probs[a] > row.log_probs[b] : a < b;
  });
  std::vector<TokenId> tokens;
  tokens.reserve(kept);
  for (int i = 0; i < kept; ++i) tokens.push_back(row.tokens[order[i]]);
  return tokens;
}

GreedyProposal SplitProposal(const sampling::Distribution& q, int n) {
  GreedyProposal proposal;
  proposal.top = MostLikelyTokens(q, n - 1);
  for (int i = 0; i < q.size(); ++i) {
    if (FindDraft(proposal.top, q.tokens[i]) >= 0) continue;
    proposal.rest.tokens.push_back(q.tokens[i]);
    proposal.rest.log_probs.push_back(q.log_probs[i]);
  }
  const double log_mass = sampling::LogSumExp(proposal.rest.log_probs);
  for (double& log_prob : proposal.rest.log_probs) log_prob = std::min(0.0, log_prob - log_mass);
  return proposal;
}

// q' is 0 on T, so the residual keeps the whole mass of p on T. A draw that hits T is an accepted
// draft.
NodeVerdict VerifyGreedy(const NodeInput& input, ChoiceSource* choices) {
  if (input.drafts.size() == input.q->size()) return SampleAndCheck(input, choices);
  const GreedyProposal proposal = SplitProposal(*input.q, static_cast<int>(input.drafts.size()));
  const auto drawn = std::find_if(input.drafts.begin(), input.drafts.end(), [&](TokenId draft) {
    return FindDraft(proposal.top, draft) < 0;
  });
  COPPICE_CHECK(drawn != input.drafts.end());
  const int j = static_cast<int>(drawn - input.drafts.begin());
  NodeTrial trial(input, proposal.rest, choices);
  if (trial.Accepts(j)) return trial.Accepted(j);
  trial.Reject();
  return trial.DrawRest();
}

}  // namespace coppice::decoding
