// Static draft trees (docs/algorithms.md 4.6): how many children each node of a draft tree has,
// before any token is known. Parsed when a request is checked (option draft_tree) and by the
// drafter. Its node count bounds the KV need of a sequence. Values; pure functions.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace coppice::decoding {

inline constexpr int kMaxTopologyNodes = 512;
inline constexpr int kMaxTopologyDepth = 64;

// Nodes level by level: level 0 is the root alone, the nodes of level l + 1 are the children of
// level l, parent by parent. A node's children are numbered in the order in which they are drawn.
struct Topology {
  std::vector<std::vector<int>> children;  // [levels that are listed][nodes of the level]
  bool open = false;  // below the listed levels each node has one child, to any depth

  // Children of node `position` of level `level`.
  int Children(int level, int position) const;
  // Number of its first child among the nodes of level + 1.
  int FirstChild(int level, int position) const;
  int depth() const { return static_cast<int>(children.size()); }  // number of listed levels
  std::vector<int> LayerSizes() const;  // [depth()] nodes of each listed layer
  int MostChildren() const;             // the most children of any node
  // For the tree cut to `depth` layers (an open tree goes that deep): nodes below the root, and
  // nodes of the widest layer.
  int Nodes(int depth) const;
  int Widest(int depth) const;
};

// "": `width` children below the root, then one child each; "chain": that of width 1; "eagle": the
// sparse tree of EAGLE; "4-2-1-1": this many children for every node of each level. InvalidArgument
// naming draft_tree: anything else, or more than kMaxTopologyNodes nodes or kMaxTopologyDepth
// levels.
absl::StatusOr<Topology> ParseTopology(absl::string_view text, int width = 1);

}  // namespace coppice::decoding
