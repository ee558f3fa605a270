// Random values in device memory: a pattern made by the host once, and copied on over the device.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/runtime/device_buffer.h"
#include "kernels/cuda/runtime/device_stream.h"

namespace coppice::bench {

// count values in [-size, size) of f32 or bf16. Waits until they are there. The pattern repeats
// after some millions of values; an equal seed gives equal values.
absl::Status FillRandom(void* device, int64_t count, kernels::DType dtype, float size,
                        uint64_t seed, kernels::cuda::DeviceStream* stream);

absl::StatusOr<kernels::cuda::DeviceBuffer> RandomBuffer(int64_t count, kernels::DType dtype,
                                                         float size, uint64_t seed,
                                                         kernels::cuda::DeviceStream* stream);

}  // namespace coppice::bench
