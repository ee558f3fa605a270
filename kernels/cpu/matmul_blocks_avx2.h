// The register tile of a product with weights in blocks on AVX2. Only matmul_blocks.cc includes it.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/block_panel.h"
#include "kernels/cpu/integer_tiles.h"

namespace coppice::kernels::cpu {

COPPICE_AVX2 inline __m256i LoadHalfStep(const uint8_t* step, int half) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(step) + half);
}

// The sums of the products of a group, for kTogether halves of the lanes from `first` on. words:
// of the group, of each row kGroupWords apart.
template <class Codes>
struct Avx2Sums;

// Sums of pairs of products fit 16 bits for half of the high bits, or for all codes of 4 bits.
template <int kHigh, int kSteps>
struct Avx2Sums<NibbleCodes<kHigh, kSteps>> {
  using Codes = NibbleCodes<kHigh, kSteps>;
  static constexpr int kRuns = kHigh > 0 ? 2 : 1, kStepsOfRun = kSteps / kRuns;
  static_assert(((16 << kHigh) - 1) * 127 * 2 * 2 * kStepsOfRun <= 32767);

  template <int kRows, int kTogether>
  COPPICE_AVX2 static inline void Of(const uint8_t* group, const uint32_t* words, int first,
                                     __m256i (*sum)[kTogether]) {
    const __m256i low = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    const __m256i above = _mm256_set1_epi8(((1 << kHigh) - 1) << 4);
#pragma GCC unroll 1
    for (int run = 0; run < kRuns; ++run) {
      __m256i pairs[kRows][kTogether], high[kTogether];
#pragma GCC unroll 2
      for (int h = 0; h < kTogether; ++h) {
        if constexpr (kHigh > 0) {
          high[h] = LoadHalfStep(group, first + h);
          high[h] = _mm256_sll_epi16(high[h], _mm_cvtsi32_si128(run * 4));
        }
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) pairs[r][h] = _mm256_setzero_si256();
      }
      const uint8_t* bytes = group + Codes::kHighBytes + run * kStepsOfRun * kStepBytes;
      // Unrolled, the steps would take more registers than there are.
#pragma GCC unroll 1
      for (int k = 0; k < kStepsOfRun; ++k) {
        words = Anew(words);
        if (first == 0)
          _mm_prefetch(reinterpret_cast<const char*>(bytes + kIntegerPrefetchBytes), _MM_HINT_T0);
#pragma GCC unroll 2
        for (int h = 0; h < kTogether; ++h) {
          const __m256i step = LoadHalfStep(bytes, first + h);
          __m256i codes[2] = {_mm256_and_si256(step, low),
                              _mm256_and_si256(_mm256_srli_epi16(step, 4), low)};
#pragma GCC unroll 2
          for (int v = 0; v < 2; ++v) {
            if constexpr (kHigh > 0) {
              codes[v] = _mm256_or_si256(codes[v], _mm256_and_si256(high[h], above));
              high[h] = _mm256_srli_epi16(high[h], kHigh);
            }
#pragma GCC unroll 16
            for (int r = 0; r < kRows; ++r) {
              const uint32_t x = words[r * kGroupWords + v * kSteps + run * kStepsOfRun + k];
              pairs[r][h] = _mm256_add_epi16(
                  pairs[r][h],
                  _mm256_maddubs_epi16(codes[v], _mm256_set1_epi32(static_cast<int>(x))));
            }
          }
        }
        bytes += kStepBytes;
      }
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
        for (int h = 0; h < kTogether; ++h) {
          const __m256i total = _mm256_madd_epi16(pairs[r][h], ones);
          sum[r][h] = run == 0 ? total : _mm256_add_epi32(sum[r][h], total);
        }
      }
    }
  }
};

// |w| times x with the sign of w: the sums of two such products fit 16 bits.
template <int kRows, int kTogether>
COPPICE_AVX2 inline void AddSigned(__m256i q, const uint32_t* words, int h,
                                   __m256i (*sum)[kTogether]) {
  const __m256i magnitude = _mm256_abs_epi8(q), ones = _mm256_set1_epi16(1);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const __m256i x = _mm256_set1_epi32(static_cast<int>(words[r * kGroupWords]));
    const __m256i pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(x, q));
    sum[r][h] = _mm256_add_epi32(sum[r][h], _mm256_madd_epi16(pairs, ones));
  }
}

template <>
struct Avx2Sums<ByteCodes> {
  template <int kRows, int kTogether>
  COPPICE_AVX2 static inline void Of(const uint8_t* group, const uint32_t* words, int first,
                                     __m256i (*sum)[kTogether]) {
    for (int r = 0; r < kRows; ++r)
      for (int h = 0; h < kTogether; ++h) sum[r][h] = _mm256_setzero_si256();
#pragma GCC unroll 1
    for (int k = 0; k < ByteCodes::kSteps; ++k) {
      words = Anew(words);
      if (first == 0)
        _mm_prefetch(reinterpret_cast<const char*>(group + kIntegerPrefetchBytes), _MM_HINT_T0);
#pragma GCC unroll 2
      for (int h = 0; h < kTogether; ++h)
        AddSigned<kRows, kTogether>(LoadHalfStep(group, first + h), words + k, h, sum);
      group += kStepBytes;
    }
  }
};

template <>
struct Avx2Sums<TableCodes> {
  template <int kRows, int kTogether>
  COPPICE_AVX2 static inline void Of(const uint8_t* group, const uint32_t* words, int first,
                                     __m256i (*sum)[kTogether]) {
    const __m256i low = _mm256_set1_epi8(15);
    const __m256i table = _mm256_broadcastsi128_si256(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(kIq4NlValues)));
    for (int r = 0; r < kRows; ++r)
      for (int h = 0; h < kTogether; ++h) sum[r][h] = _mm256_setzero_si256();
#pragma GCC unroll 1
    for (int k = 0; k < TableCodes::kSteps; ++k) {
      words = Anew(words);
      if (first == 0)
        _mm_prefetch(reinterpret_cast<const char*>(group + kIntegerPrefetchBytes), _MM_HINT_T0);
#pragma GCC unroll 2
      for (int h = 0; h < kTogether; ++h) {
        const __m256i step = LoadHalfStep(group, first + h);
        const __m256i halves[2] = {_mm256_and_si256(step, low),
                                   _mm256_and_si256(_mm256_srli_epi16(step, 4), low)};
#pragma GCC unroll 2
        for (int v = 0; v < 2; ++v)
          AddSigned<kRows, kTogether>(_mm256_shuffle_epi8(table, halves[v]),
                                      words + v * TableCodes::kSteps + k, h, sum);
      }
      group += kStepBytes;
    }
  }
};

COPPICE_AVX2 inline __m256 LoadEightHalves(const uint8_t* halves) {
  return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(halves)));
}

// The scales of half of the lanes. own: of the block (block_panel.h).
template <class Scales>
struct Avx2Scales {  // HalfScales, HalfScalesAndMinima
  const uint8_t* shared;
  COPPICE_AVX2 explicit Avx2Scales(const uint8_t* shared_bytes) : shared(shared_bytes) {}
  COPPICE_AVX2 __m256 Scale(const uint8_t* /*own*/, int group, int half) const {
    return LoadEightHalves(shared + group * 32 + half * 16);
  }
  COPPICE_AVX2 __m256 Minimum(const uint8_t* /*own*/, int group, int half) const {
    return LoadEightHalves(shared + 64 + group * 32 + half * 16);
  }
};

// Eight bytes as floats.
template <bool kSigned>
COPPICE_AVX2 inline __m256 EightBytes(const uint8_t* bytes) {
  const __m128i eight = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes));
  return _mm256_cvtepi32_ps(kSigned ? _mm256_cvtepi8_epi32(eight) : _mm256_cvtepu8_epi32(eight));
}

template <>
struct Avx2Scales<ScalesAndMinimaOf256> {
  __m256 d[2], minus_m[2];
  COPPICE_AVX2 explicit Avx2Scales(const uint8_t* shared) {
    for (int half = 0; half < 2; ++half) {
      d[half] = LoadEightHalves(shared + half * 16);
      minus_m[half] =
          _mm256_xor_ps(LoadEightHalves(shared + 32 + half * 16), _mm256_set1_ps(-0.0f));
    }
  }
  COPPICE_AVX2 __m256 Scale(const uint8_t* own, int group, int half) const {
    return _mm256_mul_ps(d[half], EightBytes<false>(own + group * 16 + half * 8));
  }
  COPPICE_AVX2 __m256 Minimum(const uint8_t* own, int group, int half) const {
    return _mm256_mul_ps(minus_m[half], EightBytes<false>(own + 32 + group * 16 + half * 8));
  }
};

template <>
struct Avx2Scales<SignedScalesOf256> {
  __m256 d[2];
  COPPICE_AVX2 explicit Avx2Scales(const uint8_t* shared)
      : d{LoadEightHalves(shared), LoadEightHalves(shared + 16)} {}
  COPPICE_AVX2 __m256 Scale(const uint8_t* own, int group, int half) const {
    return _mm256_mul_ps(d[half], EightBytes<true>(own + group * 16 + half * 8));
  }
};

// The sums of group g of a block for kRows rows, added to acc. Of the halves of the lanes kTogether
// are summed at a time: few rows leave registers for both.
template <class Form, int kRows, int kTogether>
COPPICE_AVX2 inline void Avx2BlockGroup(const Avx2Scales<typename Form::Scales>& scales,
                                        const uint8_t* own, int g, const BlockRows& rows,
                                        __m256 (*acc)[2]) {
  using Codes = typename Form::Codes;
  constexpr bool kMinimum = Form::Scales::kMinimum;
  // Sums without an offset, because a minimum is added or codes have signs.
  constexpr bool kPlain = kMinimum || Form::kOffset == 128;
  const uint8_t* group = own + Form::Scales::kOwnBytes + g * Codes::kBytes;
  const int g32 = g * Form::kGroup / 32;
#pragma GCC unroll 2
  for (int first = 0; first < 2; first += kTogether) {
    __m256i sum[kRows][kTogether];
    Avx2Sums<Codes>::template Of<kRows, kTogether>(
        group, rows.words + g * Form::kSteps * Form::kVectors, first, sum);
#pragma GCC unroll 2
    for (int h = 0; h < kTogether; ++h) {
      const __m256 w_scale = scales.Scale(own, g, first + h);
      __m256 minimum;
      if constexpr (kMinimum) minimum = scales.Minimum(own, g, first + h);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        __m256i total = sum[r][h];
        if constexpr (!kPlain)
          total =
              _mm256_add_epi32(total, _mm256_set1_epi32(rows.correction[r * Form::kGroups + g]));
        const __m256 factor = _mm256_mul_ps(w_scale, _mm256_set1_ps(rows.scale[r * 2 + g32]));
        acc[r][first + h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(total), factor, acc[r][first + h]);
        if constexpr (kMinimum) {
          const __m256 x = _mm256_set1_ps(rows.scaled_sum[r * Form::kGroups + g]);
          acc[r][first + h] = _mm256_fmadd_ps(minimum, x, acc[r][first + h]);
        }
      }
    }
  }
}

// kRows rows of one panel.
template <class Form, int kRows>
COPPICE_AVX2 __attribute__((noinline)) void Avx2BlockTile(const IntegerProduct& product,
                                                          int64_t row, int64_t panel) {
  using Scales = typename Form::Scales;
  // With this many rows, registers hold the sums of both halves.
  constexpr int kTogether = kRows <= (Form::Codes::kHigh > 0 ? 2 : 3) ? 2 : 1;
  const MatMulArgs& args = *product.args;
  const int64_t shares = InputBlocks(args.w->columns) / Scales::kShared;
  const uint8_t* at = args.w->panel(panel);
  BlockRows rows(*product.x, row, Form::kGroups);
  __m256 acc[kRows][2];
  for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = _mm256_setzero_ps();
  for (int64_t s = 0; s < shares; ++s) {
    const Avx2Scales<Scales> scales(at);
    at += Scales::kSharedBytes;
    for (int b = 0; b < Scales::kShared; ++b) {
#pragma GCC unroll 4
      for (int g = 0; g < Form::kGroups; ++g)
        Avx2BlockGroup<Form, kRows, kTogether>(scales, at, g, rows, acc);
      at += Form::kBlockBytes;
      rows.Next();
    }
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

template <class Form>
struct Avx2Blocks {
  static constexpr int kMost = Form::Codes::kHigh > 0 ? 4 : 8;  // rows that the registers hold
  template <int kRows>
  static void Run(const IntegerProduct& product, int64_t row, int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) Avx2BlockTile<Form, kRows>(product, row, p);
  }
};

}  // namespace coppice::kernels::cpu
