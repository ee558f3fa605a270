// Turns raw logits of target or draft into the row that a decision reads: bans stop ids before
// min_tokens and tokens that the output's format does not allow, adds the logit bias, applies
// penalties and the other sampling parameters. The only place that does so. Called by every
// decoder. Thread-compatible.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "sampling/distribution.h"
#include "sampling/row_params.h"
#include "sampling/row_path.h"
#include "sampling/row_source.h"

namespace coppice::sampling {

// The processed row together with what ls accumulates.
struct TargetRow {
  Distribution row;  // pt
  std::vector<double>
      score_log_probs;  // [row.size()] log pt in mode ROW, raw log p in ROW_RAW; nats
};

// The sampling parameters after a path: params.sampling, with the stop ids banned while the path is
// shorter than min_tokens, with the effect of the penalties and the tokens that the output's format
// allows.
SamplingParams SamplingAt(const RowParams& params, const RowPath& path);
// params.sampling with the stop ids banned.
SamplingParams WithoutStops(const RowParams& params);
// Adds the effect of the penalties after `path` to *sampling, if there are any. prompt_ids,
// prompt_ngrams: as in RowParams. Without a repetition penalty they become entries of logit_bias,
// one per token, so that a device that adds biases gives the same bits; n-grams always do.
void Penalise(const std::vector<TokenId>* prompt_ids, const RepeatedNgrams* prompt_ngrams,
              const RowPath& path, SamplingParams* sampling);
// Only the sampling parameters' bias and bans: temperature 1, nothing cut.
SamplingParams Uncut(SamplingParams sampling);
// Row `row` of the source.
TargetRow ReadTargetRow(RowSource* rows, int row, const RowParams& params, const RowPath& path);

}  // namespace coppice::sampling
