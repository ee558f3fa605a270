// A sparse next-token distribution, the Row of docs/algorithms.md 0. Tokens ascending, only tokens
// of probability > 0, log-probabilities <= 0 in nats, sum of exp = 1 to 1e-12.
#pragma once

#include <vector>

#include "base/types.h"

namespace coppice::sampling {

struct Distribution {
  std::vector<TokenId> tokens;    // ascending
  std::vector<double> log_probs;  // nats, same length
  size_t size() const { return tokens.size(); }
};

}  // namespace coppice::sampling
