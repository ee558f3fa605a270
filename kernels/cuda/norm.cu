// RMS norm of the residual stream, and biases.
#include "kernels/cuda/kernel_types.h"

namespace coppice::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / dev::kWarpSize;

// The sum over the block, the same bits in every thread: warps are added in order.
DEV_FUNCTION float BlockSum(float value) {
  DEV_SHARED(float, sums, kWarps);
  const int warp = static_cast<int>(threadIdx.x) / dev::kWarpSize;
  value = dev::WarpSum(value);
  if (threadIdx.x % dev::kWarpSize == 0) sums[warp] = value;
  __syncthreads();
  float total = sums[0];
  for (int i = 1; i < kWarps; ++i) total += sums[i];
  return total;
}

// One block a row, N columns a thread at a time. A thread reads again only what it wrote itself.
template <class T, int N>
DEV_KERNEL void AddNormRows(AddNormArgs args) {
  dev::WaitForPrevious();
  const int64_t begin = int64_t{blockIdx.x} * args.columns;
  float* x = args.x + begin;
  float squares = 0.0f;
  for (int64_t c = int64_t{threadIdx.x} * N; c < args.columns; c += kThreads * N) {
    dev::Pack<float, N> in = dev::LoadPack<N>(x + c);
    if (args.addend != nullptr) {
      const dev::Pack<float, N> added = dev::LoadPack<N>(args.addend + begin + c);
      for (int i = 0; i < N; ++i) in.value[i] += added.value[i];
      dev::StorePack(x + c, in);
    }
    for (int i = 0; i < N; ++i) squares += in.value[i] * in.value[i];
  }
  const float mean = BlockSum(squares) / static_cast<float>(args.columns);
  const float scale = 1.0f / sqrtf(mean + args.epsilon);
  T* out = static_cast<T*>(args.out) + begin;
  for (int64_t c = int64_t{threadIdx.x} * N; c < args.columns; c += kThreads * N) {
    const dev::Pack<float, N> in = dev::LoadPack<N>(x + c);
    const dev::Pack<float, N> gain = dev::LoadPack<N>(args.gain + c);
    dev::Pack<T, N> normed;
    for (int i = 0; i < N; ++i) {
      normed.value[i] = dev::FromFloat<T>(in.value[i] * scale * gain.value[i]);
    }
    dev::StorePack(out + c, normed);
  }
}

// Block (row, piece of kThreads * N columns).
template <class T, int N>
DEV_KERNEL void AddBiasRows(T* y, const float* bias, int64_t columns) {
  dev::WaitForPrevious();
  const int64_t c = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * N;
  if (c >= columns) return;
  T* place = y + blockIdx.x * columns + c;
  dev::Pack<T, N> sum = dev::LoadPack<N>(place);
  const dev::Pack<float, N> added = dev::LoadPack<N>(bias + c);
  for (int i = 0; i < N; ++i) {
    sum.value[i] = dev::FromFloat<T>(dev::ToFloat(sum.value[i]) + added.value[i]);
  }
  dev::StorePack(place, sum);
}

}  // namespace

void AddNorm(const AddNormArgs& args, cudaStream_t stream) {
  if (args.rows == 0) return;
  const dim3 grid(static_cast<unsigned>(args.rows));
  WithType(args.dtype, [&](auto element) {
    using T = decltype(element);
    dev::Declare("norm", [args] {
      // x is read again for the output, and the gain by every row.
      const int64_t element = (args.addend == nullptr ? 3 : 5) * sizeof(float) + sizeof(T);
      const int64_t elements = args.rows * args.columns;
      return dev::Cost{elements * element, 4 * elements};
    });
    const auto kernel = args.columns % 4 == 0 ? AddNormRows<T, 4> : AddNormRows<T, 1>;
    dev::Launch(kernel, grid, dim3(kThreads), 0, stream, args);
  });
}

void AddBias(void* y, DType dtype, const float* bias, int64_t rows, int64_t columns,
             cudaStream_t stream) {
  if (rows == 0) return;
  WithType(dtype, [&](auto element) {
    using T = decltype(element);
    const bool whole = columns % 4 == 0;
    const auto kernel = whole ? AddBiasRows<T, 4> : AddBiasRows<T, 1>;
    const dim3 grid(static_cast<unsigned>(rows), CeilDiv(columns, kThreads * (whole ? 4 : 1)));
    dev::Declare("bias", [elements = rows * columns] {
      return dev::Cost{elements * int64_t{2 * sizeof(T) + sizeof(float)}, elements};
    });
    dev::Launch(kernel, grid, dim3(kThreads), 0, stream, static_cast<T*>(y), bias, columns);
  });
}

}  // namespace coppice::kernels::cuda
