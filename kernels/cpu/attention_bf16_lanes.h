// Vectors of attention_bf16.cc: products of pairs of bf16, transposition, powers of two, and sums and
// maxima of the lanes of eight vectors. x86 with AVX-512 BF16. Only attention_bf16.cc includes it.
#pragma once

// GCC 12 warns of the undefined operands that its own intrinsics pass on (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

#include <cstdint>

// On each function, not on the file: inline functions of headers must stay runnable everywhere.
#define COPPICE_BF16_DOT __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

namespace coppice::kernels::cpu {

COPPICE_BF16_DOT inline __m512 Dot(__m512 sum, uint32_t pair, __m512i pairs) {
  return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_epi32(static_cast<int>(pair)),
                          (__m512bh)pairs);
}

// Sixteen vectors of sixteen words become their columns.
COPPICE_BF16_DOT inline void Transpose16(__m512i (&rows)[16]) {
  __m512i a[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    a[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    a[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    rows[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
    rows[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
    rows[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
    rows[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {  // rows[4 q + i]: quarters of columns i, 4 + i, 8 + i, 12 + i
    const __m512i low0 = _mm512_shuffle_i32x4(rows[i], rows[4 + i], 0x88);
    const __m512i high0 = _mm512_shuffle_i32x4(rows[i], rows[4 + i], 0xdd);
    const __m512i low1 = _mm512_shuffle_i32x4(rows[8 + i], rows[12 + i], 0x88);
    const __m512i high1 = _mm512_shuffle_i32x4(rows[8 + i], rows[12 + i], 0xdd);
    a[i] = _mm512_shuffle_i32x4(low0, low1, 0x88);
    a[8 + i] = _mm512_shuffle_i32x4(low0, low1, 0xdd);
    a[4 + i] = _mm512_shuffle_i32x4(high0, high1, 0x88);
    a[12 + i] = _mm512_shuffle_i32x4(high0, high1, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) rows[i] = a[i];
}

// 2 to the power x for x <= 0, NaN for NaN. x = q + f with |f| <= 1/2, 2^f by its Taylor series to
// f^5, whose relative error is below 3e-6. 2^0 is exactly 1, 2 to below -150 is 0.
COPPICE_BF16_DOT inline __m512 PowerOfTwo(__m512 x) {
  x = _mm512_max_ps(_mm512_set1_ps(-200.0f), x);  // maximum; the second operand where one is NaN
  const __m512 q = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 f = _mm512_sub_ps(x, q);
  __m512 p = _mm512_set1_ps(1.33335581e-3f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.61812911e-3f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.55041087e-2f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.40226507e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.93147181e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, q);
}

struct Larger {
  COPPICE_BF16_DOT __m256 operator()(__m256 a, __m256 b) const { return _mm256_max_ps(a, b); }
};
struct Sum {
  COPPICE_BF16_DOT __m256 operator()(__m256 a, __m256 b) const { return _mm256_add_ps(a, b); }
};

// Every lane of the result is the lanes of `of`, joined in the order of JoinLanes.
template <class Join>
COPPICE_BF16_DOT inline __m256 JoinOne(__m512 of, Join join) {
  const __m256 half = join(_mm512_castps512_ps256(of), _mm512_extractf32x8_ps(of, 1));
  const __m256 pair = join(half, _mm256_permute_ps(half, 0x4e));
  const __m256 quad = join(pair, _mm256_permute_ps(pair, 0xb1));
  return join(quad, _mm256_permute2f128_ps(quad, quad, 0x01));
}

// Lane q < kCount of the result is the lanes of of[q], joined. The order does not depend on q.
template <int kCount, class Join>
COPPICE_BF16_DOT inline __m256 JoinLanes(const __m512 (&of)[8], Join join) {
  if constexpr (kCount == 1) return JoinOne(of[0], join);
  if constexpr (kCount == 2) return _mm256_unpacklo_ps(JoinOne(of[0], join), JoinOne(of[1], join));
  __m256 halves[8], pairs[4], quads[2];
#pragma GCC unroll 8
  for (int q = 0; q < 8; ++q) {
    const __m512 lanes = of[q < kCount ? q : 0];
    halves[q] = join(_mm512_castps512_ps256(lanes), _mm512_extractf32x8_ps(lanes, 1));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    pairs[i] = join(_mm256_unpacklo_ps(halves[2 * i], halves[2 * i + 1]),
                    _mm256_unpackhi_ps(halves[2 * i], halves[2 * i + 1]));
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const __m256d a = _mm256_castps_pd(pairs[2 * i]), b = _mm256_castps_pd(pairs[2 * i + 1]);
    quads[i] = join(_mm256_castpd_ps(_mm256_unpacklo_pd(a, b)),
                    _mm256_castpd_ps(_mm256_unpackhi_pd(a, b)));
  }
  return join(_mm256_permute2f128_ps(quads[0], quads[1], 0x20),
              _mm256_permute2f128_ps(quads[0], quads[1], 0x31));
}

}  // namespace coppice::kernels::cpu
