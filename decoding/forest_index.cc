#include "decoding/forest_index.h"

#include <algorithm>
#include <numeric>

namespace coppice::decoding {

ForestIndex::ForestIndex(const DraftForest& forest)
    : forest_(forest), begin_(forest.rows() + 1, 0), children_(forest.size()) {
  for (const TreePlace parent : forest.parent) ++begin_[forest.RowOf(parent) + 1];
  std::partial_sum(begin_.begin(), begin_.end(), begin_.begin());
  std::vector<int32_t> end = begin_;
  for (int i = 0; i < forest.size(); ++i)
    children_[end[forest.RowOf(forest.parent[i])]++] = NodeId{i};
  for (size_t row = 0; row + 1 < begin_.size(); ++row) {
    std::sort(children_.begin() + begin_[row], children_.begin() + begin_[row + 1],
              [&](NodeId a, NodeId b) { return forest.token[Index(a)] < forest.token[Index(b)]; });
  }
}

int ForestIndex::Child(int row, TokenId token) const {
  if (row < 0) return -1;
  const auto end = children_.begin() + begin_[row + 1];
  const auto child = std::lower_bound(
      children_.begin() + begin_[row], end, token,
      [this](NodeId node, TokenId wanted) { return forest_.token[Index(node)] < wanted; });
  return child != end && forest_.token[Index(*child)] == token ? forest_.RowOf(*child) : -1;
}

}  // namespace coppice::decoding
