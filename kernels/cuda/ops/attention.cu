// Attention of one row and q head at a time: any types, any head_dim that is a multiple of 8 and at
// most 256. A row's context is cut into chunks of 32 positions counted from 0, wherever the tokens
// lie, warp w takes chunks w, w + 4, ..., and the warps' states are joined in order. Chunks before
// the row's window are left out. So the bits of a row depend on its query and its context alone. Online softmax: Milakov and Gimelshein, "Online
// normalizer calculation for softmax", 2018, algorithm 3; here in base 2.
#include <algorithm>

#include "kernels/cuda/ops/kernel_types.h"

namespace coppice::kernels::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * dev::kWarpSize;
constexpr int kMaxDim = 256;
constexpr int kPairs = 2;            // neighbouring dims per lane
constexpr float kLowest = -3.0e38f;  // finite: differences of maxima are never NaN
constexpr float kLog2E = 1.44269504f;

// What one row sees.
struct RowView {
  const int32_t* table;  // block ids
  const int32_t* chain;  // slots
  int32_t prefix;
  int32_t begin, length;  // the positions that it sees

  DEV_FUNCTION int32_t SlotOf(int32_t position) const {
    if (position >= prefix) return chain[position - prefix];
    return table[position / kBlockSize] * kBlockSize + position % kBlockSize;
  }
};

DEV_FUNCTION RowView ViewOf(const DeviceStep& step, int row, int window) {
  const int32_t chain = step.chain_begin[row], prefix = step.prefix_len[row];
  const int32_t length = prefix + step.chain_begin[row + 1] - chain;
  return {step.table + step.table_begin[step.segment[row]], step.chain + chain, prefix,
          window == 0 ? 0 : max(0, length - window), length};
}

// query in shared memory, times ScaleOf; k [dim].
template <class P>
DEV_FUNCTION float Dot(const float* query, const P* k, int dim) {
  constexpr int kPack = kCodes<P> ? 8 : 16 / sizeof(P);
  float sum = 0.0f;
  for (int d = 0; d < dim; d += kPack) {
    const dev::Pack<P, kPack> pack = dev::LoadPack<kPack>(k + d);
    for (int i = 0; i < kPack; ++i) sum += query[d + i] * dev::ToFloat(pack.value[i]);
  }
  return sum;
}

// Of scores before their cap, or of exponents of 2 where there is none.
DEV_FUNCTION float ScaleOf(const AttentionRule& rule) {
  return rule.softcap == 0.0f ? rule.scale * kLog2E : rule.scale / rule.softcap;
}

// What a warp knows: per lane the share of the total of its positions, and the weighted sum of V in
// dims kPairs * lane + 64 j of the head.
template <int kPieces>
struct WarpState {
  float max = kLowest;
  float total = 0.0f;
  float sum[kPieces][kPairs] = {};
};

// Adds the chunk of 32 positions from `first` on. Lane t scores position first + t, then all lanes
// add V position by position.
template <class P, int kPieces>
DEV_FUNCTION void AddChunk(const float* query, const DevicePool& pool, const AttentionArgs& args,
                           int kv_head, const RowView& view, int32_t first,
                           WarpState<kPieces>* state) {
  const int lane = static_cast<int>(threadIdx.x) % dev::kWarpSize;
  const int32_t position = first + lane;
  const bool seen = position >= view.begin && position < view.length;
  const int32_t slot = seen ? view.SlotOf(position) : 0;
  float score = -INFINITY;
  if (seen) {
    const P* k = PoolRow<const P>(pool, args.layer, /*value=*/false, slot, kv_head);
    score = Dot(query, k, pool.head_dim);
    if constexpr (kCodes<P>) score *= *PoolScale(pool, args.layer, /*value=*/false, slot, kv_head);
    if (args.rule.softcap != 0.0f) score = tanhf(score) * (args.rule.softcap * kLog2E);
  }
  const float max = fmaxf(state->max, dev::WarpMax(score));
  const float correction = dev::Exp2(state->max - max);
  const float weight = dev::Exp2(score - max);
  state->max = max;
  state->total = state->total * correction + weight;
  for (int j = 0; j < kPieces; ++j) {
    for (int i = 0; i < kPairs; ++i) state->sum[j][i] *= correction;
  }
  float share_of_lane = weight;
  if constexpr (kCodes<P>) {
    if (seen) share_of_lane *= *PoolScale(pool, args.layer, /*value=*/true, slot, kv_head);
  }
  const int count = min(dev::kWarpSize, view.length - first);
  for (int t = view.begin > first ? view.begin - first : 0; t < count; ++t) {
    const float share = __shfl_sync(dev::kFullWarp, share_of_lane, t);
    const int32_t from = __shfl_sync(dev::kFullWarp, slot, t);
    const P* v = PoolRow<const P>(pool, args.layer, /*value=*/true, from, kv_head);
    for (int j = 0; j < kPieces; ++j) {
      const int dim = (j * dev::kWarpSize + lane) * kPairs;
      if (dim >= pool.head_dim) continue;
      const dev::Pack<P, kPairs> pair = dev::LoadPack<kPairs>(v + dim);
      for (int i = 0; i < kPairs; ++i) state->sum[j][i] += share * dev::ToFloat(pair.value[i]);
    }
  }
}

// A warp holds more of f32 at a time.
template <class P>
constexpr int kBlocks = sizeof(P) == 4 ? 3 : 4;

// Block row * q_heads + head. T: activations, P: the pool. kPieces: head_dim / 64, rounded up.
template <class T, class P, int kPieces>
DEV_KERNEL void DEV_BOUNDS(kThreads, kBlocks<P>)
    AttendRows(const DeviceStep* step, AttentionArgs args, DevicePool pool) {
  dev::WaitForPrevious();
  DEV_SHARED(float, query, kMaxDim);
  DEV_SHARED(float, sums, kWarps* kMaxDim);
  DEV_SHARED(float, maxima, kWarps);
  DEV_SHARED(float, totals, kWarps);
  const int row = static_cast<int>(blockIdx.x) / args.q_heads;
  const int head = static_cast<int>(blockIdx.x) % args.q_heads;
  const int kv_head = head / (args.q_heads / pool.kv_heads);
  const int dim = pool.head_dim;
  const int warp = static_cast<int>(threadIdx.x) / dev::kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % dev::kWarpSize;
  const RowView view = ViewOf(*step, row, args.rule.window);

  const T* q = static_cast<const T*>(args.qkv) +
               (int64_t{row} * (args.q_heads + 2 * pool.kv_heads) + head) * dim;
  const float scale = ScaleOf(args.rule);
  for (int d = static_cast<int>(threadIdx.x); d < dim; d += kThreads) {
    query[d] = dev::ToFloat(q[d]) * scale;
  }
  __syncthreads();

  WarpState<kPieces> state;
  for (int32_t first = warp * dev::kWarpSize; first < view.length; first += kThreads) {
    if (first + dev::kWarpSize <= view.begin) continue;
    AddChunk<P>(query, pool, args, kv_head, view, first, &state);
  }
  const float total = dev::WarpSum(state.total);
  if (lane == 0) {
    maxima[warp] = state.max;
    totals[warp] = total;
  }
  for (int j = 0; j < kPieces; ++j) {
    for (int i = 0; i < kPairs; ++i) {
      sums[warp * kMaxDim + (j * dev::kWarpSize + lane) * kPairs + i] = state.sum[j][i];
    }
  }
  __syncthreads();

  float max = maxima[0];
  for (int w = 1; w < kWarps; ++w) max = fmaxf(max, maxima[w]);
  float all = 0.0f;
  for (int w = 0; w < kWarps; ++w) all += totals[w] * dev::Exp2(maxima[w] - max);
  T* out = static_cast<T*>(args.out) + (int64_t{row} * args.q_heads + head) * dim;
  for (int d = static_cast<int>(threadIdx.x); d < dim; d += kThreads) {
    float sum = 0.0f;
    for (int w = 0; w < kWarps; ++w) {
      sum += sums[w * kMaxDim + d] * dev::Exp2(maxima[w] - max);
    }
    out[d] = dev::FromFloat<T>(all == 0.0f ? 0.0f : sum / all);  // a row that sees nothing: 0
  }
}

template <class T, class P>
auto KernelOf(int head_dim) {
  switch ((head_dim + 63) / 64) {
    case 1:
      return AttendRows<T, P, 1>;
    case 2:
      return AttendRows<T, P, 2>;
    case 3:
      return AttendRows<T, P, 3>;
    default:
      return AttendRows<T, P, 4>;
  }
}

}  // namespace

void Attention(const StepView& step, const AttentionArgs& args, const DevicePool& pool,
               cudaStream_t stream) {
  if (step.rows == 0) return;
  const dim3 grid(static_cast<unsigned>(step.rows) * static_cast<unsigned>(args.q_heads));
  WithTypes(args.dtype, pool.dtype, [&](auto activation, auto element) {
    using T = decltype(activation);
    using P = decltype(element);
    dev::Declare("attention by rows", [view = step.step, args, pool] {
      const DeviceStep& step = *view;
      int64_t tokens = 0;
      for (int r = 0; r < step.rows; ++r) {
        const int length = step.prefix_len[r] + step.chain_begin[r + 1] - step.chain_begin[r];
        tokens += args.rule.window == 0 ? length : std::min(length, args.rule.window);
      }
      // Each q head reads K and V itself.
      const int64_t width = int64_t{args.q_heads} * pool.head_dim;
      return dev::Cost{.bytes = 2 * args.q_heads * tokens * VectorBytes(pool) +
                                2 * width * step.rows * int64_t{sizeof(T)},
                       .flops = 4 * width * tokens,
                       .cold_bytes = 2 * pool.kv_heads * tokens * VectorBytes(pool),
                       .dependent_loads = 5};
    });
    dev::Launch(KernelOf<T, P>(pool.head_dim), grid, dim3(kThreads), 0, stream, step.step, args,
                pool);
  });
}

}  // namespace coppice::kernels::cuda
