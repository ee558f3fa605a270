// Rows of the embedding matrix, and of the matrix of learned positions.
#include "kernels/cuda/ops/kernel_types.h"

namespace coppice::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// One block a row, N columns a thread at a time.
template <class T, int N>
DEV_KERNEL void CopyRows(const DeviceStep* step, EmbedArgs args) {
  dev::WaitForPrevious();
  const int64_t r = blockIdx.x;
  const int64_t row = step->token[r] - args.first_row;
  const bool held = row >= 0 && row < args.matrix_rows;
  const T* source = static_cast<const T*>(args.matrix) + (held ? row : 0) * args.columns;
  float* x = args.x + r * args.columns;
  for (int64_t c = int64_t{threadIdx.x} * N; c < args.columns; c += kThreads * N) {
    dev::Pack<float, N> out;
    for (int i = 0; i < N; ++i) out.value[i] = 0.0f;
    if (held) {
      const dev::Pack<T, N> in = dev::LoadPack<N>(source + c);
      for (int i = 0; i < N; ++i) out.value[i] = dev::ToFloat(in.value[i]) * args.scale;
    }
    dev::StorePack(x + c, out);
  }
}

// Likewise.
template <class T, int N>
DEV_KERNEL void AddPositionRows(const DeviceStep* step, PositionArgs args) {
  dev::WaitForPrevious();
  const int64_t r = blockIdx.x;
  const int64_t row = int64_t{step->position[r]} + args.offset;
  const T* source = static_cast<const T*>(args.matrix) + row * args.columns;
  float* x = args.x + r * args.columns;
  for (int64_t c = int64_t{threadIdx.x} * N; c < args.columns; c += kThreads * N) {
    dev::Pack<float, N> sum = dev::LoadPack<N>(x + c);
    const dev::Pack<T, N> added = dev::LoadPack<N>(source + c);
    for (int i = 0; i < N; ++i) sum.value[i] += dev::ToFloat(added.value[i]);
    dev::StorePack(x + c, sum);
  }
}

}  // namespace

void Embed(const StepView& step, const EmbedArgs& args, cudaStream_t stream) {
  if (step.rows == 0) return;
  const dim3 grid(static_cast<unsigned>(step.rows));
  WithType(args.dtype, [&](auto element) {
    using T = decltype(element);
    dev::Declare("embedding", [rows = step.rows, args] {
      const int64_t elements = int64_t{rows} * args.columns;
      return dev::Cost{.bytes = elements * int64_t{sizeof(T) + sizeof(float)},
                       .flops = args.scale == 1 ? 0 : elements,
                       .cold_bytes = elements * int64_t{sizeof(T)},
                       .dependent_loads = 3};
    });
    const auto kernel = args.columns % 4 == 0 ? CopyRows<T, 4> : CopyRows<T, 1>;
    dev::Launch(kernel, grid, dim3(kThreads), 0, stream, step.step, args);
  });
}

void AddPositions(const StepView& step, const PositionArgs& args, cudaStream_t stream) {
  if (step.rows == 0) return;
  const dim3 grid(static_cast<unsigned>(step.rows));
  WithType(args.dtype, [&](auto element) {
    using T = decltype(element);
    dev::Declare("learned positions", [rows = step.rows, args] {
      const int64_t elements = int64_t{rows} * args.columns;
      return dev::Cost{elements * int64_t{sizeof(T) + 2 * sizeof(float)}, elements};
    });
    const auto kernel = args.columns % 4 == 0 ? AddPositionRows<T, 4> : AddPositionRows<T, 1>;
    dev::Launch(kernel, grid, dim3(kThreads), 0, stream, step.step, args);
  });
}

}  // namespace coppice::kernels::cuda
