// Whether a ForwardBatch is well formed: the last line before kernels index memory by it. A plan
// comes over a socket, so a wrong one is an error, not a crash. Called by Transformer::Forward.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/forward_batch.h"

namespace coppice {

struct BatchLimits {
  int max_rows = 0;
  int vocab_size = 0;
  int max_positions = 0;
  int64_t blocks = 0;  // of the KV pool, the sink included
};

// InvalidArgument names the first row and field that break the contract of ForwardBatch or a limit.
// O(rows + chain + table entries).
absl::Status CheckBatch(const ForwardBatch& batch, const BatchLimits& limits);

}  // namespace coppice
