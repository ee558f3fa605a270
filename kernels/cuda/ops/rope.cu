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

// The codes of a vector of dim values and its scale (KvPoolShape in backend.h), by one warp.
// values(d): its dims d .. d + kPack, of which a lane asks for its own.
template <class Values>
DEV_FUNCTION void StoreCodes(Values values, int dim, int8_t* codes, float* scale) {
  constexpr float kSmallest = 1.17549435e-38f;  // of the normal numbers
  const int lane = static_cast<int>(threadIdx.x) % dev::kWarpSize;
  float largest = 0.0f;
  bool finite = true;
  for (int d = lane * kPack; d < dim; d += dev::kWarpSize * kPack) {
    const auto in = values(d);
    for (int i = 0; i < kPack; ++i) {
      const float size = fabsf(dev::ToFloat(in.value[i]));
      finite = finite && size < INFINITY;
      largest = fmaxf(largest, size);
    }
  }
  const float step = dev::WarpMax(largest) / 127.0f;
  finite = __all_sync(dev::kFullWarp, finite);
  const bool zero = !finite || step < kSmallest;
  if (lane == 0) *scale = finite ? (zero ? 0.0f : step) : NAN;
  for (int d = lane * kPack; d < dim; d += dev::kWarpSize * kPack) {
    const auto in = values(d);
    dev::Pack<int8_t, kPack> out;
    for (int i = 0; i < kPack; ++i) {
      const float code = zero ? 0.0f : rintf(dev::ToFloat(in.value[i]) / step);
      out.value[i] = static_cast<int8_t>(code);
    }
    dev::StorePack(codes + d, out);
  }
}

// Heads that rotate whole and have no norm, into a pool of values. Block (row, piece of the work of the row). A unit of
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

// What a norm does to values before gain and bias: (value - mean) * scale.
struct Spread {
  float mean = 0.0f, scale = 1.0f;
};

DEV_FUNCTION Spread MakeSpread(const NormArgs& norm, float mean, float squares, int count) {
  return {mean, 1.0f / sqrtf(squares / static_cast<float>(count) + norm.epsilon)};
}

// Of one head, by one warp.
DEV_FUNCTION Spread SpreadOfHead(const NormArgs& norm, int dim, const float* head) {
  const int lane = static_cast<int>(threadIdx.x) % dev::kWarpSize;
  float sum = 0.0f, squares = 0.0f;
  if (norm.kind == NormKind::kLayer) {
    for (int d = lane; d < dim; d += dev::kWarpSize) sum += head[d];
  }
  const float mean = dev::WarpSum(sum) / static_cast<float>(dim);
  for (int d = lane; d < dim; d += dev::kWarpSize) squares += (head[d] - mean) * (head[d] - mean);
  return MakeSpread(norm, mean, dev::WarpSum(squares), dim);
}

// The sum of f(value) over the columns, with their bias, by all threads of the block.
template <class T, class F>
DEV_FUNCTION float RowSum(const T* row, const float* bias, int columns, float* sums, F f) {
  const int warp = static_cast<int>(threadIdx.x) / dev::kWarpSize;
  float sum = 0.0f;
  for (int c = static_cast<int>(threadIdx.x) * kPack; c < columns; c += kThreads * kPack) {
    const dev::Pack<T, kPack> values = LoadWithBias(row, bias, c);
    for (int i = 0; i < kPack; ++i) sum += f(dev::ToFloat(values.value[i]));
  }
  sum = dev::WarpSum(sum);
  __syncthreads();  // every thread has read the sums before
  if (threadIdx.x % dev::kWarpSize == 0) sums[warp] = sum;
  __syncthreads();
  float total = sums[0];
  for (int i = 1; i < kWarps; ++i) total += sums[i];
  return total;
}

// Of all heads of the columns together. When it returns, every thread has read them.
template <class T>
DEV_FUNCTION Spread SpreadOfAll(const NormArgs& norm, const T* row, const float* bias, int columns,
                                float* sums) {
  float mean = 0.0f;
  if (norm.kind == NormKind::kLayer) {
    mean = RowSum(row, bias, columns, sums, [](float value) { return value; }) /
           static_cast<float>(columns);
  }
  const float squares = RowSum(row, bias, columns, sums,
                               [mean](float value) { return (value - mean) * (value - mean); });
  return MakeSpread(norm, mean, squares, columns);
}

// Of dim values of one head in place, by one warp. A lane has dims of its own.
DEV_FUNCTION void ApplyNorm(const NormArgs& norm, const Spread& spread, int first_gain, int dim,
                            float* head) {
  for (int d = static_cast<int>(threadIdx.x) % dev::kWarpSize; d < dim; d += dev::kWarpSize) {
    const float normed = (head[d] - spread.mean) * spread.scale * norm.gain[first_gain + d];
    head[d] = norm.bias == nullptr ? normed : normed + norm.bias[first_gain + d];
  }
}

// The rotated value of dim `at` of a head; cos and sin of the row's position, [half].
DEV_FUNCTION float Rotated(const float* head, int at, int half, const float* cos,
                           const float* sin) {
  if (at >= 2 * half) return head[at];
  const bool low = at < half;
  const int angle = low ? at : at - half;
  return head[at] * cos[angle] + (low ? -head[at + half] : head[at - half]) * sin[angle];
}

// Heads with any steps: one warp a head, q, then k, then v; block (row, kWarps heads), or with
// norms of all heads together block (row). Between the steps nothing is rounded.
template <class T, class P>
DEV_KERNEL void StepAndStore(const DeviceStep* step, RopeArgs args, DevicePool pool) {
  dev::WaitForPrevious();
  DEV_SHARED(float, heads, kWarps* kMaxHeadDim);
  DEV_SHARED(float, sums, kWarps);
  const int64_t r = blockIdx.x;
  const int dim = pool.head_dim, half = args.rotary_dim / 2;
  const int stepped = args.q_heads + pool.kv_heads;
  const int warp = static_cast<int>(threadIdx.x) / dev::kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % dev::kWarpSize;
  const int32_t slot = step->slot[r];
  T* const row = static_cast<T*>(args.qkv) + r * (stepped + pool.kv_heads) * dim;
  Spread of_q, of_k;
  if (args.norms_together) {
    const int q = args.q_heads * dim, k = pool.kv_heads * dim;
    of_q = SpreadOfAll(args.q_norm, row, args.bias, q, sums);
    of_k =
        SpreadOfAll(args.k_norm, row + q, args.bias == nullptr ? nullptr : args.bias + q, k, sums);
  }
  float* const values = heads + warp * kMaxHeadDim;
  for (int head = static_cast<int>(blockIdx.y) * kWarps + warp; head < stepped + pool.kv_heads;
       head += static_cast<int>(gridDim.y) * kWarps) {
    const bool is_q = head < args.q_heads, value = head >= stepped;
    const int kv_head = head - (value ? stepped : args.q_heads);
    P* stored = nullptr;
    if (slot >= kBlockSize && !is_q) stored = PoolRow<P>(pool, args.layer, value, slot, kv_head);
    if (value) {
      if constexpr (kCodes<P>) {
        const auto v = [&](int d) { return LoadWithBias(row, args.bias, head * dim + d); };
        if (stored != nullptr)
          StoreCodes(v, dim, stored, PoolScale(pool, args.layer, value, slot, kv_head));
      } else {
        for (int d = lane * kPack; stored != nullptr && d < dim; d += dev::kWarpSize * kPack) {
          StoreAs(stored + d, LoadWithBias(row, args.bias, head * dim + d));
        }
      }
      continue;
    }
    __syncwarp();  // the head before has been read
    for (int d = lane * kPack; d < dim; d += dev::kWarpSize * kPack) {
      const dev::Pack<T, kPack> in = LoadWithBias(row, args.bias, head * dim + d);
      for (int i = 0; i < kPack; ++i) values[d + i] = dev::ToFloat(in.value[i]);
    }
    __syncwarp();
    NormArgs norm = args.q_norm;
    if (!is_q) norm = args.k_norm;
    if (norm.gain != nullptr) {
      const int first = args.norms_together ? (is_q ? head : kv_head) * dim : 0;
      Spread spread = is_q ? of_q : of_k;
      if (!args.norms_together) spread = SpreadOfHead(norm, dim, values);
      ApplyNorm(norm, spread, first, dim, values);
    }
    __syncwarp();
    const int64_t angles = int64_t{step->position[r]} * half;
    for (int d = lane * kPack; d < dim; d += dev::kWarpSize * kPack) {
      dev::Pack<T, kPack> out;
      for (int i = 0; i < kPack; ++i) {
        const float x = Rotated(values, d + i, half, args.cos + angles, args.sin + angles);
        out.value[i] = Finite(dev::FromFloat<T>(x));
      }
      dev::StorePack(row + head * dim + d, out);
      if constexpr (!kCodes<P>) {
        if (stored != nullptr) StoreAs(stored + d, out);
      }
    }
    if constexpr (kCodes<P>) {
      // The lane that wrote these dims reads them.
      const auto k = [&](int d) { return dev::LoadPack<kPack>(row + head * dim + d); };
      if (stored != nullptr)
        StoreCodes(k, dim, stored, PoolScale(pool, args.layer, value, slot, kv_head));
    }
  }
}

// Bytes and operations of the bias of one row, of its norms, and of its rotation.
dev::Cost CostOfRow(const RopeArgs& args, const DevicePool& pool, int64_t activation, bool whole) {
  constexpr int64_t kFloat = sizeof(float);
  const int64_t heads = args.q_heads + pool.kv_heads;
  const int64_t stepped = heads * pool.head_dim;
  const int64_t stored = int64_t{pool.kv_heads} * pool.head_dim;
  const int64_t into_pool = int64_t{2} * pool.kv_heads * VectorBytes(pool);
  const int64_t biased = args.bias == nullptr ? 0 : stepped + stored;
  dev::Cost cost;
  cost.bytes = stepped * 2 * activation + stored * activation + into_pool + biased * kFloat;
  if (pool.dtype == DType::kI8)  // K is read twice again, V once, to find the scale first
    cost.bytes += stored * (3 * activation + (biased > 0 ? kFloat : 0));
  cost.flops = biased;
  const int64_t rotated = heads * args.rotary_dim;
  cost.bytes += rotated * (whole ? 1 : 2) * kFloat;  // cos and sin serve two values, or one
  cost.flops += 3 * rotated;
  if (!args.q_norm.empty()) {
    const bool layer = args.q_norm.kind == NormKind::kLayer;
    cost.bytes += stepped * (args.q_norm.bias == nullptr ? 1 : 2) * kFloat;
    if (args.norms_together)
      cost.bytes += stepped * (activation + (biased > 0 ? kFloat : 0)) * (layer ? 2 : 1);
    cost.flops += stepped * (layer ? 7 : 4);
  }
  return cost;
}

}  // namespace

void RopeAndStoreKv(const StepView& step, const RopeArgs& args, const DevicePool& pool,
                    cudaStream_t stream) {
  if (step.rows == 0) return;
  const bool whole = args.rotary_dim == pool.head_dim && args.q_norm.empty() &&
                     pool.dtype != DType::kI8;  // a warp finds the largest value of a head
  const int64_t units = (int64_t{args.q_heads + pool.kv_heads} * (pool.head_dim / 2) +
                         int64_t{pool.kv_heads} * pool.head_dim) /
                        kPack;
  const dim3 grid(static_cast<unsigned>(step.rows),
                  whole                 ? CeilDiv(units, kThreads)
                  : args.norms_together ? 1
                                        : CeilDiv(args.q_heads + 2 * pool.kv_heads, kWarps));
  WithTypes(args.dtype, pool.dtype, [&](auto activation, auto element) {
    using T = decltype(activation);
    using P = decltype(element);
    dev::Declare("rope and KV store", [step = step.step, args, pool, whole] {
      const dev::Cost row = CostOfRow(args, pool, sizeof(T), whole);
      dev::Cost cost = {step->rows * row.bytes, step->rows * row.flops};
      cost.dependent_loads = 3;  // the step, position and slot, values
      cost.resident = 8;
      return cost;
    });
    auto kernel = StepAndStore<T, P>;
    if constexpr (!kCodes<P>) {
      if (whole) kernel = RotateAndStore<T, P>;
    }
    dev::Launch(kernel, grid, dim3(kThreads), 0, stream, step.step, args, pool);
  });
}

}  // namespace coppice::kernels::cuda
