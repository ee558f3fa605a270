// Speculative beam sampling by rejection: DSBD, ALGORITHMS.md 5.1-5.3, rule E of 5.2. Law at fixed
// width: beam sampling with replacement, multiset semantics (3.3), whatever the draft; with a width
// threshold each layer is iid from P given its width. The output depends on where rounds begin, not
// on the seed alone. Called through MakeBeamDecoder; drafts come from decoding/dsbd_drafter.h.
// Thread-compatible.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "decoding/beam_decoder.h"
#include "decoding/choice_source.h"
#include "decoding/dsbd_layer.h"
#include "decoding/sequence_state.h"
#include "decoding/warped_row.h"

namespace coppice {

// One decided layer of a round, kept until the next round for tests and golden files.
struct DsbdLayerRecord {
  std::vector<PathId> beams;         // the layer's current beams, canonical order
  std::vector<int> multiplicity;     // [beams]
  std::vector<LayerOutput> outputs;  // slot order
  std::vector<int> accepted_draft;   // [outputs] index among the layer's draws, or -1
  bool verified = false;             // false: drawn without drafts
  bool full = false;                 // verified, and every output is an accepted draft
};

// The width of every layer: beam_width, or 5.3 capped at W_max = max(min_width, draft width).
WidthRule DsbdWidthRule(const DecodingParams& params);

// What the verifier relies on beyond DraftForest::Validate: every draw has a proposal that lists
// its token, and the proposal weights of each drafted layer sum to 1. The drafts of a forest that
// fails are ignored: the round is a plain step.
absl::Status CheckDsbdForest(const DraftForest& forest);

class DsbdDecoder : public BeamDecoder {
 public:
  // `choices` decides (SeededChoices in production); kReject is the production rule.
  DsbdDecoder(const DecodingParams& params, RemovedParents rule,
              std::shared_ptr<ChoiceSource> choices);

  // Before the first round: starts from given slots instead of the prompt (exact laws, golden
  // files). All paths have the same length, which is the number of layers committed.
  struct StartSlot {
    std::vector<TokenId> tokens;
    double log_score = 0;
  };
  void StartFrom(absl::Span<const StartSlot> slots);

  const PathTree& paths() const override { return state_.paths(); }
  absl::Span<const PathId> roots() const override { return roots_; }
  DraftState draft_state() const override;
  int max_useful_depth() const override { return state_.max_useful_depth(); }
  Verdict Advance(const DraftForest& forest, RowSource* rows) override;
  bool finished() const override { return state_.finished(); }
  int layers_committed() const override { return state_.layers(); }
  absl::Span<const LayerOutput> last_layer() const override { return state_.last_layer(); }
  std::vector<TokenId> StablePrefix() const override { return state_.StablePrefix(beams_); }
  std::vector<Hypothesis> Result() const override { return state_.Result(); }

  absl::Span<const DsbdLayerRecord> last_round() const { return round_; }

 private:
  LayerLaw ReadLayer(RowSource* rows);
  DsbdLayerResult VerifyLayer(const DraftForest& forest, int layer, const LayerLaw& p);
  void CommitLayer(const DsbdLayerResult& result, RoundLedger* ledger);
  void SetBeams(absl::Span<const Beam> slots, absl::Span<const LayerOutput> outputs);
  int RequestWidth() const;

  SequenceState state_;
  const RemovedParents rule_;
  std::shared_ptr<ChoiceSource> choices_;
  std::vector<Beam> beams_;        // distinct paths of the active slots, in order of first slot
  std::vector<int> multiplicity_;  // [beams] slots that hold the path
  std::vector<PathId> roots_;      // [beams]
  std::vector<std::unique_ptr<WarpedRow>> rows_;  // [beams] of the layer at hand; buffers are kept
  std::vector<DsbdLayerRecord> round_;
  int ended_slots_ = 0;  // slots that emitted a stop id and are not refilled
};

// Seeded, rule E.
std::unique_ptr<BeamDecoder> MakeDsbdDecoder(const DecodingParams& params);

}  // namespace coppice
