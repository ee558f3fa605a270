// Rows of the embedding matrix.
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
      for (int i = 0; i < N; ++i) out.value[i] = dev::ToFloat(in.value[i]);
    }
    dev::StorePack(x + c, out);
  }
}

}  // namespace

void Embed(const StepView& step, const EmbedArgs& args, cudaStream_t stream) {
  if (step.rows == 0) return;
  const dim3 grid(static_cast<unsigned>(step.rows));
  WithType(args.dtype, [&](auto element) {
    using T = decltype(element);
    dev::Declare("embedding", [rows = step.rows, args] {
      return dev::Cost{int64_t{rows} * args.columns * int64_t{sizeof(T) + sizeof(float)}};
    });
    const auto kernel = args.columns % 4 == 0 ? CopyRows<T, 4> : CopyRows<T, 1>;
    dev::Launch(kernel, grid, dim3(kThreads), 0, stream, step.step, args);
  });
}

}  // namespace coppice::kernels::cuda
