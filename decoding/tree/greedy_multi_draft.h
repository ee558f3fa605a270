// Greedy multi-draft and SpecHub: the n - 1 most likely tokens of q and one drawn from the rest,
// docs/algorithms.md 4.4 and 4.5 (errata E24). Distribution: the target's row; acceptance is
// optimal for this distribution of drafts. Called by decoding/tree/tree_decoder.h and
// decoding/tree/child_sampling.h. Pure except for the ChoiceSource.
#pragma once

#include <vector>

#include "decoding/tree/node_rule.h"

namespace coppice::decoding {

// The `count` most likely tokens of a row, ties to the lower id; fewer when the row is shorter.
std::vector<TokenId> MostLikelyTokens(const sampling::Distribution& row, int count);

struct GreedyProposal {
  std::vector<TokenId> top;     // T, most likely first
  sampling::Distribution rest;  // q' = q without T, renormalised; empty when T covers q
};
// T and q' of n drafts.
GreedyProposal SplitProposal(const sampling::Distribution& q, int n);

// The drafts are T and one more token, or the whole support of q, in any order.
NodeVerdict VerifyGreedy(const NodeInput& input, ChoiceSource* choices);

}  // namespace coppice::decoding
