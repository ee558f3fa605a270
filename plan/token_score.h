// The model's own score of a token of an answer: its raw log-probability (temperature 1, no bias,
// no sampling parameters) and the most likely tokens in its place. Made by the worker
// (worker/token_scores.h), sent to the coordinator, shown as `logprobs`.
#pragma once

#include <utility>
#include <vector>

#include "base/types.h"

namespace coppice {

// Most likely first, ties by the lowest id; nats. Tokens of probability 0 are never listed.
using Alternatives = std::vector<std::pair<TokenId, double>>;

// The most that a request may ask for.
inline constexpr int kMostAlternatives = 20;

struct TokenScore {
  double log_prob = 0;  // nats; -inf: impossible
  Alternatives top;
};

}  // namespace coppice
