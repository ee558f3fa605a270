// Memory of the device, and pinned memory of the host that the device copies from and to. Owned,
// movable, not initialised. The owner must make sure that no queued work uses what it frees.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace coppice::kernels::cuda {

class DeviceBuffer {
 public:
  // ResourceExhausted names `what`, the bytes needed and those free. bytes > 0.
  static absl::StatusOr<DeviceBuffer> Allocate(size_t bytes, absl::string_view what);
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();

  void* data() const { return data_; }  // aligned to 256 bytes
  float* floats() const { return static_cast<float*>(data_); }
  size_t size() const { return size_; }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

class PinnedBuffer {
 public:
  // ResourceExhausted names `what` and the bytes needed. bytes > 0.
  static absl::StatusOr<PinnedBuffer> Allocate(size_t bytes, absl::string_view what);
  PinnedBuffer() = default;
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;
  ~PinnedBuffer();

  uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

// Replaces the buffer if it has fewer bytes: by one of twice as many, so that it seldom grows.
template <class Buffer>
absl::Status GrowBuffer(size_t bytes, absl::string_view what, Buffer* buffer) {
  if (buffer->size() >= bytes) return absl::OkStatus();
  absl::StatusOr<Buffer> larger = Buffer::Allocate(2 * bytes, what);
  if (larger.ok()) *buffer = *std::move(larger);
  return larger.status();
}

}  // namespace coppice::kernels::cuda
