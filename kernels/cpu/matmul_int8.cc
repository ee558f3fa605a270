#include "kernels/cpu/matmul_int8.h"

#include <algorithm>
#include <cstddef>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace coppice::kernels::cpu {
namespace {

constexpr int64_t kSteps = kInt8Group / 4;  // of a group: 16 outputs, 4 inputs
constexpr int64_t kStepBytes = kPanelWidth * 4;

struct Product {
  const MatMulArgs* args;
  const Int8Rows* x;
};

// A finished output.
inline void StoreOne(const MatMulArgs& args, int64_t row, int64_t output, float sum) {
  float* y = args.y + row * args.w->rows + output;
  if (args.bias != nullptr) sum += args.bias[output];
  *y = args.accumulate ? *y + sum : sum;
}

void PortableRange(const Product& product, int64_t panel_begin, int64_t panel_end) {
  const MatMulArgs& args = *product.args;
  const int64_t groups = Int8Groups(args.w->columns);
  for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
    const int64_t lanes = std::min(kPanelWidth, args.w->rows - panel * kPanelWidth);
    for (int64_t row = 0; row < args.rows; ++row) {
      const auto* q =
          reinterpret_cast<const int8_t*>(product.x->words.data() + row * groups * kSteps);
      float sums[kPanelWidth] = {};
      for (int64_t g = 0; g < groups; ++g) {
        const uint8_t* group = args.w->panel(panel) + g * kInt8GroupBytes;
        const auto* scales = reinterpret_cast<const float*>(group);
        const uint8_t* w = group + kPanelWidth * sizeof(float);
        for (int64_t lane = 0; lane < lanes; ++lane) {
          int32_t sum = 0;
          for (int64_t k = 0; k < kInt8Group; ++k) {
            sum += (w[k / 4 * kStepBytes + lane * 4 + k % 4] - 128) * q[g * kInt8Group + k];
          }
          sums[lane] +=
              static_cast<float>(sum) * (scales[lane] * product.x->scale[row * groups + g]);
        }
      }
      for (int64_t lane = 0; lane < lanes; ++lane)
        StoreOne(args, row, panel * kPanelWidth + lane, sums[lane]);
    }
  }
}

#if defined(__x86_64__)

// On each function, not on the file: inline functions of headers must stay runnable everywhere.
#define COPPICE_VNNI __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))
#define COPPICE_AVX2 __attribute__((target("avx2,fma")))

// GCC 12 warns of the uninitialised source of an unmasked conversion.
constexpr __mmask16 kAllLanes = 0xffff;
constexpr int64_t kPrefetchBytes = 4096;
constexpr int64_t kGroupBytes = 384 << 10;  // of weights kept in the second-level cache

// VNNI: rows row .. row + kRows - 1 and panels panel, panel + stride, ... (kPanels of them).
template <int kRows, int kPanels>
COPPICE_VNNI __attribute__((noinline)) void VnniTile(const Product& product, int64_t row,
                                                     int64_t panel, int64_t stride) {
  const MatMulArgs& args = *product.args;
  const int64_t groups = Int8Groups(args.w->columns);
  const int64_t panel_stride = stride * static_cast<int64_t>(args.w->panel_bytes());
  const uint8_t* w = args.w->panel(panel);
  const uint32_t* words = product.x->words.data() + row * groups * kSteps;
  const float* scale = product.x->scale.data() + row * groups;
  const int32_t* correction = product.x->correction.data() + row * groups;

  __m512 acc[kRows][kPanels];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int p = 0; p < kPanels; ++p) acc[r][p] = _mm512_setzero_ps();
  }
  for (int64_t g = 0; g < groups; ++g) {
    __m512i sum[kRows][kPanels];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
      for (int p = 0; p < kPanels; ++p) sum[r][p] = _mm512_set1_epi32(correction[r * groups + g]);
    }
    const uint8_t* step = w + kPanelWidth * sizeof(float);
    for (int64_t k = 0; k < kSteps; ++k) {
#pragma GCC unroll 16
      for (int p = 0; p < kPanels; ++p) {
        _mm_prefetch(reinterpret_cast<const char*>(step + kPrefetchBytes + p * panel_stride),
                     _MM_HINT_T0);
      }
      __m512i weights[kPanels];
#pragma GCC unroll 16
      for (int p = 0; p < kPanels; ++p) weights[p] = _mm512_load_si512(step + p * panel_stride);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const __m512i x = _mm512_set1_epi32(static_cast<int>(words[(r * groups + g) * kSteps + k]));
#pragma GCC unroll 16
        for (int p = 0; p < kPanels; ++p) sum[r][p] = _mm512_dpbusd_epi32(sum[r][p], weights[p], x);
      }
      step += kStepBytes;
    }
#pragma GCC unroll 16
    for (int p = 0; p < kPanels; ++p) {
      const __m512 w_scale = _mm512_load_ps(w + p * panel_stride);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const __m512 factor = _mm512_mul_ps(w_scale, _mm512_set1_ps(scale[r * groups + g]));
        acc[r][p] =
            _mm512_fmadd_ps(_mm512_maskz_cvtepi32_ps(kAllLanes, sum[r][p]), factor, acc[r][p]);
      }
    }
    w += kInt8GroupBytes;
  }
#pragma GCC unroll 16
  for (int p = 0; p < kPanels; ++p) {
    const int64_t first = (panel + p * stride) * kPanelWidth;
    const int64_t count = std::min(kPanelWidth, args.w->rows - first);
    const auto lanes = static_cast<__mmask16>((1u << count) - 1);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      float* y = args.y + (row + r) * args.w->rows + first;
      __m512 value = acc[r][p];
      if (args.bias != nullptr)
        value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(lanes, args.bias + first));
      if (args.accumulate) value = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, y), value);
      _mm512_mask_storeu_ps(y, lanes, value);
    }
  }
}

// AVX2: kRows rows of one panel. |w| times x with the sign of w: the sums of two such products fit
// 16 bits.
template <int kRows, int>
COPPICE_AVX2 __attribute__((noinline)) void Avx2Tile(const Product& product, int64_t row,
                                                     int64_t panel, int64_t /*stride*/) {
  const MatMulArgs& args = *product.args;
  const int64_t groups = Int8Groups(args.w->columns);
  const uint8_t* w = args.w->panel(panel);
  const uint32_t* words = product.x->words.data() + row * groups * kSteps;
  const float* scale = product.x->scale.data() + row * groups;
  const __m256i ones = _mm256_set1_epi16(1), sign_bit = _mm256_set1_epi8(-128);

  __m256 acc[kRows][2];
  for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = _mm256_setzero_ps();
  for (int64_t g = 0; g < groups; ++g) {
    __m256i sum[kRows][2];
    for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = _mm256_setzero_si256();
    const uint8_t* step = w + kPanelWidth * sizeof(float);
    for (int64_t k = 0; k < kSteps; ++k) {
      _mm_prefetch(reinterpret_cast<const char*>(step + kPrefetchBytes), _MM_HINT_T0);
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const __m256i q = _mm256_xor_si256(
            _mm256_load_si256(reinterpret_cast<const __m256i*>(step + half * 32)), sign_bit);
        const __m256i magnitude = _mm256_abs_epi8(q);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          const __m256i x =
              _mm256_set1_epi32(static_cast<int>(words[(r * groups + g) * kSteps + k]));
          const __m256i pairs = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(x, q));
          sum[r][half] = _mm256_add_epi32(sum[r][half], _mm256_madd_epi16(pairs, ones));
        }
      }
      step += kStepBytes;
    }
    for (int half = 0; half < 2; ++half) {
      const __m256 w_scale = _mm256_load_ps(reinterpret_cast<const float*>(w) + half * 8);
      for (int r = 0; r < kRows; ++r) {
        const __m256 factor = _mm256_mul_ps(w_scale, _mm256_set1_ps(scale[r * groups + g]));
        acc[r][half] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[r][half]), factor, acc[r][half]);
      }
    }
    w += kInt8GroupBytes;
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

// Panels of a tile of that many rows, so that the registers hold all sums.
constexpr int VnniPanels(int rows) { return rows <= 2 ? 4 : rows == 3 ? 3 : rows <= 5 ? 2 : 1; }

// Rows in tiles of at most kMost, which differ by one row at most. If there are several tiles, groups
// of panels stay in the second-level cache while all of them use these panels. Panels are read in
// streams that are each contiguous in memory.
struct Vnni {
  static constexpr int kMost = 12;
  template <int kRows>
  static void Run(const Product& product, int64_t row, int64_t begin, int64_t end) {
    constexpr int kStreams = VnniPanels(kRows);
    const int64_t per_stream = (end - begin) / kStreams;
    for (int64_t i = 0; i < per_stream; ++i)
      VnniTile<kRows, kStreams>(product, row, begin + i, per_stream);
    for (int64_t p = begin + per_stream * kStreams; p < end; ++p)
      VnniTile<kRows, 1>(product, row, p, 1);
  }
};
struct Avx2 {
  static constexpr int kMost = 3;
  template <int kRows>
  static void Run(const Product& product, int64_t row, int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) Avx2Tile<kRows, 1>(product, row, p, 1);
  }
};

template <class Kernel, int kRows = Kernel::kMost>
void RunRows(const Product& product, int64_t row, int64_t rows, int64_t begin, int64_t end) {
  if (rows == kRows) return Kernel::template Run<kRows>(product, row, begin, end);
  if constexpr (kRows > 1) RunRows<Kernel, kRows - 1>(product, row, rows, begin, end);
}

template <class Kernel>
void Tiles(const Product& product, int64_t begin, int64_t end) {
  const MatMulArgs& args = *product.args;
  const int64_t tiles = (args.rows + Kernel::kMost - 1) / Kernel::kMost;
  const int64_t in_cache =
      std::max<int64_t>(1, kGroupBytes / static_cast<int64_t>(args.w->panel_bytes()));
  const int64_t group = tiles == 1 ? end - begin : in_cache;
  for (int64_t p = begin; p < end; p += group) {
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t row = args.rows * tile / tiles;
      RunRows<Kernel>(product, row, args.rows * (tile + 1) / tiles - row, p,
                      std::min(end, p + group));
    }
  }
}

bool HasVnni() {
  return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}

#endif

}  // namespace

void MatMulInt8Range(const MatMulArgs& args, const Int8Rows& x, KernelTarget target,
                     int64_t panel_begin, int64_t panel_end) {
  const Product product = {&args, &x};
#if defined(__x86_64__)
  if (target >= KernelTarget::kAvx512 && HasVnni())
    return Tiles<Vnni>(product, panel_begin, panel_end);
  if (target >= KernelTarget::kAvx2) return Tiles<Avx2>(product, panel_begin, panel_end);
#endif
  PortableRange(product, panel_begin, panel_end);
}

}  // namespace coppice::kernels::cpu
