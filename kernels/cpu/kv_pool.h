// The KV pool in host memory: per layer K then V, each [block][kv_head][kBlockSize][head_dim] of
// f32, bf16 or codes of 8 bits, each [kBlockSize][head_dim] of these with its scales behind it;
// then the states of all slots. Memory is 64-byte aligned, zero, and committed on first use.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cpu/page_buffer.h"
#include "kernels/kv_pool_shape.h"

namespace coppice::kernels::cpu {

class CpuKvPool : public KvPool {
 public:
  // First byte of the head's rows of one block, [kBlockSize][head_dim]. value: false K, true V.
  uint8_t* HeadBlock(int layer, bool value, int64_t block, int kv_head) const {
    const int64_t plane = int64_t{2} * layer + value;
    return storage.data() +
           ((plane * shape.blocks + block) * shape.kv_heads + kv_head) * head_block_bytes();
  }
  // The vector [head_dim] of one slot.
  uint8_t* Row(int layer, bool value, int32_t slot, int kv_head) const {
    return HeadBlock(layer, value, slot / kBlockSize, kv_head) + slot % kBlockSize * row_bytes();
  }
  // With kI8: the scales [kBlockSize] of the head's rows of one block.
  float* Scales(int layer, bool value, int64_t block, int kv_head) const {
    return reinterpret_cast<float*>(HeadBlock(layer, value, block, kv_head) +
                                    kBlockSize * row_bytes());
  }
  float* Scale(int layer, bool value, int32_t slot, int kv_head) const {
    return Scales(layer, value, slot / kBlockSize, kv_head) + slot % kBlockSize;
  }
  // The state [state_columns] of one slot, bf16.
  uint16_t* State(int32_t slot) const {
    return reinterpret_cast<uint16_t*>(storage.data() + bytes - StateBytes(shape)) +
           int64_t{slot} * shape.state_columns;
  }
  bool scaled() const { return shape.dtype == DType::kI8; }
  // Bytes of a vector without its scale. Inline, because attention calls it for each vector.
  size_t row_bytes() const {
    return shape.head_dim * (shape.dtype == DType::kF32 ? 4 : shape.dtype == DType::kBF16 ? 2 : 1);
  }
  size_t head_block_bytes() const {
    return kBlockSize * (row_bytes() + (scaled() ? sizeof(float) : 0));
  }

  PageBuffer storage;
};

// InvalidArgument names a field out of range. ResourceExhausted: the pool is larger than memory.
absl::StatusOr<std::unique_ptr<KvPool>> MakeCpuKvPool(const KvPoolShape& shape);

void CopyKv(absl::Span<const KvCopy> copies, CpuKvPool* pool);

}  // namespace coppice::kernels::cpu
