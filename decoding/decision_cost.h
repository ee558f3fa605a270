// An upper bound on the cost of deciding one layer, in values of noise. Methods over the joint
// layer draw each output from all entries of all beams, on the engine's thread, while every other
// sequence waits. So the coordinator (FitToModel) and the replica (Engine::Start) refuse requests
// that would take too long. Pure.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "decoding/params.h"

namespace coppice::decoding {

// The value for 64 beams over rows of 131,072 tokens: half a second to a second on one core.
inline constexpr int64_t kMaxLayerNoise = int64_t{1} << 29;

// 0 for methods that decide beam by beam, because they cost no more than reading the rows. Also 0
// for parameters that no method serves.
int64_t LayerNoise(const DecodingParams& params, int vocab_size);

// InvalidArgument above kMaxLayerNoise, with the limit and a remedy.
absl::Status CheckDecisionCost(const DecodingParams& params, int vocab_size);

}  // namespace coppice::decoding
