// The generated token paths of one sequence as a trie. Decoder and KV bookkeeping identify a path
// by its PathId. Unlike a TokenTree, it lives as long as its request: it only grows, finds children
// by token, and keeps hash, length and format state beside every token. The prompt is also a path,
// because it has these values too.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "base/output_format.h"
#include "base/types.h"

namespace coppice::decoding {

enum class PathId : int32_t {};        // 0, 1, ... in the order in which paths are made
inline constexpr PathId kRootPath{0};  // the prompt itself, no generated token
inline constexpr PathId kNoPath{-1};   // none
constexpr int32_t Index(PathId path) { return static_cast<int32_t>(path); }

class PathTree {
 public:
  // format: of the output; nullptr: none.
  explicit PathTree(std::shared_ptr<const OutputFormat> format = nullptr);
  // The child of `parent` by `token`; created if it does not exist.
  PathId Extend(PathId parent, TokenId token);
  // The child of `parent` by `token`; kNoPath if it does not exist.
  PathId Find(PathId parent, TokenId token) const;
  PathId parent(PathId path) const { return At(path).parent; }  // kNoPath for the root
  TokenId token(PathId path) const { return At(path).token; }
  uint64_t hash(PathId path) const { return At(path).hash; }  // H(path), docs/algorithms.md 2
  int length(PathId path) const { return At(path).length; }   // generated tokens
  // The state of the output's format after the path. 0: no format.
  OutputFormat::State format_state(PathId path) const { return At(path).format_state; }
  // The tokens of the path in order, starting at index `from`.
  std::vector<TokenId> Tokens(PathId path, size_t from = 0) const;
  // The longest path that is an ancestor of (or equal to) every one of `paths`; kRootPath when
  // empty.
  PathId CommonAncestor(absl::Span<const PathId> paths) const;
  int size() const { return static_cast<int>(nodes_.size()); }

 private:
  struct Node {
    PathId parent;
    TokenId token;
    int32_t length;
    uint64_t hash;
    OutputFormat::State format_state;
  };
  const Node& At(PathId path) const { return nodes_[Index(path)]; }

  std::shared_ptr<const OutputFormat> format_;
  std::vector<Node> nodes_;
  absl::flat_hash_map<std::pair<PathId, TokenId>, PathId> children_;
};

}  // namespace coppice::decoding
