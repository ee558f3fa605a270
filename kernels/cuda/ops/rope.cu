// The bias of q, k and v, norms and rotary embedding of q and k heads in place, and K and V of the
// rows into the pool.
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

// Heads that rotate whole and have no norm. Block (row, piece of the work of the row). A unit of
// work is kPack pairs of a q or k head, or
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

constexpr int kWarps = kThreads / dev::kWarpSize;

// The norm of one head in place, by one warp. A lane reads and writes dims that are its own.
DEV_FUNCTION void NormHead(const NormArgs& norm, int dim, float* head) {
  const int lane = static_cast<int>(threadIdx.x) % dev::kWarpSize;
  float sum = 0.0f;
  if (norm.kind == NormKind::kLayer) {
    for (int d = lane; d < dim; d += dev::kWarpSize) sum += head[d];
  }
  const float mean = dev::WarpSum(sum) / static_cast<float>(dim);
  float squares = 0.0f;
  for (int d = lane; d < dim; d += dev::kWarpSize) squares += (head[d] - mean) * (head[d] - mean);
  const float variance = dev::WarpSum(squares) / static_cast<float>(dim);
  const float scale = 1.0f / sqrtf(variance + norm.epsilon);
  for (int d = lane; d < dim; d += dev::kWarpSize) {
    const float normed = (head[d] - mean) * scale * norm.gain[d];
    head[d] = norm.bias == nullptr ? normed : normed + norm.bias[d];
  }
}

// Heads with any steps: one warp a head, q, then k, then v; block (row, kWarps heads). Between the
// steps nothing is rounded.
template <class T, class P>
DEV_KERNEL void StepAndStore(const DeviceStep* step, RopeArgs args, DevicePool pool) {
  dev::WaitForPrevious();
  DEV_SHARED(float, heads, kWarps* kMaxHeadDim);
  const int64_t r = blockIdx.x;
  const int dim = pool.head_dim, half = args.rotary_dim / 2;
  const int stepped = args.q_heads + pool.kv_heads;
  const int warp = static_cast<int>(threadIdx.x) / dev::kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % dev::kWarpSize;
  const int head = static_cast<int>(blockIdx.y) * kWarps + warp;
  if (head >= stepped + pool.kv_heads) return;
  const int32_t slot = step->slot[r];
  T* row = static_cast<T*>(args.qkv) + (r * (stepped + pool.kv_heads) + head) * dim;
  const float* bias = args.bias == nullptr ? nullptr : args.bias + head * dim;
  const bool value = head >= stepped;
  P* stored = nullptr;
  if (slot >= kBlockSize && head >= args.q_heads) {
    stored =
        PoolRow<P>(pool, args.layer, value, slot, head - (value ? stepped : args.q_heads));
  }
  if (value) {
    for (int d = lane * kPack; stored != nullptr && d < dim; d += dev::kWarpSize * kPack) {
      StoreAs(stored + d, LoadWithBias(row, bias, d));
    }
    return;
  }
  float* const values = heads + warp * kMaxHeadDim;
  for (int d = lane * kPack; d < dim; d += dev::kWarpSize * kPack) {
    const dev::Pack<T, kPack> in = LoadWithBias(row, bias, d);
    for (int i = 0; i < kPack; ++i) values[d + i] = dev::ToFloat(in.value[i]);
  }
  __syncwarp();
  const NormArgs& norm = head < args.q_heads ? args.q_norm : args.k_norm;
  if (norm.gain != nullptr) NormHead(norm, dim, values);
  __syncwarp();
  const int64_t angles = int64_t{step->position[r]} * half;
  for (int d = lane * kPack; d < dim; d += dev::kWarpSize * kPack) {
    dev::Pack<T, kPack> out;
    for (int i = 0; i < kPack; ++i) {
      const int at = d + i;
      float x = values[at];
      if (at < 2 * half) {
        const bool low = at < half;
        const int64_t angle = angles + (low ? at : at - half);
        const float other = low ? -values[at + half] : values[at - half];
        x = x * args.cos[angle] + other * args.sin[angle];
      }
      out.value[i] = Finite(dev::FromFloat<T>(x));
    }
    dev::StorePack(row + d, out);
    if (stored != nullptr) StoreAs(stored + d, out);
  }
}

// Bytes and operations of the bias of one row, of its norms, and of its rotation.
dev::Cost CostOfRow(const RopeArgs& args, const DevicePool& pool, int64_t activation,
                    int64_t element) {
  constexpr int64_t kFloat = sizeof(float);
  const int64_t heads = args.q_heads + pool.kv_heads;
  const int64_t stepped = heads * pool.head_dim;
  const int64_t stored = int64_t{pool.kv_heads} * pool.head_dim;
  const int64_t biased = args.bias == nullptr ? 0 : stepped + stored;
  dev::Cost cost;
  cost.bytes = stepped * 2 * activation + stored * (activation + 2 * element) + biased * kFloat;
  cost.flops = biased;
  const int64_t rotated = heads * args.rotary_dim;
  const bool whole = args.rotary_dim == pool.head_dim && args.q_norm.empty();
  cost.bytes += rotated * (whole ? 1 : 2) * kFloat;  // cos and sin serve two values, or one
  cost.flops += 3 * rotated;
  if (!args.q_norm.empty()) {
    const bool layer = args.q_norm.kind == NormKind::kLayer;
    cost.bytes += stepped * (args.q_norm.bias == nullptr ? 1 : 2) * kFloat;
    cost.flops += stepped * (layer ? 7 : 4);
  }
  return cost;
}

}  // namespace

void RopeAndStoreKv(const StepView& step, const RopeArgs& args, const DevicePool& pool,
                    cudaStream_t stream) {
  if (step.rows == 0) return;
  const bool whole = args.rotary_dim == pool.head_dim && args.q_norm.empty();
  const int64_t units = (int64_t{args.q_heads + pool.kv_heads} * (pool.head_dim / 2) +
                         int64_t{pool.kv_heads} * pool.head_dim) /
                        kPack;
  const dim3 grid(static_cast<unsigned>(step.rows),
                  whole ? CeilDiv(units, kThreads)
                        : CeilDiv(args.q_heads + 2 * pool.kv_heads, kWarps));
  WithTypes(args.dtype, pool.dtype, [&](auto activation, auto element) {
    using T = decltype(activation);
    using P = decltype(element);
    dev::Declare("rope and KV store", [step = step.step, args, pool] {
      const dev::Cost row = CostOfRow(args, pool, sizeof(T), sizeof(P));
      return dev::Cost{step->rows * row.bytes, step->rows * row.flops};
    });
    const auto kernel = whole ? RotateAndStore<T, P> : StepAndStore<T, P>;
    dev::Launch(kernel, grid, dim3(kThreads), 0, stream, step.step, args, pool);
  });
}

}  // namespace coppice::kernels::cuda
