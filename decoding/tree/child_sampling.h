// How the children of one node of a draft tree are drawn from the draft's row there,
// docs/algorithms.md 4.2-4.5. Each rule of decoding/tree/node_rule.h is exact for only one of these
// distributions. Called by the drafter of trees, and by the verifier to check what was sent.
// Pure except for the ChoiceSource.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "decoding/forest.h"
#include "decoding/joint/choice_source.h"
#include "sampling/distribution.h"

namespace coppice::decoding {

enum class ChildSampling {
  kIid,                 // 4.1, 4.2 with replacement, 4.3, 4.8: copies are listed
  kWithoutReplacement,  // 4.2 without replacement
  kMostLikely,          // 4.2 deterministic: the tree alone is sent
  kGreedy,              // 4.4
  kSpecHub,             // 4.5: at most two children
};

// The children of a node with draft row q and path hash `hash`, in drawing order; n >= 1 of them,
// fewer when q has fewer tokens and `kind` draws distinct ones.
std::vector<TokenId> DrawChildren(ChildSampling kind, const sampling::Distribution& q,
                                  uint64_t hash, int n, ChoiceSource* choices);

// Checks what a verifier relies on beyond DraftForest::Validate: that the forest's draws can have
// come from `kind`. InvalidArgument names the node. A forest that fails is ignored.
absl::Status CheckChildren(ChildSampling kind, const DraftForest& forest);

// Tokens drawn below a row of the forest (roots first, then nodes) in layer `layer`, drawing
// order, copies listed.
std::vector<TokenId> DraftsBelow(const DraftForest& forest, int row, int layer);

}  // namespace coppice::decoding
