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

constexpr int64_t kStepBytes = kPanelWidth * 4;  // of a panel: 16 outputs, 2 inputs
constexpr int64_t kPrefetchBytes = 4096;         // ahead in a stream of weights
constexpr int64_t kGroupBytes = 384 << 10;       // of weights kept in the second-level cache
constexpr int64_t kShortPanelBytes = 8 << 10;    // 256 inputs
constexpr int kMaxTileRows = 12;

// Panels of a tile of that many rows: enough independent sums to hide the latency of a dot product,
// and no more than the registers hold. One row waits for memory alone, which is read fastest as one
// stream.
constexpr int PanelsFor(int rows) {
  constexpr int kPanels[kMaxTileRows + 1] = {0, 1, 4, 4, 2, 3, 3, 3, 3, 2, 2, 2, 2};
  return kPanels[rows];
}

// The operands of a product, with x in pairs.
struct Product {
  const MatMulArgs* args;
  const uint32_t* pairs;
};

// What a tile prefetches while it computes: its own weights, kPrefetchBytes ahead; or, if several
// tiles read its panels, its share of the next ones.
struct Ahead {
  const uint8_t* next = nullptr;  // nullptr: itself
  int64_t step = 0;               // bytes for each step along the inputs
};

COPPICE_BF16_DOT inline void StorePanel(const MatMulArgs& args, int64_t row, int64_t panel,
                                        __m512 sum) {
  const int64_t first = panel * kPanelWidth;
  const int64_t count = std::min(kPanelWidth, args.w->rows - first);
  float* y = args.y + row * args.w->rows + first;
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

// Rows row .. row + kRows - 1 and panels panel, panel + stride, ... (kPanels of them).
template <int kRows, int kPanels>
COPPICE_BF16_DOT __attribute__((noinline)) void Tile(const Product& product, int64_t row,
                                                     int64_t panel, int64_t stride,
                                                     Ahead ahead = {}) {
  const MatMulArgs& args = *product.args;
  const int64_t steps = PairsOf(args.w->columns);
  const int64_t panel_stride = stride * static_cast<int64_t>(args.w->panel_bytes());
  const uint8_t* w = args.w->panel(panel);
  const uint32_t* x = product.pairs + row * steps;

  __m512 acc[kRows][kPanels];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int p = 0; p < kPanels; ++p) acc[r][p] = _mm512_setzero_ps();
  }
  for (int64_t k = 0; k < steps; ++k) {
    if (ahead.next == nullptr) {
#pragma GCC unroll 16
      for (int p = 0; p < kPanels; ++p)
        _mm_prefetch(reinterpret_cast<const char*>(w + kPrefetchBytes + p * panel_stride),
                     _MM_HINT_T0);
    } else {
      _mm_prefetch(reinterpret_cast<const char*>(ahead.next), _MM_HINT_T0);
      ahead.next += ahead.step;
    }
    __m512i weights[kPanels];
#pragma GCC unroll 16
    for (int p = 0; p < kPanels; ++p) weights[p] = _mm512_load_si512(w + p * panel_stride);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const __m512i pair = _mm512_set1_epi32(static_cast<int>(x[r * steps + k]));
#pragma GCC unroll 16
      for (int p = 0; p < kPanels; ++p) {
        acc[r][p] = _mm512_dpbf16_ps(acc[r][p], reinterpret_cast<const __m512bh&>(pair),
                                     reinterpret_cast<const __m512bh&>(weights[p]));
      }
    }
    w += kStepBytes;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int p = 0; p < kPanels; ++p) StorePanel(args, row + r, panel + p * stride, acc[r][p]);
  }
}

// All rows fit one tile: the weights are read once, in streams that are each contiguous in memory.
struct OneTile {
  const Product& product;
  int64_t begin;
  int64_t end;
  template <int kRows>
  void Run() const {
    constexpr int kStreams = PanelsFor(kRows);
    const int64_t per_stream = (end - begin) / kStreams;
    for (int64_t i = 0; i < per_stream; ++i)
      Tile<kRows, kStreams>(product, 0, begin + i, per_stream);
    for (int64_t p = begin + per_stream * kStreams; p < end; ++p) Tile<kRows, 1>(product, 0, p, 1);
  }
};

// One row, and panels that are over before a stream of weights runs at full speed: several panels at
// a time, so that dot products do not wait for each other.
void ShortPanels(const Product& product, int64_t begin, int64_t end) {
  constexpr int kTogether = 4;
  int64_t p = begin;
  for (; p + kTogether <= end; p += kTogether) Tile<1, kTogether>(product, 0, p, 1);
  for (; p < end; ++p) Tile<1, 1>(product, 0, p, 1);
}

constexpr int kPanelsOfMany = PanelsFor(kMaxTileRows);

// One of several tiles over the same panels.
struct TileOfGroup {
  const Product& product;
  int64_t row;
  int64_t begin;
  int64_t end;
  Ahead ahead;
  template <int kRows>
  void Run() const {
    int64_t p = begin;
    for (; p + kPanelsOfMany <= end; p += kPanelsOfMany)
      Tile<kRows, kPanelsOfMany>(product, row, p, 1, ahead);
    for (; p < end; ++p) Tile<kRows, 1>(product, row, p, 1, ahead);
  }
};

// Runs the tiles with their number of rows, 1 .. kMaxTileRows, as a constant.
template <class Tiles, int kRows = kMaxTileRows>
void RunRows(const Tiles& tiles, int64_t rows) {
  if (rows == kRows) return tiles.template Run<kRows>();
  if constexpr (kRows > 1) RunRows<Tiles, kRows - 1>(tiles, rows);
}

// More rows: groups of panels stay in the second-level cache while all rows use them.
void ManyRowTiles(const Product& product, int64_t begin, int64_t end) {
  constexpr int kPanels = kPanelsOfMany;
  const MatMulArgs& args = *product.args;
  const int64_t tiles = (args.rows + kMaxTileRows - 1) / kMaxTileRows;
  const auto bytes = static_cast<int64_t>(args.w->panel_bytes());
  const int64_t in_cache = std::max<int64_t>(1, kGroupBytes / bytes);
  const int64_t group =
      tiles <= 4 ? kPanels : std::max<int64_t>(kPanels, in_cache / kPanels * kPanels);
  for (int64_t p = begin; p < end; p += group) {
    const int64_t stop = std::min(end, p + group);
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t row = args.rows * tile / tiles;  // tiles differ by at most one row
      Ahead ahead;
      if (group == kPanels) {
        ahead.next = args.w->panel(p) + kPanels * bytes * (tiles + tile) / tiles;
        ahead.step = kPanels * kStepBytes / tiles;
      }
      RunRows(TileOfGroup{product, row, p, stop, ahead}, args.rows * (tile + 1) / tiles - row);
    }
  }
}

}  // namespace

bool HasBf16Dot() {
  return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bf16");
}

COPPICE_BF16_DOT void RoundToPairs(const float* x, int64_t rows, int64_t columns, uint32_t* pairs) {
  const int64_t steps = PairsOf(columns);
  for (int64_t r = 0; r < rows; ++r) {
    auto* out = reinterpret_cast<uint16_t*>(pairs + r * steps);
    const float* row = x + r * columns;
    if (columns % 2 != 0) out[columns] = 0;
    int64_t k = 0;
    for (; k + 16 <= columns; k += 16) {  // a store with a mask is ten times as slow on Zen 4
      const __m256bh rounded = _mm512_cvtneps_pbh(_mm512_loadu_ps(row + k));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + k),
                          reinterpret_cast<const __m256i&>(rounded));
    }
    if (k == columns) continue;
    const auto lanes = static_cast<__mmask16>((1u << (columns - k)) - 1);
    const __m256bh rounded = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(lanes, row + k));
    _mm256_mask_storeu_epi16(out + k, lanes, reinterpret_cast<const __m256i&>(rounded));
  }
}

void MatMulBf16Range(const MatMulArgs& args, const uint32_t* pairs, int64_t panel_begin,
                     int64_t panel_end) {
  const Product product = {&args, pairs};
  if (args.rows > kMaxTileRows) return ManyRowTiles(product, panel_begin, panel_end);
  if (args.rows == 1 && args.w->panel_bytes() <= kShortPanelBytes)
    return ShortPanels(product, panel_begin, panel_end);
  RunRows(OneTile{product, panel_begin, panel_end}, args.rows);
}

}  // namespace coppice::kernels::cpu

#else  // no such instructions, so MatMul never comes here

namespace coppice::kernels::cpu {

bool HasBf16Dot() { return false; }

void RoundToPairs(const float*, int64_t, int64_t, uint32_t*) {
  COPPICE_CHECK_MSG(false, "bf16 dot products are for x86");
}

void MatMulBf16Range(const MatMulArgs&, const uint32_t*, int64_t, int64_t) {
  COPPICE_CHECK_MSG(false, "bf16 dot products are for x86");
}

}  // namespace coppice::kernels::cpu

#endif
