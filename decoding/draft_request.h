// A leader's request to a draft node for one round: the roots of the next forest by their tokens,
// and what a drafter must know of them. A worker makes it, proto/convert_draft.cc sends it, and the
// draft node grows the forest from it. coppice-lab passes it without messages. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "decoding/beam_decoder.h"
#include "decoding/forest.h"
#include "decoding/path_tree.h"
#include "plan/token_tree.h"

namespace coppice::decoding {

// The tokens by which the roots of a round differ, below the path that all of them share. That
// path is the only root of the tree. Every root ends at a node, so the last token of a lone root
// is its own. Those of MakeRootTree have no two children of one place with the same token.
struct RootTree {
  TokenTree tree;
  std::vector<NodeId> ends;  // [roots]
};

// The longest path that all roots share without the last token of each. Every root must have at
// least one generated token.
PathId SharedPath(const PathTree& paths, absl::Span<const PathId> roots);
// The roots below `shared`, their SharedPath.
RootTree MakeRootTree(const PathTree& paths, absl::Span<const PathId> roots, PathId shared);
// [roots] H(path) of every root. shared_hash: of the path that all share.
std::vector<uint64_t> RootHashes(const RootTree& roots, uint64_t shared_hash);

// Hidden states of the target for a draft that takes them (model/model_config.h, TargetStates). A
// row of the draft is a token; its state is that of the token before it.
struct RowStates {
  // Rows of stable tokens, numbered from the prompt's first token on, which has no state.
  uint32_t first = 0, count = 0;
  std::vector<NodeId> nodes;     // then those of these nodes of the request's root tree, ascending
  std::vector<uint16_t> values;  // [count + nodes][columns] bf16
};

struct DraftRequest {
  uint64_t session_id = 0;  // chosen by the leader
  uint32_t round = 0;
  int width = 0;  // W_S
  int depth = 0;  // gamma
  // What all roots share, beyond the prompt: `stable_length` generated tokens, of which the last
  // stable_tokens.size() are here.
  uint32_t stable_length = 0;
  std::vector<TokenId> stable_tokens;
  RootTree roots;
  DraftState state;
  RowStates states;
};

// The request for a forest below the decoder's roots. known_tokens: stable tokens that the draft
// node has from earlier requests. Session and round are the caller's.
DraftRequest MakeDraftRequest(const BeamDecoder& decoder, int width, int depth,
                              size_t known_tokens);

}  // namespace coppice::decoding
