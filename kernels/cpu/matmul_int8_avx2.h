// The register tile of a product with integer weights on AVX2. Only matmul_int8.cc includes it.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/integer_tiles.h"

namespace coppice::kernels::cpu {

// Half of the lanes of a step, and what its products are added to within a group.
template <class Weights>
struct Avx2Step;

// |w| times x with the sign of w: the sums of two such products fit 16 bits.
template <>
struct Avx2Step<Int8Weights> {
  __m256i q, magnitude;
  COPPICE_AVX2 explicit Avx2Step(__m256i step)
      : q(_mm256_xor_si256(step, _mm256_set1_epi8(-128))), magnitude(_mm256_abs_epi8(q)) {}
  COPPICE_AVX2 void AddProducts(__m256i x, int /*vector*/, __m256i* sum) const {
    const __m256i pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(x, q));
    *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
  COPPICE_AVX2 static __m256i Total(__m256i sum, int32_t /*correction*/) { return sum; }
  COPPICE_AVX2 static __m256 Scale(const uint8_t* block, int half, int /*part*/) {
    return _mm256_load_ps(reinterpret_cast<const float*>(block) + half * 8);
  }
};

// Codes of at most 15: the sums of all 16 products of a group, in pairs, fit 16 bits.
template <>
struct Avx2Step<Int4Weights> {
  __m256i codes[2];
  COPPICE_AVX2 explicit Avx2Step(__m256i step) {
    const __m256i low = _mm256_set1_epi8(15);
    codes[0] = _mm256_and_si256(step, low);
    codes[1] = _mm256_and_si256(_mm256_srli_epi16(step, 4), low);
  }
  COPPICE_AVX2 void AddProducts(__m256i x, int vector, __m256i* sum) const {
    *sum = _mm256_add_epi16(*sum, _mm256_maddubs_epi16(codes[vector], x));
  }
  COPPICE_AVX2 static __m256i Total(__m256i sum, int32_t correction) {
    return _mm256_add_epi32(_mm256_madd_epi16(sum, _mm256_set1_epi16(1)),
                            _mm256_set1_epi32(correction));
  }
  COPPICE_AVX2 static __m256 Scale(const uint8_t* block, int half, int part) {
    const __m256i pairs = _mm256_load_si256(reinterpret_cast<const __m256i*>(block) + half);
    return _mm256_castsi256_ps(part == 0 ? _mm256_slli_epi32(pairs, 16)
                                         : _mm256_and_si256(pairs, _mm256_set1_epi32(-65536)));
  }
};

// A block of some rows of the input. correction: of each part.
struct Avx2Rows {
  const uint32_t* words;
  const float* scale;
  const int32_t* correction;
};

// The sums of one group of a block for kRows rows, added to acc. Of the halves of the lanes
// kTogether are summed at a time: few rows leave registers for both.
template <class Weights, int kRows, int kTogether>
COPPICE_AVX2 inline void Avx2Group(const uint8_t* block, int part, const Avx2Rows& rows,
                                   __m256 (*acc)[2]) {
  constexpr int kSteps = Weights::kSteps, kVectors = Weights::kVectors;
  using Step = Avx2Step<Weights>;
  const uint8_t* group = block + kScaleBytes + part * kSteps * kStepBytes;
  const uint32_t* words = rows.words + part * kVectors * kSteps;
#pragma GCC unroll 2
  for (int first = 0; first < 2; first += kTogether) {
    __m256i sum[kRows][kTogether];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
      for (int h = 0; h < kTogether; ++h) sum[r][h] = _mm256_setzero_si256();
    }
    const uint8_t* bytes = group + first * kStepBytes / 2;
    // Unrolled, the steps would take more registers than there are.
#pragma GCC unroll 1
    for (int k = 0; k < kSteps; ++k) {
      if (first == 0)
        _mm_prefetch(reinterpret_cast<const char*>(bytes + kIntegerPrefetchBytes), _MM_HINT_T0);
#pragma GCC unroll 2
      for (int h = 0; h < kTogether; ++h) {
        const Step step(_mm256_load_si256(reinterpret_cast<const __m256i*>(bytes) + h));
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 16
          for (int r = 0; r < kRows; ++r) {
            const uint32_t x = words[r * kGroupWords + v * kSteps + k];
            step.AddProducts(_mm256_set1_epi32(static_cast<int>(x)), v, &sum[r][h]);
          }
        }
      }
      bytes += kStepBytes;
    }
#pragma GCC unroll 2
    for (int h = 0; h < kTogether; ++h) {
      const __m256 w_scale = Step::Scale(block, first + h, part);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const __m256i total = Step::Total(sum[r][h], rows.correction[r * Weights::kParts + part]);
        const __m256 factor = _mm256_mul_ps(w_scale, _mm256_set1_ps(rows.scale[r]));
        acc[r][first + h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(total), factor, acc[r][first + h]);
      }
    }
  }
}

// With this many rows, registers hold the sums of both halves.
inline constexpr int kMostTogether = 3;

// AVX2: kRows rows of one panel.
template <class Weights, int kRows>
COPPICE_AVX2 __attribute__((noinline)) void Avx2Tile(const IntegerProduct& product, int64_t row,
                                                     int64_t panel) {
  constexpr int kParts = Weights::kParts;
  const MatMulArgs& args = *product.args;
  const int64_t blocks = Int8Groups(args.w->columns);
  const uint8_t* block = args.w->panel(panel);
  const Int8Rows& x = *product.x;
  Avx2Rows rows = {x.words.data() + row * kGroupWords, x.scale.data() + row,
                   x.correction.data() + row * kParts};
  __m256 acc[kRows][2];
  for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = _mm256_setzero_ps();
  for (int64_t b = 0; b < blocks; ++b) {
#pragma GCC unroll 2
    for (int part = 0; part < kParts; ++part)
      Avx2Group<Weights, kRows, kRows <= kMostTogether ? 2 : 1>(block, part, rows, acc);
    block += Weights::kBlockBytes;
    rows.words += x.rows * kGroupWords;
    rows.scale += x.rows;
    rows.correction += x.rows * kParts;
  }
  const int64_t first = panel * kPanelWidth;
  const int64_t count = std::min(kPanelWidth, args.w->rows - first);
  for (int r = 0; r < kRows; ++r) {
    float sums[kPanelWidth];
    _mm256_storeu_ps(sums, acc[r][0]);
    _mm256_storeu_ps(sums + 8, acc[r][1]);
    for (int64_t lane = 0; lane < count; ++lane) StoreOne(args, row + r, first + lane, sums[lane]);
  }
}

}  // namespace coppice::kernels::cpu
