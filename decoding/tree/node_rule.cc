#include "decoding/tree/node_rule.h"

#include <algorithm>

#include "sampling/deterministic_math.h"

namespace coppice::decoding {
namespace {

// Drafts without replacement are read while at least this mass of the proposal is left. Below it,
// entries underflow in f64. The distribution allows this, because stopping depends only on the
// drafts already read.

LayerDistribution ProposalDistribution(const LayerDistribution& p,
                                       const sampling::Distribution& proposal, double scale) {
  LayerDistribution distribution;
  distribution.rows.resize(1);
  distribution.rows[0].hash = p.rows[0].hash;
  distribution.rows[0].log_weight = scale == 1 ? 0.0 : sampling::Log(scale);
  distribution.rows[0].sparse = &proposal;
  return distribution;
}

}  // namespace

int FindDraft(absl::Span<const TokenId> drafts, TokenId token) {
  const auto found = std::find(drafts.begin(), drafts.end(), token);
  return found == drafts.end() ? -1 : static_cast<int>(found - drafts.begin());
}

NodeTrial::NodeTrial(const NodeInput& input, const sampling::Distribution& proposal,
                     ChoiceSource* choices, double scale)
    : input_(input),
      proposal_(ProposalDistribution(*input.p, proposal, scale)),
      a_(*input.p, proposal_),
      choices_(choices) {
  verdict_.min_margin = sampling::kInfinity;
}

bool NodeTrial::Accepts(int j) {
  const Entry d{0, input_.drafts[j]};
  const Coin coin = choices_->Accept(LayerHash(*input_.p), static_cast<uint32_t>(j), a_.Target(d),
                                     a_.Proposal(d));
  ++verdict_.tested;
  CountMargin(coin.margin);
  return coin.accepted;
}

bool NodeTrial::RemoveFromProposal(TokenId token) {
  a_.RemoveProposal({0, token});
  const sampling::Distribution& q = *proposal_.rows[0].sparse;
  const absl::Span<const TokenId> seen =
      input_.drafts.subspan(0, FindDraft(input_.drafts, token) + 1);
  double rest = 0;
  for (int i = 0; i < q.size(); ++i) {
    if (FindDraft(seen, q.tokens[i]) < 0) rest += sampling::Exp(q.log_probs[i]);
  }
  if (rest <= sampling::kLeastMass) return false;
  a_.NormaliseProposal(rest);
  return true;
}

void NodeTrial::CountMargin(double margin) {
  verdict_.min_margin = std::min(verdict_.min_margin, margin);
}

NodeVerdict NodeTrial::Accepted(int j) const {
  NodeVerdict verdict = verdict_;
  verdict.token = input_.drafts[j];
  verdict.draft = j;
  return verdict;
}

NodeVerdict NodeTrial::DrawRest() {
  const Draw draw = choices_->Choose(sampling::Domain::kResidual, /*slot=*/0, a_.Normalised());
  CountMargin(draw.margin);
  NodeVerdict verdict = verdict_;
  verdict.token = draw.entry.token;
  verdict.draft = FindDraft(input_.drafts, draw.entry.token);
  ++verdict.residual_draws;
  return verdict;
}

// A copy of a rejected draft is rejected too, since its residual is 0.
NodeVerdict VerifyRrsIid(const NodeInput& input, ChoiceSource* choices) {
  NodeTrial trial(input, *input.q, choices);
  for (int j = 0; j < input.drafts.size(); ++j) {
    if (trial.Accepts(j)) return trial.Accepted(j);
    trial.Reject();
  }
  return trial.DrawRest();
}

NodeVerdict VerifyRrsWithoutReplacement(const NodeInput& input, ChoiceSource* choices) {
  NodeTrial trial(input, *input.q, choices);
  for (int j = 0; j < input.drafts.size(); ++j) {
    if (trial.Accepts(j)) return trial.Accepted(j);
    trial.Reject();
    if (!trial.RemoveFromProposal(input.drafts[j])) break;
  }
  return trial.DrawRest();
}

NodeVerdict SampleAndCheck(const NodeInput& input, ChoiceSource* choices) {
  const Draw draw = choices->Choose(sampling::Domain::kDirect, /*slot=*/0, *input.p);
  NodeVerdict verdict;
  verdict.token = draw.entry.token;
  verdict.draft = FindDraft(input.drafts, draw.entry.token);
  verdict.min_margin = draw.margin;
  return verdict;
}

}  // namespace coppice::decoding
