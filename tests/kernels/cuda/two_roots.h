// A request for a draft forest below two roots, the children 30 and 31 of a session's stable tokens.
#pragma once

#include "draft_node/draft_session.h"
#include "draft_node/forest_builder.h"
#include "sampling/rng.h"

namespace coppice::draft_node {

inline decoding::DraftRequest TwoRoots(const DraftSession& session, int width, int depth) {
  decoding::DraftRequest request;
  request.width = width;
  request.depth = depth;
  TokenTree& tree = request.roots.tree;
  tree.num_roots = 1;
  request.roots.ends = {tree.Add(RootId{0}, 30), tree.Add(RootId{0}, 31)};
  request.state.root_hash = {sampling::ExtendHash(session.stable_hash(), 30),
                             sampling::ExtendHash(session.stable_hash(), 31)};
  request.state.root_score = {-400.5, -401};
  request.state.root_multiplicity = {1, 1};
  request.state.slot_root = {0, 1};
  request.state.layers_committed = 1;
  return request;
}

}  // namespace coppice::draft_node
