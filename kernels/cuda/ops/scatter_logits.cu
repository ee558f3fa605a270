// The logits of a draft vocabulary over the whole vocabulary.
#include "kernels/cuda/ops/kernel_types.h"

namespace coppice::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// Block (row, piece of kThreads * N columns).
template <int N>
DEV_KERNEL void ScatterRows(ScatterArgs args) {
  dev::WaitForPrevious();
  const int64_t c = (int64_t{blockIdx.y} * kThreads + threadIdx.x) * N;
  if (c >= args.columns) return;
  const float* kept = args.kept + blockIdx.x * args.kept_columns;
  const dev::Pack<int32_t, N> place = dev::LoadPack<N>(args.place + c);
  dev::Pack<float, N> out;
  for (int i = 0; i < N; ++i) {
    const int32_t at = place.value[i];
    out.value[i] = at < 0 ? __uint_as_float(0xff800000u) : kept[at];
  }
  dev::StorePack(args.wide + blockIdx.x * args.columns + c, out);
}

}  // namespace

void Scatter(const ScatterArgs& args, cudaStream_t stream) {
  if (args.rows == 0) return;
  constexpr int kPack = 4;
  const bool whole = args.columns % kPack == 0;
  const auto kernel = whole ? ScatterRows<kPack> : ScatterRows<1>;
  const dim3 grid(static_cast<unsigned>(args.rows),
                  CeilDiv(args.columns, kThreads * (whole ? kPack : 1)));
  dev::Declare("scatter of logits", [args] {
    return dev::Cost{args.rows * (args.columns * int64_t{sizeof(int32_t) + sizeof(float)} +
                                  args.kept_columns * int64_t{sizeof(float)})};
  });
  dev::Launch(kernel, grid, dim3(kThreads), 0, stream, args);
}

}  // namespace coppice::kernels::cuda
