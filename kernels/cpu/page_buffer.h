// Zeroed memory straight from the operating system, touched lazily: weights and KV pools live in
// it. Movable, immutable in size; owner's thread rule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"

namespace coppice::kernels::cpu {

class PageBuffer {
 public:
  // huge_pages: ask for 2 MiB pages (weights, which are streamed whole). ResourceExhausted names
  // `what`, the bytes wanted and the bytes that this machine (or its memory cgroup) has.
  static absl::StatusOr<PageBuffer> Allocate(size_t bytes, bool huge_pages, std::string_view what);
  PageBuffer() = default;
  PageBuffer(PageBuffer&& other) noexcept;
  PageBuffer& operator=(PageBuffer&& other) noexcept;
  ~PageBuffer();

  uint8_t* data() const { return data_; }  // page-aligned
  size_t size() const { return size_; }

 private:
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

// The most memory that this process may ever hold: physical memory or the cgroup's limit, in bytes.
size_t MemoryLimitBytes();

}  // namespace coppice::kernels::cpu
