// The roots of a round as they are sent to a draft node: the path that all share, and the trie of
// their tokens below it. Called by draft_client, and by coppice-lab, which sends no messages. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "decoding/path_tree.h"

namespace coppice::worker {

struct RootTrie {
  decoding::PathId stable =
      decoding::kRootPath;      // shared by all roots, without the last token of each
  std::vector<int32_t> parent;  // [entries] an earlier entry, -1 = the stable path
  std::vector<TokenId> token;   // [entries] no two of one parent are equal
  std::vector<int32_t> root;    // [roots] entry of each, never -1
};
// Every root must have at least one generated token.
RootTrie MakeRootTrie(const decoding::PathTree& paths, absl::Span<const decoding::PathId> roots);

}  // namespace coppice::worker
