// RMS norm of the residual stream, and biases.
#include "kernels/cuda/ops/norm_row.h"

namespace coppice::kernels::cuda {
namespace {

constexpr int kThreads = kNormThreads;

// One block a row.
template <class T, int N>
DEV_KERNEL void AddNormRows(AddNormArgs args) {
  dev::WaitForPrevious();
  const int64_t row = blockIdx.x;
  NormRow<T, N>(args, row, args.addend != nullptr,
                [&](int64_t c) { return dev::LoadPack<N>(args.addend + row * args.columns + c); });
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
