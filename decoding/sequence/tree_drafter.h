// The common part of the drafters that send only the tree: the current level, and how its best
// children become the next layer of the forest. Base of the Gumbel coupling and search drafters.
// Thread-compatible.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "decoding/draft_ends.h"
#include "decoding/drafter.h"

namespace coppice::decoding {

class TreeDrafter : public Drafter {
 public:
  TreeDrafter(const DecodingParams& params, const DraftState& state, int width);

  absl::Span<const TreePlace> frontier() const override { return frontier_; }
  const DraftForest& forest() const override { return forest_; }

 protected:
  struct Node {
    uint64_t hash;
    DraftEnds::State format_state;
    double score;  // dls: draft log-probability below the root plus the root's ls, nats
    double cost;   // distance from the prediction, nats; 0 for a predicted node
  };
  struct Child {
    double cost;  // rank: least first, ties in order of listing
    int node;     // index into level()
    TokenId token;
    double score;    // dls
    double penalty;  // becomes Node::cost
  };

  // Nodes of the current level, in the order of frontier().
  const std::vector<Node>& level() const { return level_; }
  const DecodingParams& params() const { return params_; }
  int width() const { return width_; }
  // The child of a node of level() ends its path.
  bool Ends(int node, TokenId token) const { return ends_.Has(level_[node].format_state, token); }
  // Appends the `width` cheapest children as the next layer, in increasing cost. Without children
  // the frontier becomes empty. A node that ends its path is not part of the next level.
  // Returns the children in that order.
  std::vector<Child> AppendLayer(absl::Span<const Child> children);

 private:
  DecodingParams params_;
  const DraftEnds ends_;
  int width_;
  DraftForest forest_;
  std::vector<Node> level_;
  std::vector<TreePlace> frontier_;
};

}  // namespace coppice::decoding
