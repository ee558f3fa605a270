// Zeroed memory from the operating system, committed on first use, for weights and KV pools.
// Movable; the size is fixed. Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"

namespace coppice::kernels::cpu {

class PageBuffer {
 public:
  // huge_pages: ask for 2 MiB pages (for weights, which are streamed). ResourceExhausted names
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

// The memory that this process can have at most, in bytes: physical memory or the cgroup's limit.
size_t MemoryLimitBytes();

}  // namespace coppice::kernels::cpu
