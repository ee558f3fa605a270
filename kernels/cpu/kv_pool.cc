#include "kernels/cpu/kv_pool.h"

#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "kernels/kv_pool_shape.h"

namespace coppice::kernels::cpu {

absl::StatusOr<std::unique_ptr<KvPool>> MakeCpuKvPool(const KvPoolShape& shape) {
  auto pool = std::make_unique<CpuKvPool>();
  pool->shape = shape;
  if (shape.dtype != DType::kF32 && shape.dtype != DType::kBF16 && shape.dtype != DType::kI8) {
    return absl::InvalidArgumentError(
        absl::StrCat(KvPoolName(shape), ": the CPU backend stores KV as F32, BF16 or I8"));
  }
  COPPICE_ASSIGN_OR_RETURN(pool->bytes, KvPoolBytes(shape));
  COPPICE_ASSIGN_OR_RETURN(
      pool->storage, PageBuffer::Allocate(pool->bytes, /*huge_pages=*/false, KvPoolName(shape)));
  return pool;
}

void CopyKv(absl::Span<const KvCopy> copies, CpuKvPool* pool) {
  const int64_t slots = pool->shape.blocks * kBlockSize;
  for (const KvCopy& copy : copies) {
    COPPICE_CHECK(copy.source >= 0 && copy.source < slots);
    COPPICE_CHECK(copy.destination >= 0 && copy.destination < slots);
  }
  const size_t state = sizeof(uint16_t) * pool->shape.state_columns;
  for (const KvCopy& copy : copies) {
    if (state > 0) std::memcpy(pool->State(copy.destination), pool->State(copy.source), state);
  }
  for (int layer = 0; layer < pool->shape.layers; ++layer) {
    for (const bool value : {false, true}) {
      for (const KvCopy& copy : copies) {
        for (int head = 0; head < pool->shape.kv_heads; ++head) {
          std::memcpy(pool->Row(layer, value, copy.destination, head),
                      pool->Row(layer, value, copy.source, head), pool->row_bytes());
          if (!pool->scaled()) continue;
          *pool->Scale(layer, value, copy.destination, head) =
              *pool->Scale(layer, value, copy.source, head);
        }
      }
    }
  }
}

}  // namespace coppice::kernels::cpu
