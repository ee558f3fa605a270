// What beam search ranks of a row whose parameters leave the logits as they are: its best tokens,
// or those that a format allows where these are few. The row is read where it lies and is not
// copied: its log-sum-exp, and the logits of the tokens that are listed. The same bits as those of
// the whole row. Called by processed_row, by any thread. Pure functions.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "base/output_format.h"
#include "base/types.h"

namespace coppice::sampling {

struct RankedTokens {
  // Nats; -inf: no token that could be listed is finite, and nothing is.
  double log_sum = 0;
  std::vector<TokenId> tokens;    // ascending
  std::vector<double> log_probs;  // nats
};

// What is listed of a row.
struct RankQuery {
  // Every token that can be among the `count` best, or that rounding in a sum could tie with them.
  size_t count = 0;
  // And no token whose log-probability is lower by more than rounding in a sum; nats.
  double least = 0;
  // nullptr: all tokens. Else one with a list of its tokens.
  const AllowedTokens* allowed = nullptr;
};

// logits [vocab]; NaN counts as -inf. `maxima` is working space. False if the only tokens that the
// query leaves have a probability of 0; then *ranked has nothing but the sum.
bool RankLogits(absl::Span<const float> logits, const RankQuery& query, std::vector<float>* maxima,
                RankedTokens* ranked);

}  // namespace coppice::sampling
