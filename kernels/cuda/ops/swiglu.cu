// The gated activation of the feed-forward network.
#include "kernels/cuda/ops/kernel_types.h"
#include "kernels/cuda/ops/silu.h"

namespace coppice::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// Block (row, piece of kThreads * N columns).
template <class T, int N>
DEV_KERNEL void GateRows(const T* gate_up, T* out, int64_t columns) {
  dev::WaitForPrevious();
  const int64_t c = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * N;
  if (c >= columns) return;
  const T* row = gate_up + blockIdx.x * 2 * columns;
  const dev::Pack<T, N> gate = dev::LoadPack<N>(row + c);
  const dev::Pack<T, N> up = dev::LoadPack<N>(row + columns + c);
  dev::Pack<T, N> product;
  for (int i = 0; i < N; ++i) {
    const float value = Silu(dev::ToFloat(gate.value[i])) * dev::ToFloat(up.value[i]);
    product.value[i] = dev::FromFloat<T>(value);
  }
  dev::StorePack(out + blockIdx.x * columns + c, product);
}

}  // namespace

void SwiGlu(const void* gate_up, void* out, DType dtype, int64_t rows, int64_t columns,
            cudaStream_t stream) {
  if (rows == 0) return;
  WithType(dtype, [&](auto element) {
    using T = decltype(element);
    constexpr int kPack = 16 / sizeof(T);
    const bool whole = columns % kPack == 0;
    const auto kernel = whole ? GateRows<T, kPack> : GateRows<T, 1>;
    const dim3 grid(static_cast<unsigned>(rows), CeilDiv(columns, kThreads * (whole ? kPack : 1)));
    dev::Declare("SwiGLU", [elements = rows * columns] {
      return dev::Cost{elements * int64_t{3 * sizeof(T)}, 6 * elements};
    });
    dev::Launch(kernel, grid, dim3(kThreads), 0, stream, static_cast<const T*>(gate_up),
                static_cast<T*>(out), columns);
  });
}

}  // namespace coppice::kernels::cuda
