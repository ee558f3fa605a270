#include "lab/bench/cuda/device_random.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>

#include "base/status.h"
#include "kernels/cuda/runtime/device_error.h"
#include "kernels/element.h"

namespace coppice::bench {
namespace {

constexpr char kWhat[] = "random values";
constexpr int64_t kPattern = (int64_t{1} << 22) - 3;  // odd: rows of a matrix differ

// In [-1, 1), by the state of a 64-bit linear congruential generator.
float NextValue(uint64_t* state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return static_cast<float>(static_cast<int32_t>(*state >> 32)) * 0x1p-31f;
}

}  // namespace

absl::Status FillRandom(void* device, int64_t count, kernels::DType dtype, float size,
                        uint64_t seed, kernels::cuda::DeviceStream* stream) {
  const auto value_bytes = static_cast<int64_t>(kernels::DTypeSize(dtype));
  const int64_t pattern = std::min(count, kPattern);
  COPPICE_ASSIGN_OR_RETURN(const kernels::cuda::PinnedBuffer staging,
                           kernels::cuda::PinnedBuffer::Allocate(pattern * value_bytes, kWhat));
  uint64_t state = seed * 2 + 1;
  for (int64_t i = 0; i < pattern; ++i) {
    const float value = size * NextValue(&state);
    kernels::WithElement(dtype, [&](auto type) {
      const auto bits = kernels::Element<type()>::FromFloat(value);
      std::memcpy(staging.data() + i * sizeof bits, &bits, sizeof bits);
    });
  }
  COPPICE_RETURN_IF_ERROR(
      stream->CopyToDevice(device, staging.data(), pattern * value_bytes, kWhat));
  auto* const bytes = static_cast<uint8_t*>(device);
  for (int64_t done = pattern; done < count;) {
    const int64_t more = std::min(done / pattern * pattern, count - done);
    COPPICE_RETURN_IF_ERROR(kernels::cuda::CudaStatus(
        cudaMemcpyAsync(bytes + done * value_bytes, bytes, more * value_bytes,
                        cudaMemcpyDeviceToDevice, stream->get()),
        "cudaMemcpyAsync", kWhat));
    done += more;
  }
  return stream->Synchronize(kWhat);
}

absl::StatusOr<kernels::cuda::DeviceBuffer> RandomBuffer(int64_t count, kernels::DType dtype,
                                                         float size, uint64_t seed,
                                                         kernels::cuda::DeviceStream* stream) {
  COPPICE_ASSIGN_OR_RETURN(
      kernels::cuda::DeviceBuffer buffer,
      kernels::cuda::DeviceBuffer::Allocate(count * kernels::DTypeSize(dtype), kWhat));
  COPPICE_RETURN_IF_ERROR(FillRandom(buffer.data(), count, dtype, size, seed, stream));
  return buffer;
}

}  // namespace coppice::bench
