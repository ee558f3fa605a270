// Memory for weights, in huge pages that small matrices share: a matrix of less than 2 MiB has none
// of its own, and reading it from memory is then slower. Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "kernels/cpu/page_buffer.h"

namespace coppice::kernels::cpu {

// A part of a region, which lives as long as one of its parts.
struct WeightMemory {
  uint8_t* data = nullptr;  // zeroed, aligned to 64 bytes
  std::shared_ptr<const PageBuffer> region;
};

class WeightArena {
 public:
  static constexpr size_t kRegionBytes = size_t{32} << 20;  // committed as it is used

  // A size of half a region or more gets its own region. The result may outlive the arena.
  // ResourceExhausted as in PageBuffer::Allocate.
  absl::StatusOr<WeightMemory> Allocate(size_t bytes, std::string_view what);

 private:
  std::shared_ptr<const PageBuffer> region_;  // the one that still has room
  size_t used_ = 0;                           // used bytes of region_
};

}  // namespace coppice::kernels::cpu
