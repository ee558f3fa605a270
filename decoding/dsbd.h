// Speculative beam sampling by rejection: DSBD, ALGORITHMS.md 5.1-5.3, rule E of 5.2. Law at fixed width: beam sampling
// with replacement, multiset semantics (3.3), whatever the draft; with a width threshold each layer is iid from P given
// its width. The output depends on where rounds begin, not on the seed alone. Called through MakeBeamDecoder; drafts come
// from decoding/dsbd_drafter.h. Thread-compatible.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "decoding/beam_decoder.h"
#include "decoding/choice_source.h"
#include "decoding/dsbd_layer.h"
#include "decoding/hypothesis_pool.h"
#include "decoding/target_row.h"

namespace coppice {

// One verified or drawn layer of a round, kept for tests, golden files and statistics.
struct DsbdLayerRecord {
  struct Beam {
    PathId path;
    int multiplicity;
  };
  std::vector<Beam> beams;           // the layer's current beams, canonical order
  std::vector<LayerOutput> outputs;  // slot order
  std::vector<int> accepted_draft;   // [outputs] index of the accepted draft among the layer's draws, or -1
  bool verified = false;             // false: drawn without drafts
  bool full = false;
};

// How the width of 5.3 is bounded: W_max = max(W_min, draft width).
WidthRule DsbdWidthRule(const DecodingParams& params);

// What the verifier relies on beyond DraftForest::Validate: every draw has a proposal that lists its token, and the
// proposal weights of each drafted layer sum to 1. A forest that fails is ignored: the round is a plain step.
absl::Status CheckDsbdForest(const DraftForest& forest, int num_roots);

class DsbdDecoder : public BeamDecoder {
 public:
  // `choices` decides (SeededChoices in production); rule E is the production rule.
  DsbdDecoder(const DecodingParams& params, RemovedParents rule, std::shared_ptr<ChoiceSource> choices);

  // Before the first round: starts from given slots instead of the prompt (test laws, golden files). All paths have the
  // same length, which is taken as the number of layers committed.
  struct StartSlot {
    std::vector<TokenId> tokens;
    double log_score = 0;
  };
  void StartFrom(absl::Span<const StartSlot> slots);

  const PathTree& paths() const override { return paths_; }
  absl::Span<const PathId> roots() const override { return roots_; }
  DraftState draft_state() const override;
  int max_useful_depth() const override;
  Verdict Advance(const DraftForest& forest, RowSource* rows) override;
  bool finished() const override { return finished_; }
  int layers_committed() const override { return layers_; }
  absl::Span<const LayerOutput> last_layer() const override { return last_layer_; }
  std::vector<TokenId> StablePrefix() const override;
  std::vector<Hypothesis> Result() const override { return pool_.Result(paths_); }

  const HypothesisPool& pool() const { return pool_; }
  absl::Span<const DsbdLayerRecord> last_round() const { return round_; }

 private:
  struct Beam {  // distinct path of the active slots, in order of first slot
    PathId path;
    double score;  // ls
    int multiplicity;
    int32_t node;  // where its row is: forest node, or -1 - root
  };
  struct LayerRows;  // the target rows of a layer and the law over them
  LayerRows ReadLayer(const DraftForest& forest, RowSource* rows) const;
  DsbdLayerResult VerifyLayer(const DraftForest& forest, int layer, const LayerLaw& p);
  void CommitLayer(const DraftForest& forest, int layer, const LayerRows& rows, const DsbdLayerResult& result,
                   Verdict* verdict);
  void SetBeams(absl::Span<const LayerOutput> outputs, absl::Span<const int32_t> nodes);
  void Conclude();
  int RequestWidth() const;
  void KeepRootsAncestors(std::vector<int32_t>* node_path) const;

  const DecodingParams params_;
  const RemovedParents rule_;
  std::shared_ptr<ChoiceSource> choices_;
  PathTree paths_;
  HypothesisPool pool_;
  std::vector<Beam> beams_;
  std::vector<PathId> roots_;  // [beams]
  std::vector<LayerOutput> last_layer_;
  std::vector<DsbdLayerRecord> round_;
  int layers_ = 0;
  int ended_slots_ = 0;  // slots that emitted a stop id and are not refilled
  bool finished_ = false;
};

// Seeded, rule E.
std::unique_ptr<BeamDecoder> MakeDsbdDecoder(const DecodingParams& params);

}  // namespace coppice
