#include "lab/experiments/node_rows.h"

#include <algorithm>

#include "decoding/drafter.h"
#include "lab/theory/optimal_acceptance.h"
#include "sampling/deterministic_math.h"
#include "sampling/logits_processing.h"
#include "sampling/target_row.h"

namespace coppice::lab {
namespace {

double Probability(const sampling::Distribution& row, TokenId token) {
  const auto found = std::lower_bound(row.tokens.begin(), row.tokens.end(), token);
  if (found == row.tokens.end() || *found != token) return 0;
  return sampling::Exp(row.log_probs[found - row.tokens.begin()]);
}

}  // namespace

NodeRows NodeRowsAt(const PathRows& rows, int position, const decoding::DecodingParams& params) {
  const sampling::Distribution p =
      sampling::ProcessRow(rows.TargetRow(position), sampling::SamplingAt(params, position));
  const sampling::Distribution q = decoding::DraftRow(rows.DraftRow(position), params, position);
  std::vector<TokenId> tokens = p.tokens;
  tokens.insert(tokens.end(), q.tokens.begin(), q.tokens.end());
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  NodeRows node;
  for (TokenId token : tokens) {
    node.p.push_back(Probability(p, token));
    node.q.push_back(Probability(q, token));
  }
  return node;
}

NodeOptimum OptimumAt(const NodeRows& node, int drafts) {
  return {lab::OptimalAcceptanceIid(node.p, node.q, drafts).alpha,
          lab::OptimalAcceptanceWithoutReplacement(node.p, node.q, drafts).alpha};
}

double PathLogLikelihood(const PathRows& rows, absl::Span<const TokenId> tokens) {
  double sum = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto row = rows.TargetRow(static_cast<int>(i));
    const std::vector<double> wide(row.begin(), row.end());
    sum += wide[tokens[i]] - sampling::LogSumExp(wide);
  }
  return sum;
}

}  // namespace coppice::lab
