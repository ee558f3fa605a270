// What a rejection verifier needs beyond DraftForest::Validate: proposals by node, and a check that
// every draw can have come from them. Called by the verifiers of docs/algorithms.md 5.1-5.5 and
// beam recursive rejection. Pure.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "decoding/forest.h"

namespace coppice::decoding {

// How the draws of a layer were made.
enum class DrawKind {
  kIndependent,          // iid from the joint proposal of the layer: copies are listed
  kDistinct,             // without replacement from the joint proposal of the layer
  kIndependentChildren,  // iid from each parent's own row: copies are listed; weights are not read
  kDistinctChildren,     // without replacement from each parent's own row; weights are not read
};

// Checks that each draw has a proposal that lists its token, each node was drawn, draws without
// replacement differ, and the weights of each layer's joint proposal sum to 1. InvalidArgument
// names the layer or the node.
absl::Status CheckSentDraws(const DraftForest& forest, DrawKind draws);

// Proposals by row (roots first, then nodes). *forest must outlive it.
class ProposalIndex {
 public:
  explicit ProposalIndex(const DraftForest& forest);
  const Proposal* Find(int row) const { return by_row_[row]; }

 private:
  std::vector<const Proposal*> by_row_;
};

// Rows of the parents of a layer: [ParentRowsBegin(layer), ParentRowsEnd(layer)).
int ParentRowsBegin(const DraftForest& forest, int layer);
int ParentRowsEnd(const DraftForest& forest, int layer);

}  // namespace coppice::decoding
