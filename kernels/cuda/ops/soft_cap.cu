// The soft cap of logits.
#include "kernels/cuda/ops/kernel_types.h"

namespace coppice::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// Block (piece of kThreads * N values). x - x is 0, or NaN for what is not finite.
template <int N>
DEV_KERNEL void CapValues(SoftCapArgs args) {
  dev::WaitForPrevious();
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * N;
  if (i >= args.count) return;
  dev::Pack<float, N> values = dev::LoadPack<N>(args.x + i);
  for (int e = 0; e < N; ++e) {
    const float x = values.value[e];
    values.value[e] = args.cap * tanhf(x / args.cap) + (x - x);
  }
  dev::StorePack(args.x + i, values);
}

}  // namespace

void SoftCap(const SoftCapArgs& args, cudaStream_t stream) {
  if (args.count == 0) return;
  constexpr int kPack = 4;
  const bool whole = args.count % kPack == 0;
  const auto kernel = whole ? CapValues<kPack> : CapValues<1>;
  dev::Declare("soft cap", [args] {
    return dev::Cost{args.count * int64_t{2 * sizeof(float)}, 3 * args.count};
  });
  dev::Launch(kernel, dim3(CeilDiv(args.count, kThreads * (whole ? kPack : 1))), dim3(kThreads), 0,
              stream, args);
}

}  // namespace coppice::kernels::cuda
