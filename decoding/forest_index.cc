#include "decoding/forest_index.h"

namespace coppice {

ForestIndex::ForestIndex(const DraftForest& forest)
    : forest_(forest),
      first_child_(forest.num_roots + forest.size(), -1),
      next_sibling_(forest.size(), -1) {
  for (int node = forest.size(); node-- > 0;) {
    const int parent = ParentRow(node);
    next_sibling_[node] = first_child_[parent];
    first_child_[parent] = node;
  }
}

int ForestIndex::ParentRow(int node) const {
  const int parent = forest_.parent[node];
  return parent < 0 ? -1 - parent : forest_.num_roots + parent;
}

int ForestIndex::Child(int row, TokenId token) const {
  if (row < 0) return -1;
  for (int node = first_child_[row]; node >= 0; node = next_sibling_[node]) {
    if (forest_.token[node] == token) return forest_.num_roots + node;
  }
  return -1;
}

}  // namespace coppice
