// A token tree: tokens below one or more roots. A draft forest is one, and so are the tokens by
// which the roots of a round differ. Nodes come after their parents, in flat arrays. Identifiers
// are types of their own, so that a node and a root cannot be confused.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/types.h"

namespace coppice {

enum class NodeId : int32_t {};  // index into the arrays of its tree
enum class RootId : int32_t {};  // 0, 1, ... num_roots - 1
constexpr int32_t Index(NodeId node) { return static_cast<int32_t>(node); }
constexpr int32_t Index(RootId root) { return static_cast<int32_t>(root); }

// A root or a node of a token tree: what a token comes after. Root 0 by default.
class TreePlace {
 public:
  constexpr TreePlace() = default;
  // NOLINTBEGIN(google-explicit-constructor): every root and every node is a place.
  constexpr TreePlace(RootId root) : code_(-1 - Index(root)) {}
  constexpr TreePlace(NodeId node) : code_(Index(node)) {}
  // NOLINTEND(google-explicit-constructor)
  constexpr bool is_root() const { return code_ < 0; }
  constexpr RootId root() const { return RootId{-1 - code_}; }  // requires a root
  constexpr NodeId node() const { return NodeId{code_}; }       // requires a node
  // How messages and errors write a place: the index of a node, or -1 - root.
  static constexpr TreePlace FromCode(int32_t code) {
    TreePlace place;
    place.code_ = code;
    return place;
  }
  constexpr int32_t code() const { return code_; }
  constexpr auto operator<=>(const TreePlace&) const = default;

 private:
  int32_t code_ = -1;
};

// The entry of `place` in an array over the roots or in an array over the nodes.
template <typename Roots, typename Nodes>
decltype(auto) At(TreePlace place, Roots&& of_root, Nodes&& of_node) {
  return place.is_root() ? of_root[Index(place.root())] : of_node[Index(place.node())];
}

struct TokenTree {
  int num_roots = 0;
  std::vector<TokenId> token;     // [n]
  std::vector<TreePlace> parent;  // [n] a root or an earlier node

  int size() const { return static_cast<int>(token.size()); }
  bool Has(TreePlace place) const {
    return place.is_root() ? Index(place.root()) < num_roots : Index(place.node()) < size();
  }
  // Appends a child of `above`, which the tree must have.
  NodeId Add(TreePlace above, TokenId child) {
    COPPICE_CHECK(Has(above));
    token.push_back(child);
    parent.push_back(above);
    return NodeId{size() - 1};
  }
  // Rows of a step: the roots' rows come first (row r = root r), then node i has row num_roots + i.
  int rows() const { return num_roots + size(); }
  int RowOf(TreePlace place) const {
    return place.is_root() ? Index(place.root()) : num_roots + Index(place.node());
  }
  TreePlace PlaceOf(int row) const {
    return row < num_roots ? TreePlace(RootId{row}) : TreePlace(NodeId{row - num_roots});
  }
  // The root above a place; a root's is itself.
  RootId RootOf(TreePlace place) const {
    while (!place.is_root()) place = parent[Index(place.node())];
    return place.root();
  }
  // Appends the tokens from below the root down to `place`, in order. A root has none.
  void AppendPath(TreePlace place, std::vector<TokenId>* tokens) const;
};

}  // namespace coppice
