// One decode step of a wide beam search over a long prompt, as a recommender runs it: a model of
// 1.7B parameters (the shape of Qwen3-1.7B), one request. By the number of beams, and by what the
// host gets of each row: the tokens that a catalogue allows, the W+1 best, or all logits.
#pragma once

#include "absl/status/status.h"
#include "kernels/cuda/runtime/device_stream.h"
#include "lab/bench/cuda/predicted_step.h"

namespace coppice::bench {

// Prints a table. details: the counts of each kernel, too.
absl::Status PredictWide(const DeviceModel& device, bool details,
                         kernels::cuda::DeviceStream* stream);

}  // namespace coppice::bench
