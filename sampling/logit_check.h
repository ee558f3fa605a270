// Checks logits between a model pass and a decision: NaN and +inf are an error, not a distribution.
// Called by the worker for target rows and by the draft node for draft rows. -inf bans a token and
// is allowed. Pure.
#pragma once

#include "absl/types/span.h"

namespace coppice::sampling {

// Index of the first NaN or +inf; -1: none.
int FirstBadLogit(absl::Span<const float> logits);

}  // namespace coppice::sampling
