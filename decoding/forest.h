// The draft forest and the structs around it: what a drafter must know (DraftState), what it makes
// (DraftForest), and what the verifier decides (Verdict). Only flat arrays (docs/architecture.md
// 4).
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "base/decoding_stats.h"
#include "base/types.h"
#include "sampling/distribution.h"

namespace coppice::decoding {

// A shipped proposal: the sparse row from which a node's children were drawn (methods that ship
// "tree and proposals").
struct Proposal {
  int32_t node = 0;       // node index, or -1 - root
  double log_weight = 0;  // log of this node's share of the layer's joint proposal mass (its beam
                          // weight, normalised)
  sampling::Distribution row;  // q(.|node), truncated and renormalised, as it was sampled from
};

// Nodes level by level. Row numbering everywhere: the roots' rows come first (row r = root r), then
// node i has row num_roots + i.
struct DraftForest {
  int num_roots = 0;
  std::vector<TokenId> token;   // [n]
  std::vector<int32_t> parent;  // [n] node index < i, or -1 - root
  // [depth + 1]; layer l (0-based) = nodes [layer_begin[l], layer_begin[l+1]).
  std::vector<int32_t> layer_begin;
  std::vector<Proposal> proposals;  // empty for methods that ship the tree alone
  // Rejection methods: node of every draft, drawing order, copies listed.
  std::vector<int32_t> draws;
  std::vector<int32_t> draws_begin;  // [depth + 1]

  int size() const { return static_cast<int>(token.size()); }
  // Row of a node in the numbering of `parent`: -1 - r is root r.
  int RowOf(int32_t node) const { return node < 0 ? -1 - node : num_roots + node; }
  int depth() const { return layer_begin.empty() ? 0 : static_cast<int>(layer_begin.size()) - 1; }
  // Checks the structure: no empty layer, parents in the layer above (so no cycle), root numbers,
  // no equal siblings, tokens in [0, vocab_size), proposals that are distributions, at most one per
  // node, draws in their own layer. InvalidArgument names field and node. Called where a message
  // becomes a struct.
  absl::Status Validate(int vocab_size) const;
  static DraftForest Empty(int num_roots);
};

// What a drafter must know about the roots besides their tokens. Root r of this state is root r of
// the forest.
struct DraftState {
  std::vector<uint64_t> root_hash;         // [roots] H(path)
  std::vector<double> root_score;          // [roots] ls, nats
  std::vector<int32_t> root_multiplicity;  // [roots] m_b
  // The root that each slot picked (parent-first methods) or holds (joint layers). Other methods:
  // empty.
  std::vector<int32_t> slot_root;
  // The generated length of every root; the epoch of docs/algorithms.md 2.
  uint32_t layers_committed = 0;
  // Outputs that are known already, because the target's row of the slot's root was in an earlier
  // forest. [slots] token or -1, and what it adds to the root's score (nats; 0 when unknown).
  // Empty: no output is known.
  std::vector<TokenId> slot_token;
  std::vector<double> slot_log_prob;
  // Search methods. Roots whose target rows were in an earlier forest, ascending, and the only
  // children of theirs that can be beams of the next layer: at most W, best first.
  struct KnownChild {
    int32_t root = 0;
    TokenId token = 0;
    double score = 0;  // ls of the child, nats
    double key = 0;    // by which the layer ranks it
  };
  std::vector<int32_t> known_roots;
  std::vector<KnownChild> known_children;
};

// What a round decided. Paths are entries of the decoder's PathTree.
struct Verdict {
  // [forest.size()] PathId of each forest node that is a new root or an ancestor of one, so that
  // its KV is kept; -1 for the others.
  std::vector<int32_t> node_path;
  DecodingStats stats;                 // of this round alone; no method, no times
  std::vector<int> outputs_by_layer;   // [layers] beams or slots of every decided layer
  std::vector<int> distinct_by_layer;  // [layers] of which distinct paths
  double min_margin = 0;               // smallest decision margin, nats
};

}  // namespace coppice::decoding
