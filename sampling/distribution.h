// A sparse next-token distribution, the Row of docs/algorithms.md 0. Tokens ascending, only tokens
// of probability > 0, log-probabilities <= 0 in nats, sum of exp = 1 to 1e-12.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "base/types.h"

namespace coppice::sampling {

// What is left of a distribution after removals counts as nothing from this mass down: its entries
// would lose precision in f64. Methods stay exact, because they decide by what was removed alone.
inline constexpr double kLeastMass = 1e-200;

struct Distribution {
  std::vector<TokenId> tokens;    // ascending
  std::vector<double> log_probs;  // nats, same length
  size_t size() const { return tokens.size(); }
};

// nats; -infinity for a token that the row does not have.
inline double LogProbOf(const Distribution& row, TokenId token) {
  const auto at = std::lower_bound(row.tokens.begin(), row.tokens.end(), token);
  return at != row.tokens.end() && *at == token ? row.log_probs[at - row.tokens.begin()]
                                                : -std::numeric_limits<double>::infinity();
}

}  // namespace coppice::sampling
