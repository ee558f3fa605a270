// Block verification of one drafted path, docs/algorithms.md 4.7: decides for the whole path at
// once how many of its tokens are kept. Distribution: multinomial sampling (3.1). On average keeps
// at least as many tokens as 4.1. Called through MakeBeamDecoder; drafts are chains of
// decoding/tree/topology_drafter.h. Thread-compatible.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "decoding/sequence/single_sequence.h"

namespace coppice::decoding {

// p_i and h_i of 4.7 for a drafted path.
struct BlockChances {
  std::vector<double> kept;    // [gamma + 1] p_0 = 1, p_i: probability of the path up to x_i
  std::vector<double> passes;  // [gamma] h_1..h_gamma
};
// rows[i], proposals[i]: distributions of one beam after i drafts. rows has one more entry than
// proposals when the path can continue, else as many. draft: [proposals.size()].
BlockChances FindBlockChances(absl::Span<const LayerDistribution> rows,
                              absl::Span<const sampling::Distribution* const> proposals,
                              absl::Span<const TokenId> draft);
// norm(max(0, p_i p(.|x_<=i) - q(.|x_<=i))); p itself where the positive part has mass <= 1e-14.
LayerDistribution BlockResidual(const LayerDistribution& row,
                                const sampling::Distribution& proposal, double kept);

// Checks that each layer has one draw, made from a sent proposal.
absl::Status CheckPathForest(const DraftForest& forest);

class BlockDecoder : public SingleSequenceDecoder {
 public:
  BlockDecoder(const DecodingParams& params, std::shared_ptr<ChoiceSource> choices)
      : SingleSequenceDecoder(params, std::move(choices)) {}

 private:
  void DecideTokens(const DraftForest& forest, sampling::RowSource* rows,
                    RoundLedger* ledger) override;
};

// Seeded.
std::unique_ptr<BeamDecoder> MakeBlockDecoder(const DecodingParams& params);

}  // namespace coppice::decoding
