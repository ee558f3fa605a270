// What a decision needs of a row of logits, stated before the forward pass (RowNeed of
// plan/step_plan.h). Knowing it, a GPU or a rank of a tensor-parallel target sends a candidate list
// instead of a row over the whole vocabulary. The decision is the same, bit for bit. Called by
// worker/verify_step for target rows and by draft_node/forest_builder for draft rows. Pure
// functions.
#pragma once

#include <cstddef>
#include <memory>

#include "decoding/params.h"
#include "plan/step_plan.h"

namespace coppice::decoding {

// How a decoder uses its target rows when the sampling parameters keep every token. A cut leaves a
// short row, which serves every use.
struct RowUse {
  enum class Kind {
    kDistribution,  // any entry of the row
    kDraws,         // ProcessedRow::DrawToken
    kRanks,         // ProcessedRow::TopCandidates(reach)
    kNoisyRanks,    // the `reach` best by log pt + noise of slot 0 (docs/algorithms.md 5.8)
  };
  Kind kind = Kind::kDistribution;
  int reach = 1;
  bool likelihood = false;  // read with LikelihoodParams
};

// A row with more biased tokens than this is sent whole: every bias costs a place in the candidate
// list and in the plan, and time on the device. It is twice what a request may have itself.
inline constexpr size_t kMostListedBiases = 2048;

// The same for the tokens that a format allows after a path, in a list of only these.
inline constexpr size_t kMostListedAllowed = 1024;

// With stop strings any number of the best tokens can end a hypothesis, so ranks need whole rows.
// The caller sets row, path_hash and the range of the bias. kDraws asks for the draws of all output
// slots, because any slot may pick any beam as its parent. With more than 32 slots the row is
// needed whole.
//
// With a format, draws and ranks need no more than the logits of the allowed tokens, and a beam
// search the log-sum-exp of the row: a need of the form kRaw, for which the caller lists the allowed
// tokens of every row as its bias, or makes it whole (AllowedAfter).
RowNeed TargetNeed(const DecodingParams& params, const RowUse& use);
// What a row after `length` tokens and this state of the format lists for such a need; nullptr: the
// row is needed whole.
std::shared_ptr<const AllowedTokens> AllowedAfter(const DecodingParams& params, int length,
                                                  OutputFormat::State state);
// For DraftRow.
RowNeed DraftNeed(const DecodingParams& params);

}  // namespace coppice::decoding
