// Turns raw logits of target or draft into the row that a decision reads: bans stop ids before
// min_tokens, adds the logit bias, applies the warp. The only place that does so. Called by every
// decoder. Thread-compatible.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "decoding/beam_decoder.h"
#include "decoding/distribution.h"
#include "decoding/params.h"

namespace coppice::decoding {

// The warped row together with what ls accumulates.
struct TargetRow {
  Distribution row;  // pt
  std::vector<double>
      score_log_probs;  // [row.size()] log pt in mode ROW, unwarped log p in ROW_RAW; nats
};

// The warp after `length` generated tokens: params.warp, with the stop ids banned while
// length < min_tokens.
WarpParams WarpAt(const DecodingParams& params, int length);
// Only the warp's bias and bans: temperature 1, nothing cut.
WarpParams Uncut(WarpParams warp);
// Row `row` of the source, for a path of `length` generated tokens.
TargetRow ReadTargetRow(RowSource* rows, int row, const DecodingParams& params, int length);

}  // namespace coppice::decoding
