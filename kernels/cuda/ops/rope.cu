// The bias of q, k and v, rotary embedding of q and k in place, and K and V of the rows into the
// pool.
#include "kernels/cuda/ops/kernel_types.h"

namespace coppice::kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kPack = 4;  // head_dim is a multiple of 8, its half of 4

// NaN for an f16 that is infinite. A score of -inf would hide a token; NaN reaches the logits.
template <class T>
DEV_FUNCTION T Finite(T value) {
  if constexpr (std::is_same_v<T, dev::f16>) {
    const float x = dev::ToFloat(value);
    return dev::FromFloat<T>(x + (x - x));
  } else {
    return value;
  }
}

// The bias is added to what the product left, and the sum rounded, as AddBias does it.
template <class T>
DEV_FUNCTION dev::Pack<T, kPack> LoadWithBias(const T* row, const float* bias, int column) {
  dev::Pack<T, kPack> values = dev::LoadPack<kPack>(row + column);
  if (bias == nullptr) return values;
  const dev::Pack<float, kPack> added = dev::LoadPack<kPack>(bias + column);
  for (int i = 0; i < kPack; ++i) {
    values.value[i] = dev::FromFloat<T>(dev::ToFloat(values.value[i]) + added.value[i]);
  }
  return values;
}

template <class P, class T>
DEV_FUNCTION void StoreAs(P* place, const dev::Pack<T, kPack>& values) {
  dev::Pack<P, kPack> out;
  for (int i = 0; i < kPack; ++i) {
    out.value[i] = dev::FromFloat<P>(dev::ToFloat(values.value[i]));
  }
  dev::StorePack(place, out);
}

// Block (row, piece of the work of the row). A unit of work is kPack pairs of a q or k head, or
// kPack values of a v head. Rows of the sink store nothing: nobody reads it.
template <class T, class P>
DEV_KERNEL void RotateAndStore(const DeviceStep* step, RopeArgs args, DevicePool pool) {
  dev::WaitForPrevious();
  const int64_t r = blockIdx.x;
  const int dim = pool.head_dim, half = dim / 2;
  const int heads = args.q_heads + pool.kv_heads;  // heads that rotate
  const int rotations = heads * (half / kPack);
  const int unit = static_cast<int>(blockIdx.y * kThreads + threadIdx.x);
  const int32_t slot = step->slot[r];
  const bool stored = slot >= kBlockSize;
  T* row = static_cast<T*>(args.qkv) + r * (heads + pool.kv_heads) * dim;
  if (unit < rotations) {
    const int head = unit / (half / kPack), offset = unit % (half / kPack) * kPack;
    const int64_t angle = int64_t{step->position[r]} * half + offset;
    const dev::Pack<float, kPack> cos = dev::LoadPack<kPack>(args.cos + angle);
    const dev::Pack<float, kPack> sin = dev::LoadPack<kPack>(args.sin + angle);
    const int column = head * dim + offset;
    dev::Pack<T, kPack> low = LoadWithBias(row, args.bias, column);
    dev::Pack<T, kPack> high = LoadWithBias(row, args.bias, column + half);
    for (int i = 0; i < kPack; ++i) {
      const float a = dev::ToFloat(low.value[i]), b = dev::ToFloat(high.value[i]);
      low.value[i] = Finite(dev::FromFloat<T>(a * cos.value[i] - b * sin.value[i]));
      high.value[i] = Finite(dev::FromFloat<T>(b * cos.value[i] + a * sin.value[i]));
    }
    dev::StorePack(row + column, low);
    dev::StorePack(row + column + half, high);
    if (stored && head >= args.q_heads) {
      P* k = PoolRow<P>(pool, args.layer, /*value=*/false, slot, head - args.q_heads) + offset;
      StoreAs(k, low);
      StoreAs(k + half, high);
    }
  } else if (stored && unit - rotations < pool.kv_heads * (dim / kPack)) {
    const int head = (unit - rotations) / (dim / kPack);
    const int offset = (unit - rotations) % (dim / kPack) * kPack;
    const dev::Pack<T, kPack> v = LoadWithBias(row, args.bias, (heads + head) * dim + offset);
    StoreAs(PoolRow<P>(pool, args.layer, /*value=*/true, slot, head) + offset, v);
  }
}

}  // namespace

void RopeAndStoreKv(const StepView& step, const RopeArgs& args, const DevicePool& pool,
                    cudaStream_t stream) {
  if (step.rows == 0) return;
  const int64_t units = (int64_t{args.q_heads + pool.kv_heads} * (pool.head_dim / 2) +
                         int64_t{pool.kv_heads} * pool.head_dim) /
                        kPack;
  const dim3 grid(static_cast<unsigned>(step.rows), CeilDiv(units, kThreads));
  WithTypes(args.dtype, pool.dtype, [&](auto activation, auto element) {
    using T = decltype(activation);
    using P = decltype(element);
    dev::Declare("rope and KV store", [step = step.step, args, pool] {
      const int64_t rows = step->rows;
      const int64_t rotated = int64_t{args.q_heads + pool.kv_heads} * pool.head_dim;
      const int64_t stored = int64_t{pool.kv_heads} * pool.head_dim;
      const int64_t row_bytes = rotated * int64_t{2 * sizeof(T) + sizeof(float)} +
                                stored * int64_t{sizeof(T) + 2 * sizeof(P)};
      const int64_t biased = args.bias == nullptr ? 0 : rotated + stored;
      return dev::Cost{rows * (row_bytes + biased * int64_t{sizeof(float)}),
                       rows * (3 * rotated + biased)};
    });
    dev::Launch(RotateAndStore<T, P>, grid, dim3(kThreads), 0, stream, step.step, args, pool);
  });
}

}  // namespace coppice::kernels::cuda
