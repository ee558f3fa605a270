#include "worker/root_trie.h"

#include <algorithm>

namespace coppice::worker {

RootTrie MakeRootTrie(const decoding::PathTree& paths, absl::Span<const decoding::PathId> roots) {
  std::vector<decoding::PathId> parents;
  for (decoding::PathId root : roots) parents.push_back(paths.parent(root));
  RootTrie trie;
  trie.stable = paths.CommonAncestor(parents);
  std::vector<decoding::PathId> entries;
  for (decoding::PathId root : roots) {
    for (decoding::PathId path = root; path != trie.stable; path = paths.parent(path))
      entries.push_back(path);
  }
  std::sort(entries.begin(), entries.end());  // so parents come before their children
  entries.erase(std::unique(entries.begin(), entries.end()), entries.end());
  const auto index = [&](decoding::PathId path) {
    if (path == trie.stable) return -1;
    return static_cast<int>(std::lower_bound(entries.begin(), entries.end(), path) -
                            entries.begin());
  };
  for (decoding::PathId path : entries) {
    trie.parent.push_back(index(paths.parent(path)));
    trie.token.push_back(paths.token(path));
  }
  for (decoding::PathId root : roots) trie.root.push_back(index(root));
  return trie;
}

}  // namespace coppice::worker
