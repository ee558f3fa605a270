// The roots of a round as a draft node is told them: the path that all share, and the trie of their
// tokens below it. Called by draft_client for the wire and by coppice-lab, which has none. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "decoding/path_tree.h"

namespace coppice::worker {

struct RootTrie {
  decoding::PathId stable =
      decoding::kRootPath;      // shared by all roots, the last token of each left out
  std::vector<int32_t> parent;  // [entries] an earlier entry, -1 = the stable path
  std::vector<TokenId> token;   // [entries] no two of one parent are equal
  std::vector<int32_t> root;    // [roots] entry of each, never -1
};
// Every root has a token of its own.
RootTrie MakeRootTrie(const decoding::PathTree& paths, absl::Span<const decoding::PathId> roots);

}  // namespace coppice::worker
