// The register tile of MatMul: kRows rows of x times kPanels panels of W, over all of K. Compiled
// once per target. The prefetch distance and the shapes were chosen by measurement
// (lab/bench/kernels).
#if defined(COPPICE_KERNELS_CPU_MATMUL_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef COPPICE_KERNELS_CPU_MATMUL_TILE_INL_H_
#undef COPPICE_KERNELS_CPU_MATMUL_TILE_INL_H_
#else
#define COPPICE_KERNELS_CPU_MATMUL_TILE_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/matmul.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, kPanelWidth>;
using DU = hn::RebindToUnsigned<DF>;
using VF = hn::Vec<DF>;
inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(DF()));
inline constexpr int kVectors = kPanelWidth / kLanes;  // vectors per panel
// Loops over registers are unrolled, except when a vector is one float: then the sums do not fit
// the registers.
inline constexpr int kUnroll = kLanes > 1 ? 16 : 1;
inline constexpr int kMaxTileRows = 6;
// Bytes of weights kept in the second-level cache.
inline constexpr int64_t kGroupBytes = 192 << 10;
inline constexpr int64_t kPrefetchBytes = 4096;

// Panels of a tile of that many rows: enough independent accumulators to hide the latency of
// multiply-adds.
constexpr int PanelsFor(int rows) {
  constexpr int kPerVector[kMaxTileRows + 1] = {0, 8, 4, 4, 2, 2, 2};
  return std::max(1, kPerVector[rows] / kVectors);
}

// Weights of one step along K (kDepth inputs) of one panel. kTight: the accumulators leave no
// register to spare.
struct F32Weights {
  static constexpr int kDepth = 1;
  static constexpr int64_t kStepBytes = kPanelWidth * 4;
  template <bool kTight>
  static HWY_INLINE VF Load(const uint8_t* step, int vector, int /*depth*/) {
    return hn::Load(DF(), reinterpret_cast<const float*>(step) + vector * kLanes);
  }
};
struct Bf16Weights {
  static constexpr int kDepth = 2;
  static constexpr int64_t kStepBytes = kPanelWidth * 4;
  template <bool kTight>
  static HWY_INLINE VF Load(const uint8_t* step, int vector, int depth) {
    const auto words = hn::Load(DU(), reinterpret_cast<const uint32_t*>(step) + vector * kLanes);
    if (depth == 0) return hn::BitCast(DF(), hn::ShiftLeft<16>(words));
    if constexpr (kTight) {  // a mask would be faster but occupies a register
      return hn::BitCast(DF(), hn::ShiftLeft<16>(hn::ShiftRight<16>(words)));
    } else {
      return hn::BitCast(DF(), hn::And(words, hn::Set(DU(), 0xffff0000u)));
    }
  }
};

// acc += x[:, k + depth] times the weights of one step. With few rows, their broadcasts stay in
// registers and the weight vectors are loaded in turn; with many, the weight vectors stay.
template <class Weights, int kRows, int kPanels>
HWY_INLINE void Step(const float* HWY_RESTRICT x, int64_t stride, const uint8_t* HWY_RESTRICT w,
                     int64_t panel_stride, int depth, VF (&acc)[kRows][kPanels * kVectors]) {
  constexpr bool kTight = kVectors > 1 && kRows * kPanels * kVectors >= 12;
  if constexpr (kPanels > 1) {
    VF broadcast[kRows];
#pragma GCC unroll kUnroll
    for (int r = 0; r < kRows; ++r) broadcast[r] = hn::Set(DF(), x[r * stride]);
#pragma GCC unroll kUnroll
    for (int v = 0; v < kPanels * kVectors; ++v) {
      const VF weights =
          Weights::template Load<kTight>(w + v / kVectors * panel_stride, v % kVectors, depth);
#pragma GCC unroll kUnroll
      for (int r = 0; r < kRows; ++r) acc[r][v] = hn::MulAdd(broadcast[r], weights, acc[r][v]);
    }
  } else {
    VF weights[kVectors];
#pragma GCC unroll kUnroll
    for (int v = 0; v < kVectors; ++v) weights[v] = Weights::template Load<kTight>(w, v, depth);
#pragma GCC unroll kUnroll
    for (int r = 0; r < kRows; ++r) {
      const VF broadcast = hn::Set(DF(), x[r * stride]);
#pragma GCC unroll kUnroll
      for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::MulAdd(broadcast, weights[v], acc[r][v]);
    }
  }
}

// y[row][panel's outputs] of the last panel, when it is not full. Not inlined, as every tile shape
// has a call.
HWY_NOINLINE void StoreLastPanel(const MatMulArgs& args, int64_t row, int64_t first,
                                 const float* sums) {
  float* y = args.y + row * args.y_stride + first;
  for (int64_t lane = 0; first + lane < args.w->rows; ++lane) {
    float sum = sums[lane];
    if (args.bias != nullptr) sum += args.bias[first + lane];
    y[lane] = args.accumulate ? y[lane] + sum : sum;
  }
}

// y[row][panel's outputs] from 16 sums.
HWY_INLINE void StorePanel(const MatMulArgs& args, int64_t row, int64_t panel, const VF* acc) {
  const int64_t first = panel * kPanelWidth;
  if (first + kPanelWidth > args.w->rows) {
    HWY_ALIGN float sums[kPanelWidth];
#pragma GCC unroll kUnroll
    for (int v = 0; v < kVectors; ++v) hn::Store(acc[v], DF(), sums + v * kLanes);
    return StoreLastPanel(args, row, first, sums);
  }
  float* HWY_RESTRICT y = args.y + row * args.y_stride + first;
#pragma GCC unroll kUnroll
  for (int v = 0; v < kVectors; ++v) {
    VF sum = acc[v];
    if (args.bias != nullptr) sum = hn::Add(sum, hn::LoadU(DF(), args.bias + first + v * kLanes));
    if (args.accumulate) sum = hn::Add(hn::LoadU(DF(), y + v * kLanes), sum);
    hn::StoreU(sum, DF(), y + v * kLanes);
  }
}

// What a tile prefetches while it computes. If no other tile reads its panels: its own weights,
// kPrefetchBytes ahead. Otherwise its share of the next panel, so that the tiles over a panel
// together load the next one.
struct Ahead {
  const uint8_t* next = nullptr;  // nullptr: the panel itself
  int64_t step = 0;               // bytes for each step along K
};

// Rows row .. row + kRows - 1 and panels panel, panel + stride, ... (kPanels of them).
template <class Weights, int kRows, int kPanels>
HWY_NOINLINE void Tile(const MatMulArgs& args, int64_t row, int64_t panel, int64_t stride,
                       Ahead ahead = {}) {
  const int64_t columns = args.w->columns;
  const int64_t panel_stride = stride * static_cast<int64_t>(args.w->panel_bytes());
  const uint8_t* HWY_RESTRICT w = args.w->panel(panel);
  const float* HWY_RESTRICT x = args.x + row * columns;
  const uint8_t* fetch = ahead.next == nullptr ? w + kPrefetchBytes : ahead.next;
  const int64_t fetch_step = ahead.next == nullptr ? Weights::kStepBytes : ahead.step;

  VF acc[kRows][kPanels * kVectors];
#pragma GCC unroll kUnroll
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll kUnroll
    for (int v = 0; v < kPanels * kVectors; ++v) acc[r][v] = hn::Zero(DF());
  }
  int64_t k = 0;
  for (; k + Weights::kDepth <= columns; k += Weights::kDepth) {
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) __builtin_prefetch(fetch + p * panel_stride, 0, 2);
    fetch += fetch_step;
#pragma GCC unroll 2
    for (int depth = 0; depth < Weights::kDepth; ++depth) {
      Step<Weights, kRows, kPanels>(x + k + depth, columns, w, panel_stride, depth, acc);
    }
    w += Weights::kStepBytes;
  }
  if (k < columns) Step<Weights, kRows, kPanels>(x + k, columns, w, panel_stride, 0, acc);
#pragma GCC unroll kUnroll
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p)
      StorePanel(args, row + r, panel + p * stride, &acc[r][p * kVectors]);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace coppice::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
