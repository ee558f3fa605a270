// Which rows of a draft model, and which nodes of a forest, the target will probably need, for
// Gumbel coupling (docs/algorithms.md 5.7). Draft and target share the noise, so the target's
// choices are a function of its rows. Each world takes the draft's rows with random errors for
// them, and replays the choices until it comes to a row that is not known: what many worlds choose
// is worth a row, or a node. Used by simulated_drafting. Pure; thread-compatible.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "base/types.h"
#include "decoding/forest.h"
#include "decoding/params.h"
#include "plan/token_tree.h"
#include "sampling/distribution.h"

namespace coppice::lab {

// Whether a path is a root, or below one through parents that are known.
// parent_of: 0 for a path that is not known.
bool IsBelowARoot(uint64_t path, const decoding::DraftState& state,
                  absl::FunctionRef<uint64_t(uint64_t path)> parent_of);

struct WorldsOptions {
  int worlds = 48;
  double sigma = 1.2;  // standard deviation of the error of a log-probability, nats
  // Further worlds with larger errors. They only ask for rows, after those of the others, so that
  // no forward pass is short of rows.
  int spare_worlds = 48;
  double spare_sigma = 2.5;
  int most_layers = 24;  // that a world replays
};

class PossibleWorlds {
 public:
  // params must outlive the worlds.
  PossibleWorlds(const decoding::DecodingParams& params, const WorldsOptions& options)
      : params_(params), options_(options) {}

  // The roots after a verdict. Rows that are not below them are forgotten.
  void Begin(const decoding::DraftState& state);
  // Replays all worlds with the rows that are known.
  void Replay();

  struct Want {  // a row at which worlds have stopped
    uint64_t path = 0, parent = 0;
    TokenId token = 0;
    double need = 0;  // number of worlds, weighted by layer
  };
  // Of the last Replay, the largest need first.
  const std::vector<Want>& wants() const { return wants_; }
  void Add(const Want& want, const sampling::Distribution& row);
  int rows() const { return static_cast<int>(rows_.size()); }

  // The forest of the `nodes` nodes, in `depth` layers, that most worlds of the last Replay choose.
  decoding::DraftForest Forest(int nodes, int depth);
  // Expected layers of a round with the last Forest, and how much more they could be if the first
  // `count` wants had rows.
  double layers() const { return layers_; }
  double Gain(int count) const;

 private:
  struct Draw {
    TokenId token;
    double log_prob;
  };
  struct Row {
    uint64_t parent = 0;
    sampling::Distribution row;
    std::vector<double> keys;  // [slots][support] log q + G(TOKEN, slot, path, token)
    std::vector<Draw> draws;   // [worlds][slots]
    std::vector<bool> drawn;   // [worlds]
  };
  struct Beam {
    uint64_t path = 0, parent = 0;
    TokenId token = 0;
    double score = 0;    // ls, nats
    int count = 1;       // slots that hold it
    TreePlace place;     // a root, or index into nodes_
    TreePlace above;     // of its parent
    Row* row = nullptr;  // known rows only
  };
  struct Node {
    TokenId token;
    TreePlace above;  // a root, or index into nodes_
    int layer, hits = 0;
    int forest_node = -1;  // in the last Forest
  };
  struct World {
    std::vector<std::vector<int>> layers;  // nodes that are the parents of the next layer
    std::vector<uint64_t> missing;         // rows at which it stopped
    int covered = 0;                       // layers that the last Forest has
  };
  bool IsSpare(const World& world) const { return &world - worlds_.data() >= options_.worlds; }
  bool IsKnown(int layer, size_t slot) const {
    return layer == 0 && !state_.slot_token.empty() && state_.slot_token[slot] >= 0;
  }
  std::vector<Beam> Roots() const;
  void ReplayWorld(World* world);
  // False: the world stops, because the rows of some picked beams are not known.
  bool FindRows(int layer, absl::Span<const int> picks, std::vector<Beam>* beams, World* world);
  // The distinct outputs of a layer that have not ended.
  std::vector<Beam> Outputs(int layer, absl::Span<const int> picks, absl::Span<const Beam> beams,
                            const World& world);
  // The outputs that the slots of the next layer pick as parents, and the pick of each slot.
  std::vector<Beam> PickParents(int layer, size_t slots, absl::Span<const Beam> outputs,
                                std::vector<int>* picks, World* world);
  const Draw* Draws(const World& world, uint64_t path, Row* row) const;

  const decoding::DecodingParams& params_;
  const WorldsOptions options_;
  decoding::DraftState state_;
  absl::flat_hash_map<uint64_t, Row> rows_;  // by path
  std::vector<World> worlds_;
  std::vector<Want> wants_;
  std::vector<Node> nodes_;
  absl::flat_hash_map<uint64_t, int> want_of_, node_of_;  // by path
  double layers_ = 0;
};

}  // namespace coppice::lab
