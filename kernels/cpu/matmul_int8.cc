#include "kernels/cpu/matmul_int8.h"

#include <algorithm>
#include <cstddef>

#include "kernels/cpu/integer_tiles.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/cpu/matmul_int8_avx2.h"
#endif

namespace coppice::kernels::cpu {
namespace {

// The sum of a lane over one group. q: of the group.
template <class Weights>
int32_t PortableSum(const uint8_t* group, int64_t lane, const int8_t* q) {
  int32_t sum = 0;
  for (int v = 0; v < Weights::kVectors; ++v) {
    for (int64_t k = 0; k < Weights::kSteps * 4; ++k) {
      const uint8_t byte = group[k / 4 * kStepBytes + lane * 4 + k % 4];
      sum += (Weights::Code(byte, v) - Weights::kOffset) * q[v * Weights::kSteps * 4 + k];
    }
  }
  return sum;
}

template <class Weights>
void PortableRange(const IntegerProduct& product, int64_t panel_begin, int64_t panel_end) {
  constexpr int64_t kGroup = kInt8Group / Weights::kParts;
  const MatMulArgs& args = *product.args;
  const int64_t blocks = Int8Groups(args.w->columns);
  for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
    const int64_t lanes = std::min(kPanelWidth, args.w->rows - panel * kPanelWidth);
    for (int64_t row = 0; row < args.rows; ++row) {
      const auto* words = reinterpret_cast<const int8_t*>(product.x->words.data());
      float sums[kPanelWidth] = {};
      for (int64_t g = 0; g < blocks * Weights::kParts; ++g) {
        const int64_t part = g % Weights::kParts, b = g / Weights::kParts;
        const int64_t at = b * product.x->rows + row;
        const uint8_t* block = args.w->panel(panel) + b * Weights::kBlockBytes;
        const uint8_t* group = block + kScaleBytes + part * Weights::kSteps * kStepBytes;
        for (int64_t lane = 0; lane < lanes; ++lane) {
          const int32_t sum =
              PortableSum<Weights>(group, lane, words + at * kInt8Group + part * kGroup);
          const float scale = Weights::Scale(block, static_cast<int>(part), lane);
          sums[lane] += static_cast<float>(sum) * (scale * product.x->scale[at]);
        }
      }
      for (int64_t lane = 0; lane < lanes; ++lane)
        StoreOne(args, row, panel * kPanelWidth + lane, sums[lane]);
    }
  }
}

#if defined(__x86_64__)

// GCC 12 warns of the uninitialised source of an unmasked conversion or shift.
constexpr __mmask16 kAllLanes = 0xffff;

// Set v of a step, offset included.
template <class Weights>
COPPICE_VNNI inline __m512i VnniCodes(__m512i step, int v) {
  if constexpr (Weights::kVectors == 1) return step;
  if (v == 1) step = _mm512_maskz_srli_epi32(kAllLanes, step, 4);
  return _mm512_and_si512(step, _mm512_set1_epi32(0x0f0f0f0f));
}

template <class Weights>
COPPICE_VNNI inline __m512 VnniScale(const uint8_t* block, int part) {
  if constexpr (Weights::kParts == 1) return _mm512_load_ps(block);
  const __m512i pairs = _mm512_load_si512(block);
  if (part == 0) return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(kAllLanes, pairs, 16));
  return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(-65536)));
}

// VNNI: rows row .. row + kRows - 1 of one panel.
template <class Weights, int kRows>
COPPICE_VNNI __attribute__((noinline)) void VnniTile(const IntegerProduct& product, int64_t row,
                                                     int64_t panel) {
  constexpr int kParts = Weights::kParts, kSteps = Weights::kSteps, kVectors = Weights::kVectors;
  const MatMulArgs& args = *product.args;
  const int64_t blocks = Int8Groups(args.w->columns);
  const int64_t rows = product.x->rows;
  const uint8_t* block = args.w->panel(panel);
  const uint32_t* words = product.x->words.data() + row * kGroupWords;  // words of the block
  const float* scale = product.x->scale.data() + row;
  const int32_t* correction = product.x->correction.data() + row * kParts;

  __m512 acc[kRows];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) acc[r] = _mm512_setzero_ps();
  for (int64_t b = 0; b < blocks; ++b) {
    const uint8_t* step = block + kScaleBytes;
#pragma GCC unroll 2
    for (int part = 0; part < kParts; ++part) {
      __m512i sum[kRows];
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) sum[r] = _mm512_set1_epi32(correction[r * kParts + part]);
#pragma GCC unroll 8
      for (int k = 0; k < kSteps; ++k) {
        words = Anew(words);
        _mm_prefetch(reinterpret_cast<const char*>(step + kIntegerPrefetchBytes), _MM_HINT_T0);
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) {
          const __m512i codes = VnniCodes<Weights>(_mm512_load_si512(step), v);
          const int word = (part * kVectors + v) * kSteps + k;
#pragma GCC unroll 16
          for (int r = 0; r < kRows; ++r) {
            const __m512i x = _mm512_set1_epi32(static_cast<int>(words[r * kGroupWords + word]));
            sum[r] = _mm512_dpbusd_epi32(sum[r], codes, x);
          }
        }
        step += kStepBytes;
      }
      const __m512 w_scale = VnniScale<Weights>(block, part);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const __m512 factor = _mm512_mul_ps(w_scale, _mm512_set1_ps(scale[r]));
        acc[r] = _mm512_fmadd_ps(_mm512_maskz_cvtepi32_ps(kAllLanes, sum[r]), factor, acc[r]);
      }
    }
    block += Weights::kBlockBytes;
    words += rows * kGroupWords;
    scale += rows;
    correction += rows * kParts;
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

// Rows in tiles, panels in order.
template <class Weights>
struct Vnni {
  static constexpr int kMost = 8;
  template <int kRows>
  static void Run(const IntegerProduct& product, int64_t row, int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) VnniTile<Weights, kRows>(product, row, p);
  }
};
template <class Weights>
struct Avx2 {
  static constexpr int kMost = 8;
  template <int kRows>
  static void Run(const IntegerProduct& product, int64_t row, int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) Avx2Tile<Weights, kRows>(product, row, p);
  }
};

#endif

template <class Weights>
void Range(const IntegerProduct& product, KernelTarget target, int64_t panel_begin,
           int64_t panel_end) {
#if defined(__x86_64__)
  if (target >= KernelTarget::kAvx512 && HasVnni())
    return Tiles<Vnni<Weights>>(product, panel_begin, panel_end);
  if (target >= KernelTarget::kAvx2) return Tiles<Avx2<Weights>>(product, panel_begin, panel_end);
#endif
  PortableRange<Weights>(product, panel_begin, panel_end);
}

}  // namespace

void MatMulInt8Range(const MatMulArgs& args, const Int8Rows& x, KernelTarget target,
                     int64_t panel_begin, int64_t panel_end) {
  const IntegerProduct product = {&args, &x};
  if (args.w->dtype == DType::kI4)
    return Range<Int4Weights>(product, target, panel_begin, panel_end);
  Range<Int8Weights>(product, target, panel_begin, panel_end);
}

}  // namespace coppice::kernels::cpu
