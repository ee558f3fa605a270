// Target and draft rows at one node in the form that the calculators of docs/algorithms.md 7 take,
// and their results. Pure functions.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "decoding/params.h"
#include "lab/experiments/model_pair.h"

namespace coppice::lab {

// p and q [entries], over the tokens that have probability in either. Each sums to 1.
struct NodeRows {
  std::vector<double> p, q;
};
// Processed as the decoders and drafters do; q cut to params.draft_top_k.
NodeRows NodeRowsAt(const PathRows& rows, int position, const decoding::DecodingParams& params);

struct NodeOptimum {
  double iid = 0;                  // alpha* of n drafts drawn with replacement
  double without_replacement = 0;  // alpha* of n drafts drawn without replacement
};
NodeOptimum OptimumAt(const NodeRows& node, int drafts);

// Sum of the target's raw log-probabilities of the tokens, nats.
double PathLogLikelihood(const PathRows& rows, absl::Span<const TokenId> tokens);

}  // namespace coppice::lab
