// A lossy decoder of one sequence whose draft is one path: keeps a prefix of the path, which its
// rule decides, and adds one token from the target's own row behind it. Base of MJSD and BiLD
// (ALGORITHMS.md 6.2, 6.3); without drafts both are multinomial sampling (3.1), at temperature 0
// greedy. Thread-compatible.
#pragma once

#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "decoding/beam_decoder.h"
#include "decoding/choice_source.h"
#include "decoding/sequence_state.h"
#include "decoding/warped_row.h"

namespace coppice {

// The parameters that likelihoods are read with: the request's warp, or at temperature 0, where the
// warped row is one-hot and rates nothing, the plain row. DraftRow does the same for q.
DecodingParams LikelihoodParams(const DecodingParams& params);

// Tokens of the forest's path: of the one node of each layer from root 0 on, until a layer has more
// nodes or a stop id ends it. Node i of the forest is token i. At most `longest` tokens.
std::vector<TokenId> DraftedPath(const DraftForest& forest, const DecodingParams& params,
                                 int longest);

class PathDecoder : public BeamDecoder {
 public:
  PathDecoder(const DecodingParams& params, std::shared_ptr<ChoiceSource> choices);

  const PathTree& paths() const override { return state_.paths(); }
  absl::Span<const PathId> roots() const override;
  DraftState draft_state() const override;
  int max_useful_depth() const override { return state_.max_useful_depth(); }
  Verdict Advance(const DraftForest& forest, RowSource* rows) override;
  bool finished() const override { return state_.finished(); }
  int layers_committed() const override { return state_.layers(); }
  absl::Span<const LayerOutput> last_layer() const override { return state_.last_layer(); }
  std::vector<TokenId> StablePrefix() const override { return state_.StablePrefix({beam_}); }
  std::vector<Hypothesis> Result() const override { return state_.Result(); }

 protected:
  struct Kept {
    std::vector<double> scores;  // of the drafts that stay, in order: what ls accumulates, nats
    const WarpedRow* next = nullptr;  // the row after them, read with LikelihoodParams
  };
  // How much of the path stays. Row i of the round is the row after i drafts; each may be read
  // once.
  virtual Kept Decide(const DraftForest& forest, absl::Span<const TokenId> path,
                      RowSource* rows) = 0;
  const DecodingParams& params() const { return state_.params(); }
  int layers() const { return state_.layers(); }

 private:
  // False when the sequence has ended.
  bool Commit(TokenId token, double score, RoundLedger* ledger);
  WarpedRow::Candidate DrawFrom(const WarpedRow& row, RoundLedger* ledger);

  SequenceState state_;
  std::shared_ptr<ChoiceSource> choices_;
  Beam beam_;  // the sequence
};

}  // namespace coppice
