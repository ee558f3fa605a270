// A lossy decoder of one sequence whose draft is one path. A rule decides which prefix of the path
// is kept; one token from the target's row is added after it. Base of MJSD and BiLD
// (docs/algorithms.md 6.2, 6.3); without drafts both are multinomial sampling (3.1), at temperature
// 0 greedy. Thread-compatible.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "decoding/sequence/single_sequence.h"

namespace coppice::decoding {

// The parameters for reading likelihoods: the request's sampling parameters, or at temperature 0
// the plain row, because the processed row is one-hot there. DraftRow does the same for q.
DecodingParams LikelihoodParams(const DecodingParams& params);

class PathDecoder : public SingleSequenceDecoder {
 protected:
  using SingleSequenceDecoder::SingleSequenceDecoder;

  struct Kept {
    std::vector<double> scores;  // of the drafts that stay, in order: what ls accumulates, nats
    const sampling::ProcessedRow* next = nullptr;  // the row after them, read with LikelihoodParams
  };
  // Decides how much of the path stays. Row i of the round is the row after i drafts. Each may be
  // read once.
  virtual Kept Keep(const DraftForest& forest, absl::Span<const TokenId> path,
                    sampling::RowSource* rows) = 0;
  RowUse row_use() const override {
    return {RowUse::Kind::kDistribution, /*reach=*/1, /*likelihood=*/true};
  }
  // True if these drafts, which are not empty, end the sequence.
  bool Ends(absl::Span<const TokenId> drafts) const { return state().Ends(beam().path, drafts); }
  // The path of the row after these drafts.
  sampling::RowPath PathAfter(absl::Span<const TokenId> drafts) const {
    return state().RowPathOf(beam().path, drafts);
  }

 private:
  void DecideTokens(const DraftForest& forest, sampling::RowSource* rows,
                    RoundLedger* ledger) override;
  std::vector<TokenId> DraftedPath(const DraftForest& forest) const;
  TokenId DrawFrom(const sampling::ProcessedRow& row, RoundLedger* ledger);
};

}  // namespace coppice::decoding
