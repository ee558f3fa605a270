#include "decoding/path_tree.h"

#include <algorithm>

#include "sampling/rng.h"

namespace coppice::decoding {

PathTree::PathTree(std::shared_ptr<const OutputFormat> format) : format_(std::move(format)) {
  nodes_.push_back(
      {kNoPath, -1, 0, sampling::kRootHash, format_ == nullptr ? 0 : format_->Start()});
}

PathId PathTree::Extend(PathId parent, TokenId token) {
  const auto [child, is_new] = children_.try_emplace({parent, token}, PathId{size()});
  if (is_new) {
    const Node above = At(parent);
    nodes_.push_back({parent, token, above.length + 1, sampling::ExtendHash(above.hash, token),
                      format_ == nullptr ? 0 : format_->Next(above.format_state, token)});
  }
  return child->second;
}

PathId PathTree::Find(PathId parent, TokenId token) const {
  const auto child = children_.find({parent, token});
  return child == children_.end() ? kNoPath : child->second;
}

std::vector<TokenId> PathTree::Tokens(PathId path, size_t from) const {
  const size_t length = At(path).length;
  std::vector<TokenId> tokens(length - std::min(from, length));
  for (size_t i = tokens.size(); i-- > 0; path = At(path).parent) tokens[i] = At(path).token;
  return tokens;
}

PathId PathTree::CommonAncestor(absl::Span<const PathId> paths) const {
  if (paths.empty()) return kRootPath;
  PathId common = paths[0];
  for (PathId path : paths) {
    while (At(path).length > At(common).length) path = At(path).parent;
    while (At(common).length > At(path).length) common = At(common).parent;
    while (common != path) {
      common = At(common).parent;
      path = At(path).parent;
    }
  }
  return common;
}

}  // namespace coppice::decoding
