// The boundary between a model pass and a decision: logits that no softmax can take are an error
// there, not a distribution. Called by the worker for target rows and by the draft node for draft
// rows. -inf is a banned token and fine. Pure.
#pragma once

#include "absl/types/span.h"

namespace coppice::decoding {

// Index of the first NaN or +inf; -1: none.
int FirstBadLogit(absl::Span<const float> logits);

}  // namespace coppice::decoding
