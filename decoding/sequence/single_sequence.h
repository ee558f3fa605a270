// The common part of the rejection verifiers for one sequence: its beam, the current row as a
// distribution, and how a decided token becomes a layer. Base of decoding/tree/tree_decoder.h and
// block_verification.h. Thread-compatible.
#pragma once

#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "decoding/beam_decoder.h"
#include "decoding/joint/choice_source.h"
#include "decoding/joint/layer_distribution.h"
#include "decoding/sequence/sequence_decoder.h"
#include "sampling/processed_row.h"

namespace coppice::decoding {

class SingleSequenceDecoder : public SequenceDecoder {
 public:
  // Call before the first round: starts after `tokens` instead of after the prompt (golden files).
  void StartFrom(absl::Span<const TokenId> tokens, double log_score);

 protected:
  // `choices` decides (SeededChoices in production).
  SingleSequenceDecoder(const DecodingParams& params, std::shared_ptr<ChoiceSource> choices);

  // Decides at least one token of a round and emits it.
  virtual void DecideTokens(const DraftForest& forest, sampling::RowSource* rows,
                            RoundLedger* ledger) = 0;

  ChoiceSource* choices() { return choices_.get(); }
  const Beam& beam() const { return beam_; }  // the sequence so far; row -1: not drafted
  // The distribution of `row` after the path of hash `hash`. `row` must outlive it.
  static LayerDistribution RowDistribution(const sampling::ProcessedRow& row, uint64_t hash);
  // Emits one layer. False when the sequence has ended.
  bool Emit(const sampling::ProcessedRow& row, TokenId token, RoundLedger* ledger);
  // For callers that no longer have the row. score: what ls accumulates, nats.
  bool Emit(TokenId token, double score, RoundLedger* ledger);

 private:
  void Decide(const DraftForest& forest, sampling::RowSource* rows, RoundLedger* ledger) final;
  std::vector<Beam> LiveBeams() const final { return {beam_}; }

  std::shared_ptr<ChoiceSource> choices_;
  Beam beam_;
};

// sum of min(p, q) of a target row and its proposal.
double RowOverlap(const LayerDistribution& p, const sampling::Distribution& q);

}  // namespace coppice::decoding
