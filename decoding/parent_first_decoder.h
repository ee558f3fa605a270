// What the parent-first decoders share (docs/algorithms.md 5.7): every slot of a layer first picks
// its parent among the distinct paths of the slots before, by noise that draft and target share,
// and then a token. Only picked parents need a row, and they are known before any model pass. How
// tokens come from the rows is the decoder's. Base of PF-Gumbel and PF-RRS. Thread-compatible.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "decoding/beam_decoder.h"
#include "decoding/sequence_state.h"

namespace coppice {

class ParentFirstDecoder : public BeamDecoder {
 public:
  explicit ParentFirstDecoder(const DecodingParams& params);

  const PathTree& paths() const override { return state_.paths(); }
  absl::Span<const PathId> roots() const override { return root_paths_; }
  DraftState draft_state() const override;
  int max_useful_depth() const override { return state_.max_useful_depth(); }
  Verdict Advance(const DraftForest& forest, RowSource* rows) override;
  bool finished() const override { return state_.finished(); }
  int layers_committed() const override { return state_.layers(); }
  absl::Span<const LayerOutput> last_layer() const override { return state_.last_layer(); }
  // Beams that were not picked are gone for good, so the roots are all that lives.
  std::vector<TokenId> StablePrefix() const override { return state_.StablePrefix(roots_); }
  std::vector<Hypothesis> Result() const override { return state_.Result(); }

 protected:
  // Called first in every round. False: the forest is no use, the round is a plain step.
  virtual bool BeginRound(const DraftForest& /*forest*/) { return true; }
  // One layer: the beam of every slot, made by ledger->Extend from the parent it picked.
  virtual std::vector<Beam> DrawSlots(RowSource* rows, RoundLedger* ledger) = 0;
  // Called last in every round that leaves the sequence unfinished: the rows of parents with
  // row >= 0 can be read now, before a draft is asked for.
  virtual void EndRound(RowSource* /*rows*/) {}

  SequenceState* state() { return &state_; }
  absl::Span<const Beam> parents() const { return roots_; }
  absl::Span<const int32_t> picks() const { return picks_; }  // [slots] index into parents()

 private:
  bool RowsKnown() const;
  void PickParents(absl::Span<const Beam> slots, RoundLedger* ledger);
  void PublishRoots();

  SequenceState state_;
  std::vector<Beam> roots_;  // distinct picked parents of the next layer, in order of first pick
  std::vector<int> multiplicity_;  // [roots] slots that held the beam; set semantics: 1
  std::vector<int32_t> picks_;
  std::vector<PathId> root_paths_;
};

}  // namespace coppice
