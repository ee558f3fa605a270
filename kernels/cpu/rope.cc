#include "kernels/cpu/rope.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

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

// The codes of a vector, and its scale (KvPoolShape). Every target gives the same bits.
float StoreCodes(const float* HWY_RESTRICT row, int count, int8_t* HWY_RESTRICT codes) {
  const DR d;
  const hn::RebindToSigned<DR> di;
  const hn::Rebind<int8_t, DR> narrow;
  constexpr int32_t kInfinite = 0x7f800000;
  // Bits of magnitudes are ordered as the magnitudes, with infinity and NaN last.
  auto most = hn::Zero(di);
  int i = 0;
  for (; i + kLanesR <= count; i += kLanesR)
    most = hn::Max(most, hn::BitCast(di, hn::Abs(hn::LoadU(d, row + i))));
  int32_t largest = hn::GetLane(hn::MaxOfLanes(di, most));
  for (; i < count; ++i)
    largest =
        std::max(largest, std::bit_cast<int32_t>(row[i]) & std::numeric_limits<int32_t>::max());
  const float scale = std::bit_cast<float>(largest) / 127.0f;
  if (largest >= kInfinite || scale < std::numeric_limits<float>::min()) {
    std::fill_n(codes, count, int8_t{0});
    return largest >= kInfinite ? std::numeric_limits<float>::quiet_NaN() : 0.0f;
  }
  // The last place of kShift is 1, so the sum is rounded to an integer, ties to even.
  constexpr float kShift = 0x1.8p23f;
  const auto steps = hn::Set(d, scale), shift = hn::Set(d, kShift);
  for (i = 0; i + kLanesR <= count; i += kLanesR) {
    const auto shifted = hn::Add(hn::Div(hn::LoadU(d, row + i), steps), shift);
    const auto code = hn::Sub(hn::BitCast(di, shifted), hn::BitCast(di, shift));
    hn::StoreU(hn::DemoteTo(narrow, code), narrow, codes + i);
  }
  for (; i < count; ++i)
    codes[i] = static_cast<int8_t>(std::bit_cast<int32_t>(row[i] / scale + kShift) -
                                   std::bit_cast<int32_t>(kShift));
  return scale;
}

}  // namespace HWY_NAMESPACE
}  // namespace coppice::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice::kernels::cpu {

HWY_EXPORT(Rotate);
HWY_EXPORT(StoreBf16);
HWY_EXPORT(StoreCodes);

namespace {

void StoreVector(const float* vector, int layer, bool value, int32_t slot, int head,
                 const CpuKvPool& pool) {
  uint8_t* const out = pool.Row(layer, value, slot, head);
  const int head_dim = pool.shape.head_dim;
  if (pool.shape.dtype == DType::kF32) {
    std::memcpy(out, vector, head_dim * sizeof(float));
  } else if (pool.scaled()) {
    *pool.Scale(layer, value, slot, head) =
        HWY_DYNAMIC_DISPATCH(StoreCodes)(vector, head_dim, reinterpret_cast<int8_t*>(out));
  } else {
    HWY_DYNAMIC_DISPATCH(StoreBf16)(vector, head_dim, reinterpret_cast<uint16_t*>(out));
  }
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
      StoreVector(k, args.layer, /*value=*/false, slot, head, *args.pool);
      StoreVector(v, args.layer, /*value=*/true, slot, head, *args.pool);
    }
  }
}

}  // namespace coppice::kernels::cpu
#endif  // HWY_ONCE
