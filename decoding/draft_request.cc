#include "decoding/draft_request.h"

#include <algorithm>

#include "sampling/rng.h"

namespace coppice::decoding {

PathId SharedPath(const PathTree& paths, absl::Span<const PathId> roots) {
  std::vector<PathId> parents;
  parents.reserve(roots.size());
  for (const PathId root : roots) parents.push_back(paths.parent(root));
  return paths.CommonAncestor(parents);
}

RootTree MakeRootTree(const PathTree& paths, absl::Span<const PathId> roots, PathId shared) {
  std::vector<PathId> nodes;  // [nodes of the tree]
  for (const PathId root : roots) {
    for (PathId path = root; path != shared; path = paths.parent(path)) nodes.push_back(path);
  }
  std::sort(nodes.begin(), nodes.end());  // so parents come before their children
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  const auto node_of = [&](PathId path) {
    return NodeId(std::lower_bound(nodes.begin(), nodes.end(), path) - nodes.begin());
  };
  RootTree out;
  out.tree.num_roots = 1;
  for (const PathId path : nodes) {
    const PathId above = paths.parent(path);
    out.tree.Add(above == shared ? TreePlace(RootId{0}) : node_of(above), paths.token(path));
  }
  for (const PathId root : roots) out.ends.push_back(node_of(root));
  return out;
}

std::vector<uint64_t> RootHashes(const RootTree& roots, uint64_t shared_hash) {
  const TokenTree& tree = roots.tree;
  std::vector<uint64_t> hash(tree.rows(), shared_hash);  // the root of the tree is row 0
  for (int i = 0; i < tree.size(); ++i)
    hash[tree.RowOf(NodeId{i})] =
        sampling::ExtendHash(hash[tree.RowOf(tree.parent[i])], tree.token[i]);
  std::vector<uint64_t> out;
  out.reserve(roots.ends.size());
  for (const NodeId end : roots.ends) out.push_back(hash[tree.RowOf(end)]);
  return out;
}

DraftRequest MakeDraftRequest(const BeamDecoder& decoder, int width, int depth,
                              size_t known_tokens) {
  const PathTree& paths = decoder.paths();
  const PathId shared = SharedPath(paths, decoder.roots());
  DraftRequest request;
  request.width = width;
  request.depth = depth;
  request.stable_length = static_cast<uint32_t>(paths.length(shared));
  request.stable_tokens = paths.Tokens(shared, known_tokens);
  request.roots = MakeRootTree(paths, decoder.roots(), shared);
  request.state = decoder.draft_state();
  return request;
}

}  // namespace coppice::decoding
