// The activation of the feed-forward network, gated or not.
#include "kernels/cuda/ops/activation.h"
#include "kernels/cuda/ops/kernel_types.h"

namespace coppice::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// Block (row, piece of kThreads * N columns).
template <class T, int N, Activation kKind>
DEV_KERNEL void ActivateRows(ActivateArgs args) {
  dev::WaitForPrevious();
  const int64_t c = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * N;
  if (c >= args.columns) return;
  const T* row = static_cast<const T*>(args.in) + blockIdx.x * (args.gated ? 2 : 1) * args.columns;
  const dev::Pack<T, N> in = dev::LoadPack<N>(row + c);
  float value[N];
  for (int i = 0; i < N; ++i) {
    const float x = dev::ToFloat(in.value[i]);
    if constexpr (kKind == Activation::kSilu) {
      value[i] = Silu(x);
    } else if constexpr (kKind == Activation::kGelu) {
      value[i] = Gelu(x);
    } else if constexpr (kKind == Activation::kGeluTanh) {
      value[i] = GeluTanh(x);
    } else {
      value[i] = Relu(x);
    }
  }
  if (args.gated) {
    const dev::Pack<T, N> up = dev::LoadPack<N>(row + args.columns + c);
    for (int i = 0; i < N; ++i) value[i] *= dev::ToFloat(up.value[i]);
  }
  dev::Pack<T, N> out;
  for (int i = 0; i < N; ++i) out.value[i] = dev::FromFloat<T>(value[i]);
  dev::StorePack(static_cast<T*>(args.out) + blockIdx.x * args.columns + c, out);
}

template <class T, int N>
auto KernelOf(Activation f) {
  switch (f) {
    case Activation::kSilu:
      return ActivateRows<T, N, Activation::kSilu>;
    case Activation::kGelu:
      return ActivateRows<T, N, Activation::kGelu>;
    case Activation::kGeluTanh:
      return ActivateRows<T, N, Activation::kGeluTanh>;
    default:
      return ActivateRows<T, N, Activation::kRelu>;
  }
}

// Operations of one element, the product with `up` included.
int64_t FlopsOf(const ActivateArgs& args) {
  constexpr int64_t kFlops[] = {5, 3, 9, 1};  // by the values of Activation
  return kFlops[static_cast<int>(args.f)] + (args.gated ? 1 : 0);
}

}  // namespace

void Activate(const ActivateArgs& args, cudaStream_t stream) {
  if (args.rows == 0) return;
  WithType(args.dtype, [&](auto element) {
    using T = decltype(element);
    constexpr int kPack = 16 / sizeof(T);
    const bool whole = args.columns % kPack == 0;
    const auto kernel = whole ? KernelOf<T, kPack>(args.f) : KernelOf<T, 1>(args.f);
    const dim3 grid(static_cast<unsigned>(args.rows),
                    CeilDiv(args.columns, kThreads * (whole ? kPack : 1)));
    dev::Declare("activation", [args] {
      const int64_t elements = args.rows * args.columns;
      return dev::Cost{.bytes = elements * (args.gated ? 3 : 2) * int64_t{sizeof(T)},
                       .flops = elements * FlopsOf(args),
                       .dependent_loads = 1,
                       .resident = 8};
    });
    dev::Launch(kernel, grid, dim3(kThreads), 0, stream, args);
  });
}

}  // namespace coppice::kernels::cuda
