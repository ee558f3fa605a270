// What one round drafted and what the target made of it, for who watches a request (docs/api.md
// 3.3). Made by the worker, shown by the coordinator. Pure.
#pragma once

#include <vector>

#include "base/types.h"
#include "decoding/beam_decoder.h"
#include "decoding/forest.h"
#include "decoding/path_tree.h"
#include "plan/token_tree.h"

namespace coppice::decoding {

// A request's rounds are shown up to these numbers: of rounds, and of their entries.
inline constexpr int kMostShownRounds = 4096;
inline constexpr int kMostShownEntries = 65536;

// The state at the beginning of a round.
struct RoundStart {
  std::vector<PathId> roots;
  int paths = 0;  // number of paths in the tree
};

struct RoundForest {
  std::vector<PathId> roots;
  TokenTree nodes;                // the draft forest over these roots
  std::vector<double> log_probs;  // DraftForest::log_probs; empty: not known
  // [nodes] The path that a node has become; kNoPath: the target did not take it.
  std::vector<PathId> node_path;
  // The paths that the round has made, path first_path + i, in this order. They are what the target
  // decided: nodes of the forest, and tokens of its own.
  int first_path = 0;
  std::vector<PathId> path_parent;   // [new paths]
  std::vector<TokenId> path_token;   // [new paths]
  std::vector<LayerOutput> outputs;  // of the last layer: BeamDecoder::last_layer
  bool last = false;                 // the limits end the record here

  int entries() const {
    return nodes.size() + static_cast<int>(path_token.size() + outputs.size());
  }
};

// decoder: after the round that `forest` has led to.
RoundForest RoundForestOf(const RoundStart& start, const DraftForest& forest,
                          const BeamDecoder& decoder);

// DraftForest::log_probs of a forest that has a proposal for every parent of a node.
std::vector<double> ProposedLogProbs(const DraftForest& forest);

}  // namespace coppice::decoding
