#include "kernels/cpu/rope.h"

#include <cstring>

#include "base/check.h"
#include "kernels/element.h"

namespace coppice::kernels::cpu {
namespace {

// Pairs (i, i + head_dim / 2), as rotate_half of Hugging Face Llama.
void Rotate(float* __restrict head, const float* __restrict cos, const float* __restrict sin,
            int half) {
  for (int i = 0; i < half; ++i) {
    const float a = head[i];
    const float b = head[i + half];
    head[i] = a * cos[i] - b * sin[i];
    head[i + half] = b * cos[i] + a * sin[i];
  }
}

void StoreRow(const float* row, int head_dim, DType dtype, uint8_t* out) {
  if (dtype == DType::kF32) {
    std::memcpy(out, row, head_dim * sizeof(float));
    return;
  }
  uint16_t* bits = reinterpret_cast<uint16_t*>(out);
  for (int i = 0; i < head_dim; ++i) bits[i] = FloatToBf16(row[i]);
}

}  // namespace

void RopeAndStoreKv(const RopeAndStoreArgs& args, int64_t begin, int64_t end) {
  const KvPoolShape& shape = args.pool->shape;
  const int head_dim = shape.head_dim;
  const int half = head_dim / 2;
  const int heads = args.q_heads + shape.kv_heads;
  COPPICE_CHECK(args.rope->head_dim == head_dim);
  COPPICE_CHECK(args.layer >= 0 && args.layer < shape.layers);
  for (int64_t r = begin; r < end; ++r) {
    const int32_t position = args.positions[r];
    const int32_t slot = args.slots[r];
    COPPICE_CHECK_MSG(position >= 0 && position < args.rope->max_positions,
                      absl::StrCat("position ", position));
    COPPICE_CHECK_MSG(slot >= 0 && slot < shape.blocks * kBlockSize, absl::StrCat("slot ", slot));
    float* row = args.qkv + r * (heads + shape.kv_heads) * head_dim;
    const float* cos = args.rope->cos.data() + int64_t{position} * half;
    const float* sin = args.rope->sin.data() + int64_t{position} * half;
    for (int head = 0; head < heads; ++head) Rotate(row + head * head_dim, cos, sin, half);
    for (int head = 0; head < shape.kv_heads; ++head) {
      const float* k = row + (args.q_heads + head) * head_dim;
      const float* v = row + (heads + head) * head_dim;
      StoreRow(k, head_dim, shape.dtype, args.pool->Row(args.layer, /*value=*/false, slot, head));
      StoreRow(v, head_dim, shape.dtype, args.pool->Row(args.layer, /*value=*/true, slot, head));
    }
  }
}

}  // namespace coppice::kernels::cpu
