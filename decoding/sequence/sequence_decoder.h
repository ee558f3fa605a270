// The base of all decoders. A SequenceState holds paths, layers, end and result. Every round keeps
// a ledger over the live beams. A decoder adds how a round decides its layers, and which beams are
// live. Thread-compatible.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "decoding/beam_decoder.h"
#include "decoding/row_need.h"
#include "decoding/sequence/sequence_state.h"

namespace coppice::decoding {

class SequenceDecoder : public BeamDecoder {
 public:
  const PathTree& paths() const final { return state_.paths(); }
  absl::Span<const PathId> roots() const final { return roots_; }
  // Every live beam counts once. There are no slots.
  DraftState draft_state() const override;
  int max_useful_depth() const final { return state_.max_useful_depth(); }
  Verdict Advance(const DraftForest& forest, sampling::RowSource* rows) final;
  bool finished() const final { return state_.finished(); }
  int layers_committed() const final { return state_.layers(); }
  absl::Span<const LayerOutput> last_layer() const final { return state_.last_layer(); }
  std::vector<TokenId> StablePrefix() const override { return state_.StablePrefix(LiveBeams()); }
  std::vector<Hypothesis> Result() const final { return state_.Result(); }
  RowNeed row_need() const final { return TargetNeed(params(), row_use()); }

 protected:
  // The root alone lives.
  explicit SequenceDecoder(const DecodingParams& params) : state_(params), roots_{kRootPath} {}

  // Decides at least one layer. Root r of the forest is LiveBeams()[r], in row r.
  virtual void Decide(const DraftForest& forest, sampling::RowSource* rows,
                      RoundLedger* ledger) = 0;
  // How every target row is used.
  virtual RowUse row_use() const { return {}; }
  // The distinct beams that the next layer continues. Their rows are those of the round so far.
  // Undefined after the sequence has ended.
  virtual std::vector<Beam> LiveBeams() const = 0;

  const SequenceState& state() const { return state_; }
  SequenceState* mutable_state() { return &state_; }
  const DecodingParams& params() const { return state_.params(); }
  // Call before the first round, if LiveBeams() returns the paths of `slots`, each of `layers`
  // tokens. The sequence then continues them instead of the prompt (exact distributions, golden
  // files).
  void ContinueFrom(std::vector<LayerOutput> slots, int layers);

 private:
  void PublishRoots(absl::Span<const Beam> beams);

  SequenceState state_;
  std::vector<PathId> roots_;  // paths of the beams that live between rounds
};

}  // namespace coppice::decoding
