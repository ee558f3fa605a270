// Copies of KV slots, with their states. Sources and destinations are disjoint, so all copies run at
// once.
#include "kernels/cuda/ops/kernel_types.h"

namespace coppice::kernels::cuda {
namespace {

constexpr int kThreads = 128;
// Copies per plane at once; their number is known only when the kernel runs.
constexpr unsigned kCopiesAtOnce = 16;

// The states of slots, 16 bytes a thread.
DEV_FUNCTION void CopyStates(const DeviceStep& step, const DeviceStates& states) {
  auto* const values = static_cast<dev::bf16*>(states.values);
  for (int i = static_cast<int>(blockIdx.x); i < step.commit_count;
       i += static_cast<int>(gridDim.x)) {
    const KvCopy copy = step.commits[i];
    const dev::bf16* const source = values + int64_t{copy.source} * states.columns;
    dev::bf16* const destination = values + int64_t{copy.destination} * states.columns;
    for (int c = static_cast<int>(threadIdx.x) * kStateUnit; c < states.columns;
         c += kThreads * kStateUnit) {
      dev::StorePack(destination + c, dev::LoadPack<kStateUnit>(source + c));
    }
  }
}

// Block (first copy, plane): all heads of one slot of one plane (K or V of a layer), 16 bytes or
// eight codes a thread, then of the slot kCopiesAtOnce copies on. T is as wide as an element. The
// plane after the last has the states.
template <class T>
DEV_KERNEL void CopySlots(const DeviceStep* step, DevicePool pool, DeviceStates states) {
  dev::WaitForPrevious();
  if (static_cast<int>(blockIdx.y) == 2 * pool.layers) {
    CopyStates(*step, states);
    return;
  }
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

void CommitKv(const StepView& step, const DevicePool& pool, const DeviceStates& states,
              cudaStream_t stream) {
  const int planes = 2 * pool.layers + (states.columns > 0 ? 1 : 0);
  const dim3 grid(kCopiesAtOnce, static_cast<unsigned>(planes));
  dev::Declare("commit", [step = step.step, pool, columns = states.columns] {
    const int64_t slot = int64_t{2} * pool.layers * pool.kv_heads * VectorBytes(pool) +
                         columns * int64_t{sizeof(dev::bf16)};
    return dev::Cost{2 * step->commit_count * slot};
  });
  WithPoolType(pool.dtype, [&](auto element) {
    dev::Launch(CopySlots<decltype(element)>, grid, dim3(kThreads), 0, stream, step.step, pool,
                states);
  });
}

}  // namespace coppice::kernels::cuda
