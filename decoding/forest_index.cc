#include "decoding/forest_index.h"

#include <algorithm>
#include <numeric>

namespace coppice::decoding {

ForestIndex::ForestIndex(const DraftForest& forest)
    : forest_(forest), begin_(forest.num_roots + forest.size() + 1, 0), children_(forest.size()) {
  for (int node = 0; node < forest.size(); ++node) ++begin_[ParentRow(node) + 1];
  std::partial_sum(begin_.begin(), begin_.end(), begin_.begin());
  std::vector<int32_t> end = begin_;
  for (int node = 0; node < forest.size(); ++node) children_[end[ParentRow(node)]++] = node;
  for (size_t row = 0; row + 1 < begin_.size(); ++row) {
    std::sort(children_.begin() + begin_[row], children_.begin() + begin_[row + 1],
              [&](int32_t a, int32_t b) { return forest.token[a] < forest.token[b]; });
  }
}

int ForestIndex::ParentRow(int node) const { return forest_.RowOf(forest_.parent[node]); }

int ForestIndex::Child(int row, TokenId token) const {
  if (row < 0) return -1;
  const auto end = children_.begin() + begin_[row + 1];
  const auto child = std::lower_bound(
      children_.begin() + begin_[row], end, token,
      [this](int32_t node, TokenId wanted) { return forest_.token[node] < wanted; });
  return child != end && forest_.token[*child] == token ? forest_.num_roots + *child : -1;
}

}  // namespace coppice::decoding
