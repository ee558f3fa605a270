#include "kernels/kv_pool_shape.h"

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "plan/step_plan.h"

namespace coppice::kernels {

std::string KvPoolName(const KvPoolShape& shape) {
  return absl::StrCat("a KV pool of ", shape.blocks, " blocks, ", shape.layers, " layers, ",
                      shape.kv_heads, " heads of ", shape.head_dim, ", ", DTypeName(shape.dtype));
}

size_t KvVectorBytes(int head_dim, DType dtype) {
  return head_dim * DTypeSize(dtype) + (dtype == DType::kI8 ? sizeof(float) : 0);
}

size_t StateBytes(const KvPoolShape& shape) {
  return sizeof(uint16_t) * shape.state_columns * kBlockSize * static_cast<size_t>(shape.blocks);
}

absl::StatusOr<size_t> KvPoolBytes(const KvPoolShape& shape) {
  if (shape.layers <= 0 || shape.kv_heads <= 0 || shape.head_dim <= 0 || shape.blocks <= 0 ||
      shape.state_columns < 0)
    return absl::InvalidArgumentError(absl::StrCat(KvPoolName(shape), ": sizes must be positive"));
  const size_t per_block = size_t{2} * shape.layers * shape.kv_heads * kBlockSize *
                               KvVectorBytes(shape.head_dim, shape.dtype) +
                           StateBytes(shape) / shape.blocks;
  if (static_cast<size_t>(shape.blocks) > (size_t{1} << 62) / per_block ||
      shape.blocks > INT32_MAX / kBlockSize) {
    return absl::ResourceExhaustedError(
        absl::StrCat(KvPoolName(shape), ": more slots than can be addressed"));
  }
  return per_block * shape.blocks;
}

}  // namespace coppice::kernels
