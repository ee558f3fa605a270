// Finds children in a draft forest by row number (roots first, then nodes), for the verifiers.
// Built once per round. A lookup is logarithmic in the number of siblings.
#pragma once

#include <vector>

#include "decoding/forest.h"

namespace coppice::decoding {

class ForestIndex {
 public:
  // *forest must outlive the index.
  explicit ForestIndex(const DraftForest& forest);
  // Row of the child of `row` by `token`, or -1. row may be -1.
  int Child(int row, TokenId token) const;

 private:
  const DraftForest& forest_;
  std::vector<int32_t> begin_;    // [rows + 1] the children of row r begin at children_[begin_[r]]
  std::vector<NodeId> children_;  // [nodes] by parent row, then by token
};

}  // namespace coppice::decoding
