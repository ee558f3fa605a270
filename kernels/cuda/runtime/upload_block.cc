#include "kernels/cuda/runtime/upload_block.h"

#include <algorithm>
#include <bit>

#include "base/status.h"

namespace coppice::kernels::cuda {
namespace {

constexpr size_t kLeastBytes = size_t{64} << 10;

}  // namespace

absl::Status UploadBlock::Grow(size_t bytes, absl::string_view what) {
  const size_t size = std::bit_ceil(std::max(bytes, kLeastBytes));
  if (host_[next_].size() < bytes) {
    COPPICE_ASSIGN_OR_RETURN(host_[next_], PinnedBuffer::Allocate(size, what));
  }
  if (device_.size() < bytes) {
    COPPICE_ASSIGN_OR_RETURN(device_, DeviceBuffer::Allocate(size, what));
  }
  return absl::OkStatus();
}

}  // namespace coppice::kernels::cuda
