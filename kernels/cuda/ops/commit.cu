// Copies of KV slots. Sources and destinations are disjoint, so all copies run at once.
#include "kernels/cuda/ops/kernel_types.h"

namespace coppice::kernels::cuda {
namespace {

constexpr int kThreads = 128;
// Copies per plane at once; their number is known only when the kernel runs.
constexpr unsigned kCopiesAtOnce = 16;

// Block (first copy, plane): all heads of one slot of one plane (K or V of a layer), 16 bytes or
// eight codes a thread, then of the slot kCopiesAtOnce copies on. T is as wide as an element.
template <class T>
DEV_KERNEL void CopySlots(const DeviceStep* step, DevicePool pool) {
  dev::WaitForPrevious();
  constexpr int kPack = kCodes<T> ? 8 : 16 / sizeof(T);
  const KvCopy* commits = step->commits;
  const int count = step->commit_count;
  const int layer = static_cast<int>(blockIdx.y) / 2;
  const bool value = blockIdx.y % 2 != 0;
  const int packs = pool.head_dim / kPack;
  for (int c = static_cast<int>(blockIdx.x); c < count; c += static_cast<int>(gridDim.x)) {
    const KvCopy copy = commits[c];
    for (int i = static_cast<int>(threadIdx.x); i < pool.kv_heads * packs; i += kThreads) {
      const int head = i / packs, offset = i % packs * kPack;
      const T* source = PoolRow<T>(pool, layer, value, copy.source, head) + offset;
      T* destination = PoolRow<T>(pool, layer, value, copy.destination, head) + offset;
      dev::StorePack(destination, dev::LoadPack<kPack>(source));
      if constexpr (kCodes<T>) {
        if (offset == 0) {
          *PoolScale(pool, layer, value, copy.destination, head) =
              *PoolScale(pool, layer, value, copy.source, head);
        }
      }
    }
  }
}

}  // namespace

void CommitKv(const StepView& step, const DevicePool& pool, cudaStream_t stream) {
  const dim3 grid(kCopiesAtOnce, static_cast<unsigned>(2 * pool.layers));
  dev::Declare("commit", [step = step.step, pool] {
    const int64_t slot = int64_t{2} * pool.layers * pool.kv_heads * VectorBytes(pool);
    return dev::Cost{2 * step->commit_count * slot};
  });
  WithPoolType(pool.dtype, [&](auto element) {
    dev::Launch(CopySlots<decltype(element)>, grid, dim3(kThreads), 0, stream, step.step, pool);
  });
}

}  // namespace coppice::kernels::cuda
