// The state of every beam decoder: paths, pool, the last layer, and the end rules of
// docs/algorithms.md 8. Also the bookkeeping of one verified round. Owned by a decoder.
// Thread-compatible.
#pragma once

#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "decoding/beam_decoder.h"
#include "decoding/forest_index.h"
#include "decoding/params.h"
#include "decoding/path_tree.h"
#include "decoding/row_path.h"
#include "decoding/sequence/hypothesis_pool.h"

namespace coppice::decoding {

// A live beam: its place in the path tree and in the forest of the round.
struct Beam {
  PathId path = kRootPath;
  double log_score = 0;  // ls, nats
  int row = -1;          // its row of this round; -1: not a node of the forest
  int parent_row = -1;   // the row it was decided from; -1: decided before this round

  void BecomeRoot(size_t root) {  // root: its index in the round that begins
    row = static_cast<int>(root);
    parent_row = -1;
  }
};

class SequenceState {
 public:
  explicit SequenceState(const DecodingParams& params);
  // Starts from `slots`, paths of this state's tree of `layers` tokens each, instead of the prompt
  // (exact distributions, golden files).
  void StartFrom(std::vector<LayerOutput> slots, int layers);

  // Ends a layer: fills the pool and applies the stop rules in the order of docs/algorithms.md 8.
  // outputs: in walk or slot order. True when decoding goes on.
  bool EndLayer(std::vector<LayerOutput> outputs);

  const DecodingParams& params() const { return params_; }
  PathTree& paths() { return paths_; }
  const PathTree& paths() const { return paths_; }
  bool finished() const { return finished_; }
  int layers() const { return layers_; }
  // True if `more`, which is not empty, ends the path: by a stop id, or because its last token
  // completes a stop string or the format of the output.
  bool Ends(PathId path, absl::Span<const TokenId> more) const;
  bool Ends(PathId path, TokenId token) const { return Ends(path, absl::MakeConstSpan(&token, 1)); }
  // Every token that ends the path; ascending.
  std::vector<TokenId> EndTokens(PathId path) const;
  // Tokens that are no stop ids end some paths.
  bool ends_by_text() const { return has_stop_strings() || can_complete_; }
  // The path of a row: `path`, then `more` drafted tokens.
  sampling::RowPath RowPathOf(PathId path, absl::Span<const TokenId> more = {}) const {
    return MakeRowPath(params_, paths_, path, more);
  }
  absl::Span<const LayerOutput> last_layer() const { return last_layer_; }
  int max_useful_depth() const;
  std::vector<Hypothesis> Result() const { return pool_.Result(paths_); }
  // live: the beams that the next layer can still continue.
  std::vector<TokenId> StablePrefix(absl::Span<const Beam> live) const;

 private:
  DecodingParams params_;
  PathTree paths_;
  HypothesisPool pool_;
  const bool can_complete_;  // the format of the output has complete states
  std::vector<LayerOutput> last_layer_;
  int layers_ = 0;
  bool finished_ = false;
  bool has_stop_strings() const { return params_.stop_text != nullptr; }
  StopText::State TextOf(PathId path) const;
  bool CompletesFormat(PathId path, absl::Span<const TokenId> more) const;
  // [paths] States that are known, by PathId; filled when first requested.
  mutable std::vector<std::optional<StopText::State>> text_of_path_;
};

// Statistics and node paths of one round.
class RoundLedger {
 public:
  // *forest must outlive the ledger. The roots' number must be the forest's.
  RoundLedger(const DraftForest& forest, size_t num_roots, int beam_width);

  const ForestIndex& index() const { return index_; }
  // Records a child of a beam as an output of the layer (copies one by one): extends the path and
  // finds the child in the forest.
  Beam Extend(PathTree* paths, const Beam& parent, TokenId token, double log_score);
  void AddMargin(double margin);
  void AddOverlap(double overlap);  // sum of min(p, q) of one drafted layer
  void AddLayer();                  // ends the layer of the outputs extended since the last one
  Verdict Finish(absl::Span<const Beam> new_roots) &&;

 private:
  const DraftForest& forest_;
  const int beam_width_;
  ForestIndex index_;
  std::vector<PathId> became_;   // [nodes] path of every node that became an output, or kNoPath
  std::vector<PathId> outputs_;  // outputs of the layer that is being decided
  Verdict verdict_;
};

}  // namespace coppice::decoding
