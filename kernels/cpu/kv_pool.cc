#include "kernels/cpu/kv_pool.h"

#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace coppice::kernels::cpu {

absl::StatusOr<std::unique_ptr<KvPool>> MakeCpuKvPool(const KvPoolShape& shape) {
  const std::string what =
      absl::StrCat("a KV pool of ", shape.blocks, " blocks, ", shape.layers, " layers, ",
                   shape.kv_heads, " heads of ", shape.head_dim, ", ", DTypeName(shape.dtype));
  if (shape.layers <= 0 || shape.kv_heads <= 0 || shape.head_dim <= 0 || shape.blocks <= 0 ||
      shape.dtype == DType::kF16) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": sizes must be positive and the type F32 or BF16"));
  }
  auto pool = std::make_unique<CpuKvPool>();
  pool->shape = shape;
  const size_t per_block = size_t{2} * shape.layers * shape.kv_heads * pool->head_block_bytes();
  if (static_cast<size_t>(shape.blocks) > (size_t{1} << 62) / per_block ||
      shape.blocks > INT32_MAX / kBlockSize) {
    return absl::ResourceExhaustedError(absl::StrCat(what, ": more slots than can be addressed"));
  }
  pool->bytes = per_block * shape.blocks;
  COPPICE_ASSIGN_OR_RETURN(pool->storage,
                           PageBuffer::Allocate(pool->bytes, /*huge_pages=*/false, what));
  return pool;
}

void CopyKv(absl::Span<const KvCopy> copies, CpuKvPool* pool) {
  const int64_t slots = pool->shape.blocks * kBlockSize;
  for (const KvCopy& copy : copies) {
    COPPICE_CHECK(copy.source >= 0 && copy.source < slots);
    COPPICE_CHECK(copy.destination >= 0 && copy.destination < slots);
  }
  for (int layer = 0; layer < pool->shape.layers; ++layer) {
    for (const bool value : {false, true}) {
      for (const KvCopy& copy : copies) {
        for (int head = 0; head < pool->shape.kv_heads; ++head) {
          std::memcpy(pool->Row(layer, value, copy.destination, head),
                      pool->Row(layer, value, copy.source, head), pool->row_bytes());
        }
      }
    }
  }
}

}  // namespace coppice::kernels::cpu
