// Copies of KV slots. Sources and destinations are disjoint, so all copies run at once.
#include "kernels/cuda/kernel_types.h"

namespace coppice::kernels::cuda {
namespace {

constexpr int kThreads = 128;

// Block (copy, plane): all heads of one slot of one plane (K or V of a layer), 16 bytes a thread.
// T is as wide as an element.
template <class T>
DEV_KERNEL void CopySlots(DeviceStep step, DevicePool pool) {
  dev::WaitForPrevious();
  constexpr int kPack = 16 / sizeof(T);
  const KvCopy copy = step.commits[blockIdx.x];
  const int layer = static_cast<int>(blockIdx.y) / 2;
  const bool value = blockIdx.y % 2 != 0;
  const int packs = pool.head_dim / kPack;
  for (int i = static_cast<int>(threadIdx.x); i < pool.kv_heads * packs; i += kThreads) {
    const int head = i / packs, offset = i % packs * kPack;
    const T* source = PoolRow<T>(pool, layer, value, copy.source, head) + offset;
    T* destination = PoolRow<T>(pool, layer, value, copy.destination, head) + offset;
    dev::StorePack(destination, dev::LoadPack<kPack>(source));
  }
}

}  // namespace

void CommitKv(const DeviceStep& step, const DevicePool& pool, cudaStream_t stream) {
  if (step.commit_count == 0) return;
  const dim3 grid(static_cast<unsigned>(step.commit_count), static_cast<unsigned>(2 * pool.layers));
  const auto kernel = pool.dtype == DType::kF32 ? CopySlots<uint32_t> : CopySlots<uint16_t>;
  dev::Declare("commit", [copies = step.commit_count, pool] {
    const int64_t slot = int64_t{2} * pool.layers * pool.kv_heads * pool.head_dim;
    return dev::Cost{2 * copies * slot * (pool.dtype == DType::kF32 ? 4 : 2)};
  });
  dev::Launch(kernel, grid, dim3(kThreads), 0, stream, step, pool);
}

}  // namespace coppice::kernels::cuda
