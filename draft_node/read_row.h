// A row of a draft's logits as the distribution that a drafter draws from, with what is wrong with
// it. Used by ForestBuilder and BlockForest. Pure functions.
#pragma once

#include "absl/types/span.h"
#include "base/types.h"
#include "decoding/params.h"
#include "kernels/backend.h"
#include "sampling/distribution.h"
#include "sampling/row_path.h"

namespace coppice::draft_node {

// A draft row, or its first invalid logit.
struct ReadRow {
  sampling::Distribution row;
  TokenId bad_token = -1;  // -1: none
  float bad_logit = 0;
};

// The row of a need of the step, after this path.
ReadRow Read(const kernels::StepRows& rows, int need, const decoding::DecodingParams& params,
             const sampling::RowPath& path);
// The same of logits [vocab].
ReadRow Read(absl::Span<const float> logits, const decoding::DecodingParams& params,
             const sampling::RowPath& path);

}  // namespace coppice::draft_node
