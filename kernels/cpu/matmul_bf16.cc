#include "kernels/cpu/matmul_bf16.h"

#include <algorithm>
#include <cstddef>

#include "base/check.h"

#if defined(__x86_64__)
#include <immintrin.h>

// On each function, not on the file: inline functions of headers must stay runnable everywhere.
#define COPPICE_BF16_DOT __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

namespace coppice::kernels::cpu {
namespace {

constexpr int64_t kStepBytes = kPanelWidth * 4;  // bytes of a panel per step: 16 outputs, 2 inputs
// Few rows wait for memory. Their weights go to the first-level cache and leave the second to the
// activations. More rows compute for as long as memory takes, so their weights are fetched earlier.
constexpr int kFewRows = 8;
constexpr int64_t kPrefetchFew = 4 << 10, kPrefetchMore = 8 << 10;
constexpr int64_t kInputBytes = 512 << 10;  // bytes of inputs that stay in the second-level cache
constexpr int64_t kShortPanelBytes = 8 << 10;  // 256 inputs
// The registers hold the sums of this many rows beside a vector of weights.
constexpr int kMaxTileRows = 24;

// Rows in tiles that differ by one row at most. The inputs of a tile are together, so its kernel
// follows one pointer: [PairsOf(columns)][rows of the tile], at `begin` times PairsOf(columns).
struct RowTile {
  int64_t begin = 0;
  int64_t rows = 0;
};
int64_t TilesOf(int64_t rows) { return (rows + kMaxTileRows - 1) / kMaxTileRows; }
RowTile TileOf(int64_t rows, int64_t tile) {
  const int64_t tiles = TilesOf(rows), begin = rows * tile / tiles;
  return {begin, rows * (tile + 1) / tiles - begin};
}

COPPICE_BF16_DOT inline void StorePanel(const MatMulArgs& args, int64_t row, int64_t panel,
                                        __m512 sum) {
  const int64_t first = panel * kPanelWidth;
  const int64_t count = std::min(kPanelWidth, args.w->rows - first);
  float* y = args.y + row * args.y_stride + first;
  if (count == kPanelWidth) {
    if (args.bias != nullptr) sum = _mm512_add_ps(sum, _mm512_loadu_ps(args.bias + first));
    if (args.accumulate) sum = _mm512_add_ps(_mm512_loadu_ps(y), sum);
    _mm512_storeu_ps(y, sum);
    return;
  }
  const auto lanes = static_cast<__mmask16>((1u << count) - 1);
  if (args.bias != nullptr)
    sum = _mm512_add_ps(sum, _mm512_maskz_loadu_ps(lanes, args.bias + first));
  if (args.accumulate) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, y), sum);
  _mm512_mask_storeu_ps(y, lanes, sum);
}

template <int kRows>
inline void Prefetch(const uint8_t* weights) {
  if constexpr (kRows <= kFewRows) {
    _mm_prefetch(reinterpret_cast<const char*>(weights), _MM_HINT_NTA);
  } else {
    _mm_prefetch(reinterpret_cast<const char*>(weights), _MM_HINT_T1);
  }
}

// kRows rows from `row` on, one panel: that many independent sums hide the latency of a dot
// product, and memory is read fastest as one stream. kAhead: how far ahead the tile prefetches; 0:
// not at all.
template <int kRows, int64_t kAhead>
COPPICE_BF16_DOT __attribute__((noinline)) void Tile(const MatMulArgs& args, const uint32_t* pairs,
                                                     int64_t row, int64_t panel) {
  const int64_t steps = PairsOf(args.w->columns);
  const uint8_t* w = args.w->panel(panel);
  const uint32_t* x = pairs + row * steps;
  __m512 sum[kRows];
#pragma GCC unroll 24
  for (int r = 0; r < kRows; ++r) sum[r] = _mm512_setzero_ps();
  for (int64_t k = 0; k < steps; ++k) {
    if constexpr (kAhead > 0) Prefetch<kRows>(w + kAhead);
    const __m512i weights = _mm512_load_si512(w);
#pragma GCC unroll 24
    for (int r = 0; r < kRows; ++r) {
      const __m512i pair = _mm512_set1_epi32(static_cast<int>(x[r]));
      sum[r] = _mm512_dpbf16_ps(sum[r], reinterpret_cast<const __m512bh&>(pair),
                                reinterpret_cast<const __m512bh&>(weights));
    }
    x += kRows;
    w += kStepBytes;
  }
#pragma GCC unroll 24
  for (int r = 0; r < kRows; ++r) StorePanel(args, row + r, panel, sum[r]);
}

// One row, and panels that end before a stream of weights reaches full speed: several panels at a
// time, so that dot products do not wait for each other.
template <int kPanels>
COPPICE_BF16_DOT __attribute__((noinline)) void ShortPanels(const MatMulArgs& args,
                                                            const uint32_t* pairs, int64_t panel) {
  const int64_t steps = PairsOf(args.w->columns);
  const auto panel_bytes = static_cast<int64_t>(args.w->panel_bytes());
  const uint8_t* w = args.w->panel(panel);
  __m512 sum[kPanels];
#pragma GCC unroll 4
  for (int p = 0; p < kPanels; ++p) sum[p] = _mm512_setzero_ps();
  for (int64_t k = 0; k < steps; ++k) {
    const __m512i pair = _mm512_set1_epi32(static_cast<int>(pairs[k]));
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      const __m512i weights = _mm512_load_si512(w + p * panel_bytes);
      sum[p] = _mm512_dpbf16_ps(sum[p], reinterpret_cast<const __m512bh&>(pair),
                                reinterpret_cast<const __m512bh&>(weights));
    }
    w += kStepBytes;
  }
#pragma GCC unroll 4
  for (int p = 0; p < kPanels; ++p) StorePanel(args, 0, panel + p, sum[p]);
}

// Runs a tile with its number of rows, 1 .. kMaxTileRows, as a constant. `fetch`: it prefetches the
// next panels, as the first tile over a panel does.
template <int kRows = kMaxTileRows>
void RunTile(const MatMulArgs& args, const uint32_t* pairs, RowTile tile, int64_t panel,
             bool fetch) {
  if (tile.rows == kRows) {
    constexpr int64_t kAhead = kRows <= kFewRows ? kPrefetchFew : kPrefetchMore;
    if (fetch) return Tile<kRows, kAhead>(args, pairs, tile.begin, panel);
    return Tile<kRows, 0>(args, pairs, tile.begin, panel);
  }
  if constexpr (kRows > 1) RunTile<kRows - 1>(args, pairs, tile, panel, fetch);
}

// Eight vectors of eight words become their columns.
COPPICE_BF16_DOT inline void Transpose8(__m256i (&rows)[8]) {
  __m256i pairs[8], quads[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_epi32(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_epi32(rows[i], rows[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      quads[i + 2 * j] = _mm256_unpacklo_epi64(pairs[i + j], pairs[i + j + 2]);
      quads[i + 2 * j + 1] = _mm256_unpackhi_epi64(pairs[i + j], pairs[i + j + 2]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    rows[i] = _mm256_permute2x128_si256(quads[i], quads[i + 4], 0x20);
    rows[i + 4] = _mm256_permute2x128_si256(quads[i], quads[i + 4], 0x31);
  }
}

// Eight pairs of inputs of a row. Lanes behind an odd last input are 0.
COPPICE_BF16_DOT inline __m256i EightPairs(const float* x, __mmask16 lanes) {
  return (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(lanes, x));
}

}  // namespace

bool HasBf16Dot() {
  return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bf16");
}

COPPICE_BF16_DOT void RoundToPairs(const float* x, int64_t rows, int64_t columns, int64_t begin,
                                   int64_t end, uint32_t* pairs) {
  const int64_t steps = PairsOf(columns);
  end = std::min(end, columns);
  for (int64_t t = 0; t < TilesOf(rows); ++t) {
    const RowTile tile = TileOf(rows, t);
    for (int64_t k = begin; k < end; k += 16) {
      uint32_t* out = pairs + tile.begin * steps + k / 2 * tile.rows;
      const auto lanes = static_cast<__mmask16>((1u << std::min<int64_t>(16, columns - k)) - 1);
      const int64_t count = std::min<int64_t>(8, steps - k / 2);
      const float* const inputs = x + tile.begin * columns + k;
      if (tile.rows == 1) {
        const auto kept = static_cast<__mmask8>((1u << count) - 1);
        _mm256_mask_storeu_epi32(out, kept, EightPairs(inputs, lanes));
        continue;
      }
      for (int64_t first = 0; first < tile.rows; first += 8) {
        const int64_t together = std::min<int64_t>(8, tile.rows - first);
        __m256i pairs_of[8];
        for (int64_t r = 0; r < 8; ++r) {
          pairs_of[r] = r < together ? EightPairs(inputs + (first + r) * columns, lanes)
                                     : _mm256_setzero_si256();
        }
        Transpose8(pairs_of);
        const auto kept = static_cast<__mmask8>((1u << together) - 1);
        for (int64_t j = 0; j < count; ++j)
          _mm256_mask_storeu_epi32(out + j * tile.rows + first, kept, pairs_of[j]);
      }
    }
  }
}

void MatMulBf16Range(const MatMulArgs& args, const uint32_t* pairs, int64_t panel_begin,
                     int64_t panel_end) {
  if (args.rows == 1 && args.w->panel_bytes() <= kShortPanelBytes) {
    int64_t panel = panel_begin;
    for (; panel + 4 <= panel_end; panel += 4) ShortPanels<4>(args, pairs, panel);
    for (; panel < panel_end; ++panel) ShortPanels<1>(args, pairs, panel);
    return;
  }
  // The inputs of some tiles stay in the second-level cache during all panels, and a panel stays
  // there while these tiles use it.
  const int64_t tiles = TilesOf(args.rows);
  const int64_t row_bytes = PairsOf(args.w->columns) * static_cast<int64_t>(sizeof(uint32_t));
  const int64_t together = std::max<int64_t>(1, kInputBytes / (row_bytes * kMaxTileRows));
  for (int64_t first = 0; first < tiles; first += together) {
    const int64_t last = std::min(tiles, first + together);
    for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
      for (int64_t t = first; t < last; ++t)
        RunTile(args, pairs, TileOf(args.rows, t), panel, /*fetch=*/t == first);
    }
  }
}

}  // namespace coppice::kernels::cpu

#else  // no such instructions, so MatMul never comes here

namespace coppice::kernels::cpu {

bool HasBf16Dot() { return false; }

void RoundToPairs(const float*, int64_t, int64_t, int64_t, int64_t, uint32_t*) {
  COPPICE_CHECK_MSG(false, "bf16 dot products are for x86");
}

void MatMulBf16Range(const MatMulArgs&, const uint32_t*, int64_t, int64_t) {
  COPPICE_CHECK_MSG(false, "bf16 dot products are for x86");
}

}  // namespace coppice::kernels::cpu

#endif
