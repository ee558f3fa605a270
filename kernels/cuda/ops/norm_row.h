// Norms of one row of the residual stream by one block. For .cu files: the norm alone, and the sum
// over the ranks that goes into it.
#pragma once

#include "kernels/cuda/ops/kernel_types.h"

namespace coppice::kernels::cuda {

inline constexpr int kNormThreads = 256;

// The sum over the block, the same bits in every thread: warps are added in order.
DEV_FUNCTION float NormBlockSum(float value) {
  constexpr int kWarps = kNormThreads / dev::kWarpSize;
  DEV_SHARED(float, sums, kWarps);
  const int warp = static_cast<int>(threadIdx.x) / dev::kWarpSize;
  value = dev::WarpSum(value);
  if (threadIdx.x % dev::kWarpSize == 0) sums[warp] = value;
  __syncthreads();
  float total = sums[0];
  for (int i = 1; i < kWarps; ++i) total += sums[i];
  return total;
}

// A thread's part of a row: N columns of every kStep. The first kPacks of them are held in
// registers, so that all loads are under way before one is waited for and memory is read once;
// longer rows are read from memory beyond them.
template <int N>
struct HeldRow {
  static constexpr int kPacks = 8, kGroup = 4;
  static constexpr int64_t kStep = int64_t{kNormThreads} * N;
  static constexpr int64_t kColumns = kPacks * kStep;  // of a row that are held

  dev::Pack<float, N> pack[kPacks] = {};

  // Calls f(j, c) for the thread's packs first .. first + kGroup - 1 as far as the row has them:
  // pack j is that of the columns from c on.
  template <class F>
  DEV_FUNCTION static void EachOf(int first, int64_t columns, F f) {
    DEV_UNROLL
    for (int j = first; j < first + kGroup; ++j) {
      const int64_t c = j * kStep + int64_t{threadIdx.x} * N;
      if (c < columns) f(j, c);
    }
  }
  template <class F>
  DEV_FUNCTION static void Each(int64_t columns, F f) {
    EachOf(0, columns, f);
    if (columns > kGroup * kStep) EachOf(kGroup, columns, f);
  }
  // Calls f(c) for the columns that are not held, in the same order.
  template <class F>
  DEV_FUNCTION static void EachBeyond(int64_t columns, F f) {
    for (int64_t c = kColumns + int64_t{threadIdx.x} * N; c < columns; c += kStep) f(c);
  }

  DEV_FUNCTION void Load(const float* row, int64_t columns) {
    Each(columns, [&](int j, int64_t c) { pack[j] = dev::LoadPack<N>(row + c); });
  }
};

// A plain AddNorm (launch.h) of row `row`, N columns a thread at a time. What is added, unless
// `adds` is false: addend.At(c), the N values from column c on, and addend.Group(first, columns,
// added), those of the packs from `first` on, all their loads before a use. A thread reads again
// only what it wrote itself.
template <class T, int N, class Addend>
DEV_FUNCTION void NormRow(const AddNormArgs& args, int64_t row, bool adds, const Addend& addend) {
  using Held = HeldRow<N>;
  const int64_t begin = row * args.columns;
  float* x = args.x + begin;
  float squares = 0.0f;
  Held in, gain;
  const auto add = [&](dev::Pack<float, N>& sum, const dev::Pack<float, N>& added, int64_t c) {
    for (int i = 0; i < N; ++i) sum.value[i] += added.value[i];
    dev::StorePack(x + c, sum);
  };
  const auto square = [&](const dev::Pack<float, N>& values) {
    for (int i = 0; i < N; ++i) squares += values.value[i] * values.value[i];
  };
  const auto read = [&](int first) {
    dev::Pack<float, N> added[Held::kGroup] = {};
    Held::EachOf(first, args.columns, [&](int j, int64_t c) {
      in.pack[j] = dev::LoadPack<N>(x + c);
      gain.pack[j] = dev::LoadPack<N>(args.norm.gain + c);
    });
    if (adds) {
      addend.Group(first, args.columns, added);
      Held::EachOf(first, args.columns,
                   [&](int j, int64_t c) { add(in.pack[j], added[j - first], c); });
    }
    Held::EachOf(first, args.columns, [&](int j, int64_t) { square(in.pack[j]); });
  };
  read(0);
  if (args.columns > Held::kGroup * Held::kStep) read(Held::kGroup);
  Held::EachBeyond(args.columns, [&](int64_t c) {
    dev::Pack<float, N> values = dev::LoadPack<N>(x + c);
    if (adds) add(values, addend.At(c), c);
    square(values);
  });
  const float mean = NormBlockSum(squares) / static_cast<float>(args.columns);
  const float scale = 1.0f / sqrtf(mean + args.norm.epsilon);
  T* out = static_cast<T*>(args.out) + begin;
  const auto write = [&](const dev::Pack<float, N>& values, const dev::Pack<float, N>& gains,
                         int64_t c) {
    dev::Pack<T, N> normed;
    for (int i = 0; i < N; ++i) {
      normed.value[i] = dev::FromFloat<T>(values.value[i] * scale * gains.value[i]);
    }
    dev::StorePack(out + c, normed);
  };
  Held::Each(args.columns, [&](int j, int64_t c) { write(in.pack[j], gain.pack[j], c); });
  Held::EachBeyond(args.columns, [&](int64_t c) {
    write(dev::LoadPack<N>(x + c), dev::LoadPack<N>(args.norm.gain + c), c);
  });
}

}  // namespace coppice::kernels::cuda
