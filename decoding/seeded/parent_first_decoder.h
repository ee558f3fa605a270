// Base of the parent-first decoders Gumbel coupling and beam recursive rejection
// (docs/algorithms.md 5.7). Each slot of a layer first picks its parent among the distinct paths of
// the previous slots, with noise that draft and target share, and then a token. Only picked parents
// need a row, and they are known before any model pass. The derived decoder draws the tokens.
// Thread-compatible.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "decoding/sequence/sequence_decoder.h"

namespace coppice::decoding {

class ParentFirstDecoder : public SequenceDecoder {
 public:
  explicit ParentFirstDecoder(const DecodingParams& params);

  DraftState draft_state() const override;

 protected:
  // Called first in every round. False: the forest is unusable, and the round is plain.
  virtual bool BeginRound(const DraftForest& /*forest*/) { return true; }
  // Decides one layer: the beam of every slot, made by ledger->Extend from the parent it picked.
  virtual std::vector<Beam> DrawSlots(sampling::RowSource* rows, RoundLedger* ledger) = 0;
  // Called last in every round that leaves the sequence unfinished. The rows of parents with row >=
  // 0 can be read now, before the next draft is requested.
  virtual void EndRound(sampling::RowSource* /*rows*/) {}

  absl::Span<const Beam> parents() const { return parents_; }
  absl::Span<const int32_t> picks() const { return picks_; }  // [slots] index into parents()

 private:
  void Decide(const DraftForest& forest, sampling::RowSource* rows, RoundLedger* ledger) final;
  // Beams that were not picked never come back.
  std::vector<Beam> LiveBeams() const final { return parents_; }
  bool RowsKnown() const;
  void PickParents(absl::Span<const Beam> slots, RoundLedger* ledger);

  std::vector<Beam> parents_;      // distinct picked ones of the next layer, in order of first pick
  std::vector<int> multiplicity_;  // [parents] slots that held the beam; set semantics: 1
  std::vector<int32_t> picks_;
};

}  // namespace coppice::decoding
