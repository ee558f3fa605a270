#include "kernels/cpu/rope.h"

#include <cstring>

#include "base/check.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/targets.h"
#include "kernels/element.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rope.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DR = hn::CappedTag<float, 8>;
inline constexpr int kLanesR = static_cast<int>(hn::MaxLanes(DR()));

// Pairs (i, i + half), as rotate_half of Hugging Face Llama.
void Rotate(float* HWY_RESTRICT head, const float* HWY_RESTRICT cos, const float* HWY_RESTRICT sin,
            int half) {
  const DR d;
  int i = 0;
  for (; i + kLanesR <= half; i += kLanesR) {
    const auto a = hn::LoadU(d, head + i), b = hn::LoadU(d, head + i + half);
    const auto c = hn::LoadU(d, cos + i), s = hn::LoadU(d, sin + i);
    hn::StoreU(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), d, head + i);
    hn::StoreU(hn::Add(hn::Mul(b, c), hn::Mul(a, s)), d, head + i + half);
  }
  for (; i < half; ++i) {
    const float a = head[i];
    const float b = head[i + half];
    head[i] = a * cos[i] - b * sin[i];
    head[i + half] = b * cos[i] + a * sin[i];
  }
}

// FloatToBf16 of each.
void StoreBf16(const float* HWY_RESTRICT row, int count, uint16_t* HWY_RESTRICT bits) {
  const hn::RebindToSigned<DR> d;
  const hn::Rebind<uint16_t, DR> narrow;
  const auto one = hn::Set(d, 1);
  int i = 0;
  for (; i + kLanesR <= count; i += kLanesR) {
    const auto value = hn::BitCast(d, hn::LoadU(DR(), row + i));
    const auto high = hn::And(hn::ShiftRight<16>(value), hn::Set(d, 0xffff));
    const auto ties = hn::Add(hn::Set(d, 0x7fff), hn::And(high, one));
    const auto rounded = hn::And(hn::ShiftRight<16>(hn::Add(value, ties)), hn::Set(d, 0xffff));
    const auto is_nan = hn::Gt(hn::And(value, hn::Set(d, 0x7fffffff)), hn::Set(d, 0x7f800000));
    const auto result = hn::IfThenElse(is_nan, hn::Or(high, hn::Set(d, 0x40)), rounded);
    hn::StoreU(hn::DemoteTo(narrow, result), narrow, bits + i);
  }
  for (; i < count; ++i) bits[i] = FloatToBf16(row[i]);
}

}  // namespace HWY_NAMESPACE
}  // namespace coppice::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice::kernels::cpu {

HWY_EXPORT(Rotate);
HWY_EXPORT(StoreBf16);

namespace {

void StoreRow(const float* row, int head_dim, DType dtype, uint8_t* out) {
  if (dtype == DType::kF32) {
    std::memcpy(out, row, head_dim * sizeof(float));
    return;
  }
  HWY_DYNAMIC_DISPATCH(StoreBf16)(row, head_dim, reinterpret_cast<uint16_t*>(out));
}

// The norm of each head, or of all together, as many values as the gain has at a time.
void NormHeads(const NormArgs& norm, int64_t values, float* heads) {
  if (norm.gain == nullptr) return;
  COPPICE_CHECK(values % norm.columns == 0);
  NormRows(norm, heads, values / norm.columns, norm.columns, heads);
}

}  // namespace

void RopeAndStoreKv(const RopeAndStoreArgs& args, int64_t begin, int64_t end) {
  const KvPoolShape& shape = args.pool->shape;
  const int head_dim = shape.head_dim;
  const int heads = args.q_heads + shape.kv_heads;
  const int rotated = args.rope == nullptr ? 0 : args.rope->rotary_dim;
  COPPICE_CHECK(rotated <= head_dim);
  COPPICE_CHECK(args.layer >= 0 && args.layer < shape.layers);
  for (int64_t r = begin; r < end; ++r) {
    const int32_t position = args.positions[r];
    const int32_t slot = args.slots[r];
    COPPICE_CHECK_MSG(position >= 0 && (rotated == 0 || position < args.rope->max_positions),
                      absl::StrCat("position ", position));
    COPPICE_CHECK_MSG(slot >= 0 && slot < shape.blocks * kBlockSize, absl::StrCat("slot ", slot));
    float* row = args.qkv + r * (heads + shape.kv_heads) * head_dim;
    float* const k_heads = row + int64_t{args.q_heads} * head_dim;
    NormHeads(args.q_norm, args.q_heads * head_dim, row);
    NormHeads(args.k_norm, shape.kv_heads * head_dim, k_heads);
    if (rotated > 0) {
      const int half = rotated / 2;
      const float* cos = args.rope->cos.data() + int64_t{position} * half;
      const float* sin = args.rope->sin.data() + int64_t{position} * half;
      for (int head = 0; head < heads; ++head)
        HWY_DYNAMIC_DISPATCH(Rotate)(row + head * head_dim, cos, sin, half);
    }
    for (int head = 0; head < shape.kv_heads; ++head) {
      const float* k = k_heads + head * head_dim;
      const float* v = row + (heads + head) * head_dim;
      StoreRow(k, head_dim, shape.dtype, args.pool->Row(args.layer, /*value=*/false, slot, head));
      StoreRow(v, head_dim, shape.dtype, args.pool->Row(args.layer, /*value=*/true, slot, head));
    }
  }
}

}  // namespace coppice::kernels::cpu
#endif  // HWY_ONCE
