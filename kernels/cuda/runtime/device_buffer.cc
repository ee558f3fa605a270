#include "kernels/cuda/runtime/device_buffer.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "kernels/cuda/runtime/device_error.h"

namespace coppice::kernels::cuda {

absl::StatusOr<DeviceBuffer> DeviceBuffer::Allocate(size_t bytes, absl::string_view what) {
  COPPICE_CHECK(bytes > 0);
  DeviceBuffer buffer;
  COPPICE_RETURN_IF_ERROR(
      AllocationStatus(cudaMalloc(&buffer.data_, bytes), "cudaMalloc", what, bytes));
  buffer.size_ = bytes;
  return buffer;
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

// An error here belongs to earlier work; the wait for that work reports it.
DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) cudaFree(data_);
}

absl::StatusOr<PinnedBuffer> PinnedBuffer::Allocate(size_t bytes, absl::string_view what) {
  COPPICE_CHECK(bytes > 0);
  PinnedBuffer buffer;
  void* data = nullptr;
  COPPICE_RETURN_IF_ERROR(AllocationStatus(cudaHostAlloc(&data, bytes, cudaHostAllocDefault),
                                           "cudaHostAlloc", what, bytes));
  buffer.data_ = static_cast<uint8_t*>(data);
  buffer.size_ = bytes;
  return buffer;
}

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

PinnedBuffer::~PinnedBuffer() {
  if (data_ != nullptr) cudaFreeHost(data_);
}

}  // namespace coppice::kernels::cuda
