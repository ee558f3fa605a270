// RMS norm of one row of the residual stream by one block. For .cu files: the norm alone, and the
// sum over the ranks that goes into it.
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

// A plain AddNorm (launch.h) of row `row`, N columns a thread at a time, with addend(c): the N values from
// column c on that are added, unless `adds` is false. A thread reads again only what it wrote
// itself.
template <class T, int N, class Addend>
DEV_FUNCTION void NormRow(const AddNormArgs& args, int64_t row, bool adds, Addend addend) {
  const int64_t begin = row * args.columns;
  float* x = args.x + begin;
  float squares = 0.0f;
  for (int64_t c = int64_t{threadIdx.x} * N; c < args.columns; c += kNormThreads * N) {
    dev::Pack<float, N> in = dev::LoadPack<N>(x + c);
    if (adds) {
      const dev::Pack<float, N> added = addend(c);
      for (int i = 0; i < N; ++i) in.value[i] += added.value[i];
      dev::StorePack(x + c, in);
    }
    for (int i = 0; i < N; ++i) squares += in.value[i] * in.value[i];
  }
  const float mean = NormBlockSum(squares) / static_cast<float>(args.columns);
  const float scale = 1.0f / sqrtf(mean + args.norm.epsilon);
  T* out = static_cast<T*>(args.out) + begin;
  for (int64_t c = int64_t{threadIdx.x} * N; c < args.columns; c += kNormThreads * N) {
    const dev::Pack<float, N> in = dev::LoadPack<N>(x + c);
    const dev::Pack<float, N> gain = dev::LoadPack<N>(args.norm.gain + c);
    dev::Pack<T, N> normed;
    for (int i = 0; i < N; ++i) {
      normed.value[i] = dev::FromFloat<T>(in.value[i] * scale * gain.value[i]);
    }
    dev::StorePack(out + c, normed);
  }
}

}  // namespace coppice::kernels::cuda
