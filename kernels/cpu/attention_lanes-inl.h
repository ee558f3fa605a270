// How attention reads vectors: lanes, values in bf16 and codes of 8 bits widened to f32, and the
// keys of 16 positions turned into columns. A code is widened without its scale, so exactly.
// Compiled once per target.
#if defined(COPPICE_KERNELS_CPU_ATTENTION_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef COPPICE_KERNELS_CPU_ATTENTION_LANES_INL_H_
#undef COPPICE_KERNELS_CPU_ATTENTION_LANES_INL_H_
#else
#define COPPICE_KERNELS_CPU_ATTENTION_LANES_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/backend.h"
#include "kernels/element.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Sums over lanes are capped at 8, so that AVX2 and AVX-512 sum in the same order. Where lanes do
// not meet, all are used.
using DA = hn::CappedTag<float, 8>;
using DW = hn::CappedTag<float, 16>;
using VW = hn::Vec<DW>;
inline constexpr int kLanesA = static_cast<int>(hn::MaxLanes(DA()));
inline constexpr int kLanesW = static_cast<int>(hn::MaxLanes(DW()));

template <class D>
HWY_INLINE hn::Vec<D> LoadFloats(D d, const float* p) {
  return hn::LoadU(d, p);
}
template <class D>
HWY_INLINE hn::Vec<D> LoadFloats(D d, const uint16_t* bf16) {
  const hn::Rebind<uint16_t, D> narrow;
  const hn::RebindToUnsigned<D> wide;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(wide, hn::LoadU(narrow, bf16))));
}
template <class D>
HWY_INLINE hn::Vec<D> LoadFloats(D d, const int8_t* codes) {
  const hn::Rebind<int8_t, D> narrow;
  return hn::ConvertTo(d, hn::PromoteTo(hn::RebindToSigned<D>(), hn::LoadU(narrow, codes)));
}

// Eight vectors of eight words become their columns.
template <class D>
HWY_INLINE void Transpose8(D d, hn::Vec<D> (&rows)[8]) {
#if HWY_TARGET != HWY_SCALAR
  const hn::Repartition<uint64_t, D> d64;
  hn::Vec<D> pairs[8], quads[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = hn::InterleaveLower(d, rows[i], rows[i + 1]);
    pairs[i + 1] = hn::InterleaveUpper(d, rows[i], rows[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      const auto a = hn::BitCast(d64, pairs[i + j]), b = hn::BitCast(d64, pairs[i + j + 2]);
      quads[i + 2 * j] = hn::BitCast(d, hn::InterleaveLower(d64, a, b));
      quads[i + 2 * j + 1] = hn::BitCast(d, hn::InterleaveUpper(d64, a, b));
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    rows[i] = hn::ConcatLowerLower(d, quads[i + 4], quads[i]);
    rows[i + 4] = hn::ConcatUpperUpper(d, quads[i + 4], quads[i]);
  }
#endif
}

inline float WidenValue(float value) { return value; }
inline float WidenValue(uint16_t bits) { return Bf16ToFloat(bits); }
inline float WidenValue(int8_t code) { return code; }

// keys[j][t] = value j of position t, from [16][stride]. Dimensions from `begin` on.
template <class T>
HWY_INLINE void TransposeTail(const T* k, int64_t stride, int64_t begin, int64_t dim, float* keys) {
  for (int64_t j = begin; j < dim; ++j) {
    for (int t = 0; t < kBlockSize; ++t) keys[j * kBlockSize + t] = WidenValue(k[t * stride + j]);
  }
}

// Dimensions from `begin` on, eight at a time.
template <class T>
HWY_INLINE void TransposeEights(const T* k, int64_t stride, int64_t begin, int64_t dim,
                                float* HWY_RESTRICT keys) {
  int64_t j = begin;
#if HWY_TARGET != HWY_SCALAR
  const DA d;
  for (; j + 8 <= dim; j += 8) {
    for (int t = 0; t < kBlockSize; t += 8) {
      hn::Vec<DA> rows[8];
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) rows[i] = LoadFloats(d, k + (t + i) * stride + j);
      Transpose8(d, rows);
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) hn::StoreU(rows[i], d, keys + (j + i) * kBlockSize + t);
    }
  }
#endif
  TransposeTail(k, stride, j, dim, keys);
}

HWY_INLINE void TransposeKeys(const float* k, int64_t stride, int64_t dim,
                              float* HWY_RESTRICT keys) {
  TransposeEights(k, stride, 0, dim, keys);
}

// bf16: words of two values are transposed, then widened.
HWY_INLINE void TransposeKeys(const uint16_t* k, int64_t stride, int64_t dim,
                              float* HWY_RESTRICT keys) {
  int64_t j = 0;
#if HWY_TARGET != HWY_SCALAR
  const DA d;
  const hn::RebindToUnsigned<DA> du;
  const auto high = hn::Set(du, 0xffff0000u);
  for (; j + 16 <= dim; j += 16) {
    for (int t = 0; t < kBlockSize; t += 8) {
      hn::Vec<decltype(du)> rows[8];
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i)
        rows[i] = hn::LoadU(du, reinterpret_cast<const uint32_t*>(k + (t + i) * stride + j));
      Transpose8(du, rows);
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) {
        float* out = keys + (j + 2 * i) * kBlockSize + t;
        hn::StoreU(hn::BitCast(d, hn::ShiftLeft<16>(rows[i])), d, out);
        hn::StoreU(hn::BitCast(d, hn::And(rows[i], high)), d, out + kBlockSize);
      }
    }
  }
#endif
  TransposeTail(k, stride, j, dim, keys);
}

// Words of four codes are transposed, then widened.
HWY_INLINE void TransposeKeys(const int8_t* k, int64_t stride, int64_t dim,
                              float* HWY_RESTRICT keys) {
  int64_t j = 0;
#if HWY_TARGET != HWY_SCALAR
  const DA d;
  const hn::RebindToSigned<DA> di;
  for (; j + 32 <= dim; j += 32) {
    for (int t = 0; t < kBlockSize; t += 8) {
      hn::Vec<decltype(di)> rows[8];
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i)
        rows[i] = hn::LoadU(di, reinterpret_cast<const int32_t*>(k + (t + i) * stride + j));
      Transpose8(di, rows);
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) {
        float* const out = keys + (j + 4 * i) * kBlockSize + t;
        const auto widen = [&](hn::Vec<decltype(di)> at_top)
                               HWY_ATTR { return hn::ConvertTo(d, hn::ShiftRight<24>(at_top)); };
        hn::StoreU(widen(hn::ShiftLeft<24>(rows[i])), d, out);
        hn::StoreU(widen(hn::ShiftLeft<16>(rows[i])), d, out + kBlockSize);
        hn::StoreU(widen(hn::ShiftLeft<8>(rows[i])), d, out + 2 * kBlockSize);
        hn::StoreU(widen(rows[i]), d, out + 3 * kBlockSize);
      }
    }
  }
#endif
  TransposeEights(k, stride, j, dim, keys);
}

}  // namespace HWY_NAMESPACE
}  // namespace coppice::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
