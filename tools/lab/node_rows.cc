#include "tools/lab/node_rows.h"

#include <algorithm>

#include "base/deterministic_math.h"
#include "decoding/drafter.h"
#include "decoding/rows/target_row.h"
#include "decoding/rows/warp.h"
#include "decoding/theory/optimal_acceptance.h"

namespace coppice::lab {
namespace {

double Probability(const decoding::Distribution& row, TokenId token) {
  const auto found = std::lower_bound(row.tokens.begin(), row.tokens.end(), token);
  if (found == row.tokens.end() || *found != token) return 0;
  return Exp(row.log_probs[found - row.tokens.begin()]);
}

}  // namespace

NodeRows NodeRowsAt(const PathRows& rows, int position, const decoding::DecodingParams& params) {
  const decoding::Distribution p =
      decoding::WarpRow(rows.TargetRow(position), decoding::WarpAt(params, position));
  const decoding::Distribution q = decoding::DraftRow(rows.DraftRow(position), params, position);
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
  return {decoding::OptimalAcceptanceIid(node.p, node.q, drafts).alpha,
          decoding::OptimalAcceptanceWithoutReplacement(node.p, node.q, drafts).alpha};
}

double PathLogLikelihood(const PathRows& rows, absl::Span<const TokenId> tokens) {
  double sum = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto row = rows.TargetRow(static_cast<int>(i));
    const std::vector<double> wide(row.begin(), row.end());
    sum += wide[tokens[i]] - decoding::LogSumExp(wide);
  }
  return sum;
}

}  // namespace coppice::lab
