// Arrays of the host in device memory: placed one after the other in a pinned block, then copied at
// once. Two pinned blocks alternate, so that one can be written while the other may still be
// queued; the device's block is one, so that its address stays. Owned by StepUpload.
// Thread-compatible.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/status/status.h"
#include "kernels/cuda/runtime/device_buffer.h"
#include "kernels/cuda/runtime/device_stream.h"

namespace coppice::kernels::cuda {

// Places arrays: first without memory, to learn the size, then with it.
class BlockLayout {
 public:
  static constexpr size_t kAlignment = 16;

  BlockLayout() = default;
  BlockLayout(uint8_t* host, const void* device)
      : host_(host), device_(static_cast<const uint8_t*>(device)) {}

  // Where the values will be in device memory; nullptr without memory. `padded` values at least:
  // those behind the last are `padding`.
  template <class T>
  const T* Add(const std::vector<T>& values, size_t padded = 0, T padding = T()) {
    T* const host = Reserve<T>(std::max(values.size(), padded));
    if (host_ == nullptr) return nullptr;
    if (!values.empty()) std::memcpy(host, values.data(), values.size() * sizeof(T));
    for (size_t i = values.size(); i < padded; ++i) host[i] = padding;
    return reinterpret_cast<const T*>(device_ + (reinterpret_cast<uint8_t*>(host) - host_));
  }
  // Room for this many values, to be written by the caller; nullptr without memory.
  template <class T>
  T* Reserve(size_t count) {
    const size_t offset = bytes_;
    bytes_ = (offset + count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    return host_ == nullptr ? nullptr : reinterpret_cast<T*>(host_ + offset);
  }
  size_t bytes() const { return bytes_; }

 private:
  uint8_t* host_ = nullptr;
  const uint8_t* device_ = nullptr;
  size_t bytes_ = 0;
};

class UploadBlock {
 public:
  // place(layout) adds the arrays, the same at each call. Enqueues the copy. The last copy but one
  // must have been made, and work queued with the device's block must have run if the block is too
  // small now. Errors name `what`.
  template <class Place>
  absl::Status Upload(DeviceStream* stream, absl::string_view what, Place&& place) {
    BlockLayout sizes;
    place(&sizes);
    if (absl::Status grown = Grow(sizes.bytes(), what); !grown.ok()) return grown;
    PinnedBuffer& host = host_[next_];
    next_ = 1 - next_;
    BlockLayout layout(host.data(), device_.data());
    place(&layout);
    return stream->CopyToDevice(device_.data(), host.data(), layout.bytes(), what);
  }
  const void* device() const { return device_.data(); }
  // The pinned block of the last upload.
  const void* host() const { return host_[1 - next_].data(); }

 private:
  absl::Status Grow(size_t bytes, absl::string_view what);

  std::array<PinnedBuffer, 2> host_;
  int next_ = 0;
  DeviceBuffer device_;
};

}  // namespace coppice::kernels::cuda
