// How the rows and panels of a product with weights in blocks are taken: in tiles of some rows of
// one panel. Only matmul_blocks.cc includes it. Pure functions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/int8.h"
#include "kernels/cpu/matmul.h"

namespace coppice::kernels::cpu {

// On each function, not on the file: inline functions of headers must stay runnable everywhere.
#define COPPICE_AVX2 __attribute__((target("avx2,fma,f16c")))
#define COPPICE_VNNI __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))

inline constexpr int64_t kGroupWords =
    kBlockInputs / 4;                                   // words of a row's block, four inputs each
inline constexpr int64_t kIntegerPrefetchBytes = 4096;  // bytes ahead of those that a tile reads
inline constexpr int64_t kTiledBytes = 384 << 10;       // weights kept in the second-level cache

#if defined(__x86_64__)
inline bool HasVnni() {
  return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}
#endif

// A product, and its input as integers.
struct IntegerProduct {
  const MatMulArgs* args;
  const Int8Rows* x;
};

// A finished output.
inline void StoreOne(const MatMulArgs& args, int64_t row, int64_t output, float sum) {
  float* y = args.y + row * args.y_stride + output;
  if (args.bias != nullptr) sum += args.bias[output];
  *y = args.accumulate ? *y + sum : sum;
}

// The same pointer, of which the compiler does not know it. So it loads inputs again in each step,
// where it would keep those of several steps on the stack. No instruction.
template <class T>
inline T* Anew(T* pointer) {
  asm volatile("" : "+r"(pointer));
  return pointer;
}

// 64 inputs of rows from `row` on, for weights in blocks (block_panel.h) with that many groups in
// them. Row r has its words kGroupWords r behind, its two scales 2 r, its sums groups * r.
struct BlockRows {
  const uint32_t* words;
  const float* scale;
  const int32_t* correction;
  const float* scaled_sum;
  const int64_t rows, sums;  // in all

  BlockRows(const Int8Rows& x, int64_t row, int groups)
      : words(x.words.data() + row * kGroupWords),
        scale(x.scale.data() + row * 2),
        correction(x.correction.data() + row * groups),
        scaled_sum(x.scaled_sum.data() + row * groups),
        rows(x.rows),
        sums(x.rows * groups) {}
  void Next() {
    words += rows * kGroupWords;
    scale += rows * 2;
    correction += sums;
    scaled_sum += sums;
  }
};

// Calls Kernel::Run<kRows> with the number of rows as a constant.
template <class Kernel, int kRows = Kernel::kMost>
void RunRows(const IntegerProduct& product, int64_t row, int64_t rows, int64_t begin, int64_t end) {
  if (rows == kRows) return Kernel::template Run<kRows>(product, row, begin, end);
  if constexpr (kRows > 1) RunRows<Kernel, kRows - 1>(product, row, rows, begin, end);
}

// Rows in tiles of at most Kernel::kMost, which differ by one row at most. If there are several
// tiles, groups of panels stay in the second-level cache while all of them use these panels. One
// panel is read after the other: memory is read fastest as one stream.
template <class Kernel>
void Tiles(const IntegerProduct& product, int64_t begin, int64_t end) {
  const MatMulArgs& args = *product.args;
  const int64_t tiles = (args.rows + Kernel::kMost - 1) / Kernel::kMost;
  const int64_t in_cache =
      std::max<int64_t>(1, kTiledBytes / static_cast<int64_t>(args.w->panel_bytes()));
  const int64_t group = tiles == 1 ? end - begin : in_cache;
  for (int64_t p = begin; p < end; p += group) {
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t row = args.rows * tile / tiles;
      RunRows<Kernel>(product, row, args.rows * (tile + 1) / tiles - row, p,
                      std::min(end, p + group));
    }
  }
}

}  // namespace coppice::kernels::cpu
