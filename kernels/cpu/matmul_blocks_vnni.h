// The register tile of a product with weights in blocks on AVX-512 with dot products of int8. Only
// matmul_blocks.cc includes it.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/block_panel.h"
#include "kernels/cpu/integer_tiles.h"

namespace coppice::kernels::cpu {

// GCC 12 warns of the uninitialised source of unmasked conversions and shifts.
inline constexpr __mmask16 kAllBlockLanes = 0xffff;

// The codes of a step, unsigned, one set of 16 outputs and 4 inputs after the other.
template <class Codes>
struct VnniCodes;

template <int kHigh, int kSteps>
struct VnniCodes<NibbleCodes<kHigh, kSteps>> {
  using Codes = NibbleCodes<kHigh, kSteps>;
  __m512i high, next_high;
  COPPICE_VNNI explicit VnniCodes(const uint8_t* group) {
    if constexpr (kHigh > 0) next_high = high = _mm512_load_si512(group);
  }
  // Steps and sets in order.
  COPPICE_VNNI __m512i Next(const uint8_t* group, int k, int v) {
    __m512i codes = _mm512_load_si512(group + Codes::kHighBytes + k * kStepBytes);
    if (v == 1) codes = _mm512_maskz_srli_epi32(kAllBlockLanes, codes, 4);
    codes = _mm512_and_si512(codes, _mm512_set1_epi32(0x0f0f0f0f));
    if constexpr (kHigh > 0) {
      const __m512i above = _mm512_set1_epi32(kHigh == 1 ? 0x10101010 : 0x30303030);
      if ((k * 2 + v) * kHigh == 4) next_high = _mm512_maskz_slli_epi32(kAllBlockLanes, high, 4);
      codes = _mm512_or_si512(codes, _mm512_and_si512(next_high, above));
      next_high = _mm512_maskz_srli_epi32(kAllBlockLanes, next_high, kHigh);
    }
    return codes;
  }
};

template <>
struct VnniCodes<TableCodes> {
  __m512i table;
  COPPICE_VNNI explicit VnniCodes(const uint8_t* /*group*/)
      : table(_mm512_xor_si512(
            _mm512_maskz_broadcast_i32x4(
                kAllBlockLanes, _mm_loadu_si128(reinterpret_cast<const __m128i*>(kIq4NlValues))),
            _mm512_set1_epi32(static_cast<int>(0x80808080u)))) {}
  COPPICE_VNNI __m512i Next(const uint8_t* group, int k, int v) {
    __m512i codes = _mm512_load_si512(group + k * kStepBytes);
    if (v == 1) codes = _mm512_maskz_srli_epi32(kAllBlockLanes, codes, 4);
    return _mm512_shuffle_epi8(table, _mm512_and_si512(codes, _mm512_set1_epi32(0x0f0f0f0f)));
  }
};

template <>
struct VnniCodes<ByteCodes> {
  COPPICE_VNNI explicit VnniCodes(const uint8_t* /*group*/) {}
  COPPICE_VNNI __m512i Next(const uint8_t* group, int k, int /*v*/) {
    return _mm512_xor_si512(_mm512_load_si512(group + k * kStepBytes),
                            _mm512_set1_epi32(static_cast<int>(0x80808080u)));
  }
};

COPPICE_VNNI inline __m512 LoadSixteenHalves(const uint8_t* halves) {
  return _mm512_maskz_cvtph_ps(kAllBlockLanes,
                               _mm256_load_si256(reinterpret_cast<const __m256i*>(halves)));
}

// own: of the block (block_panel.h).
template <class Scales>
struct VnniScales {  // HalfScales, HalfScalesAndMinima
  const uint8_t* shared;
  COPPICE_VNNI explicit VnniScales(const uint8_t* shared_bytes) : shared(shared_bytes) {}
  COPPICE_VNNI __m512 Scale(const uint8_t* /*own*/, int group) const {
    return LoadSixteenHalves(shared + group * 32);
  }
  COPPICE_VNNI __m512 Minimum(const uint8_t* /*own*/, int group) const {
    return LoadSixteenHalves(shared + 64 + group * 32);
  }
};

// Sixteen bytes as floats.
template <bool kSigned>
COPPICE_VNNI inline __m512 SixteenBytes(const uint8_t* bytes) {
  const __m128i sixteen = _mm_load_si128(reinterpret_cast<const __m128i*>(bytes));
  return _mm512_maskz_cvtepi32_ps(kAllBlockLanes,
                                  kSigned ? _mm512_maskz_cvtepi8_epi32(kAllBlockLanes, sixteen)
                                          : _mm512_maskz_cvtepu8_epi32(kAllBlockLanes, sixteen));
}

template <>
struct VnniScales<ScalesAndMinimaOf256> {
  __m512 d, minus_m;
  COPPICE_VNNI explicit VnniScales(const uint8_t* shared)
      : d(LoadSixteenHalves(shared)),
        minus_m(_mm512_xor_ps(LoadSixteenHalves(shared + 32), _mm512_set1_ps(-0.0f))) {}
  COPPICE_VNNI __m512 Scale(const uint8_t* own, int group) const {
    return _mm512_mul_ps(d, SixteenBytes<false>(own + group * 16));
  }
  COPPICE_VNNI __m512 Minimum(const uint8_t* own, int group) const {
    return _mm512_mul_ps(minus_m, SixteenBytes<false>(own + 32 + group * 16));
  }
};

template <>
struct VnniScales<SignedScalesOf256> {
  __m512 d;
  COPPICE_VNNI explicit VnniScales(const uint8_t* shared) : d(LoadSixteenHalves(shared)) {}
  COPPICE_VNNI __m512 Scale(const uint8_t* own, int group) const {
    return _mm512_mul_ps(d, SixteenBytes<true>(own + group * 16));
  }
};

// The sums of group g of a block for kRows rows, added to acc.
template <class Form, int kRows>
COPPICE_VNNI inline void VnniBlockGroup(const VnniScales<typename Form::Scales>& scales,
                                        const uint8_t* own, int g, const BlockRows& rows,
                                        __m512 (&acc)[kRows]) {
  using Codes = typename Form::Codes;
  constexpr bool kMinimum = Form::Scales::kMinimum;
  const uint8_t* group = own + Form::Scales::kOwnBytes + g * Codes::kBytes;
  VnniCodes<Codes> reader(group);
  const uint32_t* words = rows.words;
  __m512i sum[kRows];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    if constexpr (kMinimum) {
      sum[r] = _mm512_setzero_si512();
    } else {
      sum[r] = _mm512_set1_epi32(rows.correction[r * Form::kGroups + g]);
    }
  }
#pragma GCC unroll 8
  for (int k = 0; k < Form::kSteps; ++k) {
    words = Anew(words);
    _mm_prefetch(reinterpret_cast<const char*>(group + k * kStepBytes + kIntegerPrefetchBytes),
                 _MM_HINT_T0);
#pragma GCC unroll 2
    for (int v = 0; v < Form::kVectors; ++v) {
      const __m512i codes = reader.Next(group, k, v);
      const int word = (g * Form::kVectors + v) * Form::kSteps + k;
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const __m512i x = _mm512_set1_epi32(static_cast<int>(words[r * kGroupWords + word]));
        sum[r] = _mm512_dpbusd_epi32(sum[r], codes, x);
      }
    }
  }
  const __m512 w_scale = scales.Scale(own, g);
  __m512 minimum;
  if constexpr (kMinimum) minimum = scales.Minimum(own, g);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    const float x_scale = rows.scale[r * 2 + g * Form::kGroup / 32];
    const __m512 factor = _mm512_mul_ps(w_scale, _mm512_set1_ps(x_scale));
    acc[r] = _mm512_fmadd_ps(_mm512_maskz_cvtepi32_ps(kAllBlockLanes, sum[r]), factor, acc[r]);
    if constexpr (kMinimum) {
      const __m512 x = _mm512_set1_ps(rows.scaled_sum[r * Form::kGroups + g]);
      acc[r] = _mm512_fmadd_ps(minimum, x, acc[r]);
    }
  }
}

// kRows rows of one panel.
template <class Form, int kRows>
COPPICE_VNNI __attribute__((noinline)) void VnniBlockTile(const IntegerProduct& product,
                                                          int64_t row, int64_t panel) {
  using Scales = typename Form::Scales;
  const MatMulArgs& args = *product.args;
  const int64_t shares = InputBlocks(args.w->columns) / Scales::kShared;
  const uint8_t* at = args.w->panel(panel);
  BlockRows rows(*product.x, row, Form::kGroups);
  __m512 acc[kRows];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) acc[r] = _mm512_setzero_ps();
  for (int64_t s = 0; s < shares; ++s) {
    const VnniScales<Scales> scales(at);
    at += Scales::kSharedBytes;
    for (int b = 0; b < Scales::kShared; ++b) {
#pragma GCC unroll 4
      for (int g = 0; g < Form::kGroups; ++g) VnniBlockGroup<Form, kRows>(scales, at, g, rows, acc);
      at += Form::kBlockBytes;
      rows.Next();
    }
  }
  const int64_t first = panel * kPanelWidth;
  const int64_t count = std::min(kPanelWidth, args.w->rows - first);
  const auto lanes = static_cast<__mmask16>((1u << count) - 1);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    float* y = args.y + (row + r) * args.y_stride + first;
    __m512 value = acc[r];
    if (args.bias != nullptr)
      value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(lanes, args.bias + first));
    if (args.accumulate) value = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, y), value);
    _mm512_mask_storeu_ps(y, lanes, value);
  }
}

template <class Form>
struct VnniBlocks {
  static constexpr int kMost = 8;
  template <int kRows>
  static void Run(const IntegerProduct& product, int64_t row, int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) VnniBlockTile<Form, kRows>(product, row, p);
  }
};

}  // namespace coppice::kernels::cpu
