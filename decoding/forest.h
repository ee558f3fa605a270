// The draft forest and the structs around it: what a drafter must know (DraftState), what it makes
// (DraftForest), and what the verifier decides (Verdict). Only flat arrays (docs/architecture.md
// 4).
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "base/decoding_stats.h"
#include "base/output_format.h"
#include "base/types.h"
#include "decoding/path_tree.h"
#include "plan/token_tree.h"
#include "sampling/distribution.h"

namespace coppice::decoding {

// A sent proposal: the sparse row from which the children of a place were drawn (methods that send
// "tree and proposals").
struct Proposal {
  TreePlace place;
  double log_weight = 0;  // log of the place's share of the layer's joint proposal mass (its beam
                          // weight, normalised)
  sampling::Distribution row;  // q(.|place), truncated and renormalised, as it was sampled from
};

// A token tree in layers: one draft tree per live beam. Layer 0 has the children of the roots.
struct DraftForest : TokenTree {
  // [depth + 1]; layer l (0-based) = nodes [layer_begin[l], layer_begin[l+1]).
  std::vector<int32_t> layer_begin;
  std::vector<Proposal> proposals;  // empty for methods that send the tree alone
  // Rejection methods: node of every draft, drawing order, copies listed.
  std::vector<NodeId> draws;
  std::vector<int32_t> draws_begin;  // [depth + 1]
  // For who watches: [nodes] log q(node | parent) of the draft's row, nats; -infinity: a token that
  // the row does not have. Empty: not asked for, or a device has chosen the nodes.
  std::vector<double> log_probs;

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
  // The beams of each group (docs/algorithms.md 8.2), group by group, which may hold the same root.
  // Empty without groups.
  struct GroupBeam {
    int32_t root = 0;
    int32_t group = 0;
    double penalty = 0;  // taken from ls for diversity, nats
  };
  std::vector<GroupBeam> group_beams;
  // [roots] State of the output's format after the root; 0: no format. It is not sent: a draft node
  // that knows the format fills in its own.
  std::vector<OutputFormat::State> root_format_state;
};

// What a round decided. Paths are entries of the decoder's PathTree.
struct Verdict {
  // [forest.size()] The path of each forest node that is a new root or an ancestor of one, so that
  // its KV is kept; kNoPath for the others.
  std::vector<PathId> node_path;
  std::vector<bool> accepted;          // [forest.size()] nodes that became outputs of their layer
  DecodingStats stats;                 // statistics of this round alone, without method and times
  std::vector<int> outputs_by_layer;   // [layers] beams or slots of every decided layer
  std::vector<int> distinct_by_layer;  // [layers] number of distinct paths among them
  double min_margin = 0;               // smallest decision margin, nats
};

}  // namespace coppice::decoding
