// The goals of targets.h, by what is predicted of the steps that they follow from.
#pragma once

#include "absl/status/status.h"
#include "kernels/cuda/runtime/device_stream.h"
#include "lab/bench/cuda/predicted_step.h"

namespace coppice::bench {

// Prints a table. Values that no count gives (the host's part, wgmma's rate) stay open.
absl::Status PredictGoals(const DeviceModel& device, kernels::cuda::DeviceStream* stream);

}  // namespace coppice::bench
