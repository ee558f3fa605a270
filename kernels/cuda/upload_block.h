// Arrays of the host in device memory: placed one after the other in a pinned block, then copied at
// once. Owned by what uploads plans and work lists. Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/status/status.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/device_stream.h"

namespace coppice::kernels::cuda {

// Places arrays: first without memory, to learn the size, then with it.
class BlockLayout {
 public:
  static constexpr size_t kAlignment = 16;

  BlockLayout() = default;
  BlockLayout(uint8_t* host, const void* device)
      : host_(host), device_(static_cast<const uint8_t*>(device)) {}

  // Where the values will be in device memory; nullptr without memory.
  template <class T>
  const T* Add(const std::vector<T>& values) {
    const size_t offset = bytes_, size = values.size() * sizeof(T);
    bytes_ = (offset + size + kAlignment - 1) / kAlignment * kAlignment;
    if (host_ == nullptr) return nullptr;
    if (size > 0) std::memcpy(host_ + offset, values.data(), size);
    return reinterpret_cast<const T*>(device_ + offset);
  }
  size_t bytes() const { return bytes_; }

 private:
  uint8_t* host_ = nullptr;
  const uint8_t* device_ = nullptr;
  size_t bytes_ = 0;
};

class UploadBlock {
 public:
  // place(layout) adds the arrays, the same at each call, and keeps the pointers of the last.
  // Enqueues the copy; what was copied last must have been. `what` is named by errors.
  template <class Place>
  absl::Status Upload(DeviceStream* stream, absl::string_view what, Place&& place) {
    BlockLayout sizes;
    place(&sizes);
    if (absl::Status grown = Grow(sizes.bytes(), what); !grown.ok()) return grown;
    BlockLayout layout(host_.data(), device_.data());
    place(&layout);
    return stream->CopyToDevice(device_.data(), host_.data(), layout.bytes(), what);
  }

 private:
  absl::Status Grow(size_t bytes, absl::string_view what);

  PinnedBuffer host_;
  DeviceBuffer device_;
};

}  // namespace coppice::kernels::cuda
