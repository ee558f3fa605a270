// A lossy decoder of one sequence whose draft is one path: keeps a prefix of the path, which its
// rule decides, and adds one token from the target's own row behind it. Base of MJSD and BiLD
// (docs/algorithms.md 6.2, 6.3); without drafts both are multinomial sampling (3.1), at temperature
// 0 greedy. Thread-compatible.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "decoding/single_sequence.h"

namespace coppice {

// The parameters that likelihoods are read with: the request's warp, or at temperature 0, where the
// warped row is one-hot and rates nothing, the plain row. DraftRow does the same for q.
DecodingParams LikelihoodParams(const DecodingParams& params);

// Tokens of the forest's path: of the one node of each layer from root 0 on, until a layer has more
// nodes or a stop id ends it. Node i of the forest is token i. At most `longest` tokens.
std::vector<TokenId> DraftedPath(const DraftForest& forest, const DecodingParams& params,
                                 int longest);

class PathDecoder : public SingleSequenceDecoder {
 protected:
  using SingleSequenceDecoder::SingleSequenceDecoder;

  struct Kept {
    std::vector<double> scores;  // of the drafts that stay, in order: what ls accumulates, nats
    const WarpedRow* next = nullptr;  // the row after them, read with LikelihoodParams
  };
  // How much of the path stays. Row i of the round is the row after i drafts; each may be read
  // once.
  virtual Kept Keep(const DraftForest& forest, absl::Span<const TokenId> path, RowSource* rows) = 0;
  RowUse row_use() const override {
    return {RowUse::Kind::kLaw, /*reach=*/1, /*likelihood=*/true};
  }
  int layers() const { return state().layers(); }

 private:
  void DecideTokens(const DraftForest& forest, RowSource* rows, RoundLedger* ledger) override;
  TokenId DrawFrom(const WarpedRow& row, RoundLedger* ledger);
};

}  // namespace coppice
