// What deciding one layer costs at most, in values of noise. Methods over the joint layer draw
// every output from all entries of all beams, on the engine's thread, where every other sequence
// waits: the coordinator (FitToModel) and the replica (Engine::Start) refuse what would take too
// long. Pure.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "decoding/params.h"

namespace coppice {

// Half a second to a second of one core; 64 beams over rows of 131,072 tokens.
inline constexpr int64_t kMaxLayerNoise = int64_t{1} << 29;

// 0 for methods that decide beam by beam, whose cost is that of reading the rows.
// 0 for parameters that no method serves, too.
int64_t LayerNoise(const DecodingParams& params, int vocab_size);

// InvalidArgument, with the limit and what helps: above kMaxLayerNoise.
absl::Status CheckDecisionCost(const DecodingParams& params, int vocab_size);

}  // namespace coppice
