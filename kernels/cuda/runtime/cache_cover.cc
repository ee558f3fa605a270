#include "kernels/cuda/runtime/cache_cover.h"

#include <utility>

#include "base/status.h"
#include "kernels/cuda/ops/read_memory.h"
#include "kernels/cuda/runtime/device_error.h"

namespace coppice::kernels::cuda {

absl::StatusOr<CacheCover> CacheCover::Allocate(size_t bytes, const DeviceFacts& device,
                                                absl::string_view what) {
  bytes = (bytes + kReadUnit - 1) / kReadUnit * kReadUnit;
  const int blocks = ReadBlocks(static_cast<int64_t>(bytes), device.multiprocessors);
  COPPICE_ASSIGN_OR_RETURN(DeviceBuffer memory, DeviceBuffer::Allocate(bytes, what));
  COPPICE_ASSIGN_OR_RETURN(DeviceBuffer sums,
                           DeviceBuffer::Allocate(blocks * kReadWarps * sizeof(uint32_t), what));
  return CacheCover(std::move(memory), std::move(sums), blocks);
}

absl::Status CacheCover::Read(DeviceStream* stream, absl::string_view what) {
  ReadMemory(
      {memory_.data(), static_cast<int64_t>(memory_.size()), static_cast<uint32_t*>(sums_.data())},
      blocks_, stream->get());
  return CudaStatus(cudaGetLastError(), "kernel launch", what);
}

}  // namespace coppice::kernels::cuda
