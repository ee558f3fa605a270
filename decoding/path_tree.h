// The generated token paths of one sequence as a trie. Decoder, KV bookkeeping and messages
// identify a path by its PathId.
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

using PathId = int32_t;
inline constexpr PathId kRootPath = 0;  // the prompt itself, no generated token

class PathTree {
 public:
  // format: of the output; nullptr: none.
  explicit PathTree(std::shared_ptr<const OutputFormat> format = nullptr);
  // The child of `parent` by `token`; created if it does not exist.
  PathId Extend(PathId parent, TokenId token);
  // The child of `parent` by `token`; -1 if it does not exist.
  PathId Find(PathId parent, TokenId token) const;
  PathId parent(PathId path) const { return nodes_[path].parent; }  // -1 for the root
  TokenId token(PathId path) const { return nodes_[path].token; }
  uint64_t hash(PathId path) const { return nodes_[path].hash; }  // H(path), docs/algorithms.md 2
  int length(PathId path) const { return nodes_[path].length; }   // generated tokens
  // The state of the output's format after the path. 0: no format.
  OutputFormat::State format_state(PathId path) const { return nodes_[path].format_state; }
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
  std::shared_ptr<const OutputFormat> format_;
  std::vector<Node> nodes_;
  absl::flat_hash_map<std::pair<PathId, TokenId>, PathId> children_;
};

}  // namespace coppice::decoding
