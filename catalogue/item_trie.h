// The token sequences of a catalogue as a trie in level order: the nodes of a level follow each
// other, the children of a node are contiguous and ascend by token. A node has 8 bytes, and a bit
// that says whether an item ends there. Items are numbered in the order of their last nodes, so no
// table leads from node to item, and the items below a node are one range of numbers per level.
// Immutable; any thread.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/types.h"
#include "catalogue/file_header.h"

namespace coppice::catalogue {

class ItemTrie {
 public:
  struct Node {
    uint32_t token = 0;
    uint32_t first_child = 0;  // where its children begin; they end where the next node's begin
  };
  using Place = int32_t;  // of a node
  static constexpr Place kRoot = 0;
  static constexpr Place kNowhere = -1;
  static constexpr int kMostTokens = 255;  // of an item

  // nodes: [n + 1], the last one only ends the children of the one before. ends: [(n + 63) / 64].
  // InvalidArgument says what is wrong; after that no place and no item leads out of the arrays.
  static absl::StatusOr<ItemTrie> Make(std::vector<Node> nodes, std::vector<uint64_t> ends,
                                       int vocab_size, ItemEnd end);

  int64_t size() const { return static_cast<int64_t>(nodes_.size()) - 1; }
  int64_t items() const { return ranks_.back(); }
  int longest() const { return static_cast<int>(level_begin_.size()) - 2; }  // tokens of an item
  // First place of a level; level 0 is the root. level <= longest() + 1, whose begin is size().
  Place LevelBegin(int level) const { return level_begin_[level]; }
  // Some item has more tokens after this one, or has this one at all.
  bool IsFollowed(TokenId token) const { return Bit(followed_, token); }
  bool IsUsed(TokenId token) const { return Bit(used_, token); }

  TokenId token(Place node) const { return static_cast<TokenId>(nodes_[node].token); }
  Place ChildrenBegin(Place node) const { return static_cast<Place>(nodes_[node].first_child); }
  Place ChildrenEnd(Place node) const { return ChildrenBegin(node + 1); }
  Place Child(Place node, TokenId token) const;  // kNowhere: none
  Place Find(absl::Span<const TokenId> tokens) const;
  Place Parent(Place node) const;  // node > 0
  std::vector<TokenId> Path(Place node) const;

  bool IsItem(Place node) const { return (ends_[node / 64] >> (node % 64) & 1) != 0; }
  // The number of items that end at a place before this one. node <= size().
  int64_t ItemsBefore(Place node) const {
    const uint64_t below = (uint64_t{1} << (node % 64)) - 1;
    return ranks_[node / 64] + (below == 0 ? 0 : std::popcount(ends_[node / 64] & below));
  }
  Place PlaceOf(int64_t item) const;  // 0 <= item < items()
  // visit(begin, end) for the items of each level below the node, itself included, while it
  // returns true. False when a call returned false.
  template <typename Visit>
  bool VisitItems(Place node, const Visit& visit) const {
    for (Place begin = node, end = node + 1; begin < end;
         begin = ChildrenBegin(begin), end = ChildrenBegin(end)) {
      if (!visit(ItemsBefore(begin), ItemsBefore(end))) return false;
    }
    return true;
  }

 private:
  ItemTrie() = default;
  absl::Status Check(int vocab_size, ItemEnd end);
  static bool Bit(const std::vector<bool>& bits, TokenId token) {
    return token >= 0 && static_cast<size_t>(token) < bits.size() && bits[token];
  }

  std::vector<Node> nodes_;     // [size + 1]
  std::vector<uint64_t> ends_;  // [size / 64 + 1]
  std::vector<int32_t> ranks_;  // [words + 1] items that end before the word
  std::vector<Place> level_begin_;
  std::vector<bool> followed_, used_;  // [vocab_size]
};
static_assert(sizeof(ItemTrie::Node) == 8);

}  // namespace coppice::catalogue
