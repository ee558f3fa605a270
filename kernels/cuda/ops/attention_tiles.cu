// Forest attention by tiles: the rows of a request pass together over its tokens, so that K and V
// are read once for all of them (work_list.h). bf16 or f16 tensor cores, sums in f32. Softmax runs
// online over KV tiles of 64 tokens (Milakov and Gimelshein, "Online normalizer calculation for
// softmax", 2018, algorithm 3, in base 2), the weights rounded to the type of V before they meet
// it. Codes of 8 bits times their scales are rounded to the type of the activations on their way
// into shared memory.
#include <algorithm>

#include "kernels/cuda/ops/attention_cost.h"
#include "kernels/cuda/ops/attention_rows.h"
#include "kernels/cuda/ops/kernel_types.h"

namespace coppice::kernels::cuda {
namespace {

constexpr int kStages = 2;  // KV tiles in shared memory
// Blocks of a class that a multiprocessor holds by its registers.
constexpr int64_t kBlocksByRegisters[kTileClasses] = {3, 2, 1};

// One warp holds 16 packed rows and 64 / kTokenWarps tokens of a KV tile, and sums kDim / kDimWarps
// dims of V: warps that share rows and tokens score them each for itself. kDim: head_dim, padded
// with zeros in shared memory.
template <class T, class P, int kDim_, int kRowWarps_, int kTokenWarps_, int kDimWarps_ = 1>
struct Shape {
  using Type = T;     // type of activations
  using Element = P;  // type of the pool: T or codes
  static constexpr int kDim = kDim_, kRowWarps = kRowWarps_, kTokenWarps = kTokenWarps_;
  static constexpr int kDimWarps = kDimWarps_;
  static constexpr int kRows = 16 * kRowWarps;
  static constexpr int kThreads = dev::kWarpSize * kRowWarps * kTokenWarps * kDimWarps;
  static constexpr int kTokens = kKvTile / kTokenWarps;  // tokens per warp
  static constexpr int kDims = kDim / kDimWarps;  // dims per warp
  static constexpr int kStride = kDim + 8;               // elements; rows of a matrix miss no bank
  static constexpr int kTile = kKvTile * kStride;        // elements of K or V of a stage
  static constexpr int kQueryElements = kRows * kStride;
  static constexpr int kSharedBytes = (kQueryElements + kStages * 2 * kTile) * 2;
};

template <class S>
struct Block : RowTile<typename S::Type, S::kRows> {
  using T = typename S::Type;
  using Rows = RowTile<T, S::kRows>;
  using Rows::args, Rows::item, Rows::pool;
  using Rows::Cap, Rows::EmitState, Rows::Fill, Rows::Finite, Rows::Group, Rows::HoldsForToken;
  using Rows::Mask, Rows::MaskWindow, Rows::MixesRequests, Rows::PackedRows, Rows::QueryOf;
  using Rows::ScoreScale, Rows::SlotOf, Rows::SumTotals, Rows::Weigh;

  T* query;  // [kRows, kStride]
  T* tiles;  // [kStages][K then V][kKvTile, kStride]

  DEV_FUNCTION int Thread() const { return static_cast<int>(threadIdx.x); }
  DEV_FUNCTION int Lane() const { return Thread() % dev::kWarpSize; }
  DEV_FUNCTION int Warp() const { return Thread() / dev::kWarpSize; }
  DEV_FUNCTION int DimWarp() const { return Warp() % S::kDimWarps; }
  DEV_FUNCTION int TokenWarp() const { return Warp() / S::kDimWarps % S::kTokenWarps; }
  DEV_FUNCTION int RowWarp() const { return Warp() / S::kDimWarps / S::kTokenWarps; }
  DEV_FUNCTION T* Tile(int stage, bool value) const {
    return tiles + (stage * 2 + value) * S::kTile;
  }

  DEV_FUNCTION void LoadQuery() const {
    constexpr int kPieces = S::kDim / 8;
    for (int i = Thread(); i < S::kRows * kPieces; i += S::kThreads) {
      const int packed = i / kPieces, dim = i % kPieces * 8;
      const bool valid = packed < PackedRows() && dim < pool.head_dim;
      dev::CopyAsync16(query + packed * S::kStride + dim,
                       valid ? QueryOf(packed) + dim : static_cast<const T*>(args.qkv), valid);
    }
  }

  // Eight codes, times their scale, as values of T; zeros when not `valid`.
  DEV_FUNCTION static void Widen(const int8_t* codes, float scale, bool valid, T* values) {
    dev::Pack<int8_t, 8> in = {};
    if (valid) in = dev::LoadPack<8>(codes);
    dev::Pack<T, 8> out;
    DEV_UNROLL
    for (int i = 0; i < 8; ++i) out.value[i] = dev::FromFloat<T>(dev::ToFloat(in.value[i]) * scale);
    dev::StorePack(values, out);
  }

  // LoadTile of codes, which has done all when it returns.
  DEV_FUNCTION void WidenTile(int32_t first, int stage) const {
    for (int t = Thread() / 8; t < kKvTile; t += S::kThreads / 8) {
      const bool seen = first + t < item.kv_end;
      const int32_t slot = seen ? SlotOf(first + t) : 0;
      for (int value = 0; value < 2; ++value) {
        const int8_t* const codes =
            PoolRow<const int8_t>(pool, args.layer, value != 0, slot, item.kv_head);
        const float scale =
            seen ? *PoolScale(pool, args.layer, value != 0, slot, item.kv_head) : 0.0f;
        T* const place = Tile(stage, value != 0) + t * S::kStride;
        for (int dim = Thread() % 8 * 8; dim < S::kDim; dim += 64) {
          Widen(codes + dim, scale, seen && dim < pool.head_dim, place + dim);
        }
      }
    }
  }

  // Eight threads copy a token, 128 bytes at a time. Tokens after the item's are zeros.
  DEV_FUNCTION void LoadTile(int32_t first, int stage) const {
    if constexpr (kCodes<typename S::Element>) return WidenTile(first, stage);
    for (int t = Thread() / 8; t < kKvTile; t += S::kThreads / 8) {
      const bool seen = first + t < item.kv_end;
      const int32_t slot = seen ? SlotOf(first + t) : 0;
      const T* k = PoolRow<const T>(pool, args.layer, /*value=*/false, slot, item.kv_head);
      const T* v = PoolRow<const T>(pool, args.layer, /*value=*/true, slot, item.kv_head);
      for (int dim = Thread() % 8 * 8; dim < S::kDim; dim += 64) {
        const bool valid = seen && dim < pool.head_dim;
        const int place = t * S::kStride + dim, offset = valid ? dim : 0;
        dev::CopyAsync16(Tile(stage, false) + place, k + offset, valid);
        dev::CopyAsync16(Tile(stage, true) + place, v + offset, valid);
      }
    }
  }

  // Of a KV tile that mixes requests. Each thread looks at what it has loaded.
  DEV_FUNCTION void KeepRequestsApart(int stage) const {
    for (int t = Thread() / 8; t < kKvTile; t += S::kThreads / 8) {
      T* const k = Tile(stage, false) + t * S::kStride;
      T* const v = Tile(stage, true) + t * S::kStride;
      bool finite = true;
      for (int dim = Thread() % 8 * 8; dim < S::kDim; dim += 64) finite = finite && Finite(v + dim);
      if (HoldsForToken(finite)) continue;
      for (int dim = Thread() % 8 * 8; dim < S::kDim; dim += 64) {
        Fill(k + dim, NAN);
        Fill(v + dim, 0.0f);
      }
    }
  }

  // The warp's scores of its 16 rows and kTokens tokens, not scaled.
  DEV_FUNCTION void Score(const T* k, float (&score)[S::kTokens / 8][4]) const {
    const int lane = Lane();
    const T* q_row = query + (RowWarp() * 16 + lane % 16) * S::kStride + lane / 16 * 8;
    const T* k_row =
        k + (TokenWarp() * S::kTokens + lane / 16 * 8 + lane % 8) * S::kStride + lane / 8 % 2 * 8;
    DEV_UNROLL
    for (int n = 0; n < S::kTokens / 8; ++n) {
      for (int e = 0; e < 4; ++e) score[n][e] = 0.0f;
    }
    DEV_UNROLL
    for (int d = 0; d < S::kDim; d += 16) {
      uint32_t a[4];
      dev::LoadMatrix4(a, q_row + d);
      DEV_UNROLL
      for (int n = 0; n < S::kTokens / 8; n += 2) {
        uint32_t b[4];
        dev::LoadMatrix4(b, k_row + n * 8 * S::kStride + d);
        dev::Mma<T>(score[n], a, {b[0], b[1]});
        dev::Mma<T>(score[n + 1], a, {b[2], b[3]});
      }
    }
  }

  // Adds the weighted V of the warp's tokens.
  DEV_FUNCTION void AddValues(const T* v, const float (&weight)[S::kTokens / 8][4],
                              RowState<S::kDims / 8>* state) const {
    const int lane = Lane();
    const T* v_row = v + (TokenWarp() * S::kTokens + lane % 16) * S::kStride +
                     DimWarp() * S::kDims + lane / 16 * 8;
    DEV_UNROLL
    for (int t = 0; t < S::kTokens / 16; ++t) {
      const uint32_t a[4] = {dev::PackPair<T>(weight[2 * t][0], weight[2 * t][1]),
                             dev::PackPair<T>(weight[2 * t][2], weight[2 * t][3]),
                             dev::PackPair<T>(weight[2 * t + 1][0], weight[2 * t + 1][1]),
                             dev::PackPair<T>(weight[2 * t + 1][2], weight[2 * t + 1][3])};
      DEV_UNROLL
      for (int j = 0; j < S::kDims / 8; j += 2) {
        uint32_t b[4];
        dev::LoadMatrix4Transposed(b, v_row + t * 16 * S::kStride + j * 8);
        dev::Mma<T>(state->sum[j], a, {b[0], b[1]});
        dev::Mma<T>(state->sum[j + 1], a, {b[2], b[3]});
      }
    }
  }

  // Passes over all tokens of the item. Copies of the next KV tile run behind the arithmetic.
  DEV_FUNCTION void Accumulate(RowState<S::kDims / 8>* state) const {
    const float scale = ScoreScale();
    const int32_t begin = BeginOf(item, args.rule);
    if (begin < item.kv_end) {
      LoadQuery();
      LoadTile(begin, 0);
    }
    dev::CopyCommit();
    for (int32_t first = begin, stage = 0; first < item.kv_end;
         first += kKvTile, stage = 1 - stage) {
      if (first + kKvTile < item.kv_end) LoadTile(first + kKvTile, 1 - stage);
      dev::CopyCommit();
      dev::CopyWait<1>();
      if (MixesRequests(first / kKvTile)) KeepRequestsApart(stage);
      __syncthreads();
      float score[S::kTokens / 8][4];
      Score(Tile(stage, false), score);
      Cap(score);
      if (first / kKvTile >= item.mask_tile)
        Mask(RowWarp() * 16, first / kKvTile, TokenWarp() * S::kTokens, score);
      MaskWindow(RowWarp() * 16, first, TokenWarp() * S::kTokens, score);
      Weigh(scale, score, state);
      AddValues(Tile(stage, true), score, state);
      __syncthreads();  // the next copies overwrite this stage
    }
    dev::CopyWait<0>();
    SumTotals(state);
  }

  DEV_FUNCTION void Finish(const RowState<S::kDims / 8>& state) const {
    if constexpr (S::kTokenWarps == 1) {
      EmitState(RowWarp() * 16, DimWarp() * S::kDims, state);
    } else {
      MergeWarps(state);
    }
  }

  // The warps that share the rows meet in shared memory, where the KV tiles were.
  DEV_FUNCTION void MergeWarps(const RowState<S::kDims / 8>& state) const {
    static_assert(S::kRowWarps == 1 && S::kDimWarps == 1 &&
                  S::kTokenWarps * 16 * (S::kDim + 2) * 4 <= kStages * 2 * S::kTile * 2);
    const int lane = Lane();
    float* sums = reinterpret_cast<float*>(tiles);        // [kTokenWarps][16][kDim]
    float* stats = sums + S::kTokenWarps * 16 * S::kDim;  // [kTokenWarps][16][max, total]
    for (int half = 0; half < 2; ++half) {
      const int row = TokenWarp() * 16 + lane / 4 + half * 8;
      DEV_UNROLL
      for (int j = 0; j < S::kDim / 8; ++j) {
        dev::StorePack(sums + row * S::kDim + j * 8 + lane % 4 * 2,
                       dev::Pack<float, 2>{{state.sum[j][half * 2], state.sum[j][half * 2 + 1]}});
      }
      if (lane % 4 == 0) {
        dev::StorePack(stats + 2 * row, dev::Pack<float, 2>{{state.max[half], state.total[half]}});
      }
    }
    __syncthreads();
    for (int i = Thread(); i < 16 * (S::kDim / 2); i += S::kThreads) {
      const int row = i / (S::kDim / 2), dim = i % (S::kDim / 2) * 2;
      Rows::template MergeAndEmit<1>(row, dim, 0, S::kTokenWarps, sums + row * S::kDim + dim,
                                     16 * S::kDim, stats + 2 * row, 32);
    }
  }
};

template <class S>
DEV_KERNEL void DEV_BOUNDS(S::kThreads, 1)
    AttendTiles(const DeviceStep* step, AttentionArgs args, const DeviceWork* work, DevicePool pool,
                int tile_class) {
  dev::WaitForPrevious();
  DEV_DYNAMIC_SHARED(typename S::Type, memory);
  DEV_SHARED(uint32_t, arrived, 1);
  const DeviceWork::OfClass list = work->classes[tile_class];
  const int worker = static_cast<int>(blockIdx.x);
  if (worker >= list.workers) return;
  const Tokens tokens(*step, *work);
  const Merging merging = {work->partials, work->counters};
  const int end = list.worker_begin[worker + 1];
  for (int i = list.worker_begin[worker]; i < end; ++i) {
    const AttentionItem item = list.items[i];
    const Block<S> block = {
        {tokens, args, merging, pool, item}, memory, memory + S::kQueryElements};
    RowState<S::kDims / 8> state;
    block.Accumulate(&state);
    block.Finish(state);
    if (item.splits > 1) {
      block.MergeSplits(
          block.Thread(), S::kThreads, [] { __syncthreads(); }, arrived);
    }
    __syncthreads();  // the next item overwrites shared memory
  }
}

template <class S>
void LaunchClass(int tile_class, const StepView& step, const AttentionArgs& args,
                 const WorkView& work, const DevicePool& pool, cudaStream_t stream) {
  if (work.blocks[tile_class] == 0) return;
  constexpr const char* kNames[] = {"attention T16", "attention T64", "attention T128"};
  dev::Declare(kNames[tile_class], [work = work.work, tile_class, args, pool] {
    dev::Cost cost = CostOf<S>(work->classes[tile_class], args, pool);
    cost.resident = kBlocksByRegisters[tile_class];
    return cost;
  });
  dev::Launch(AttendTiles<S>, dim3(static_cast<unsigned>(work.blocks[tile_class])),
              dim3(S::kThreads), S::kSharedBytes, stream, step.step, args, work.work, pool,
              tile_class);
}

constexpr int kMostDim = 256, kMostDimOfAllClasses = 128;

// With heads of more than kMostDimOfAllClasses a warp cannot hold the sums of 16 rows, and a third
// class would not fit the shared memory of any device.
template <class T, class P, int kDim>
void LaunchAll(const StepView& step, const AttentionArgs& args, const WorkView& work,
               const DevicePool& pool, cudaStream_t stream, int classes) {
  constexpr bool kAll = kDim <= kMostDimOfAllClasses;
  LaunchClass<Shape<T, P, kDim, 1, 4>>(0, step, args, work, pool, stream);
  if (classes > 1)
    LaunchClass<Shape<T, P, kDim, 4, 1, kAll ? 1 : 2>>(1, step, args, work, pool, stream);
  if constexpr (kAll) {
    if (classes > 2) LaunchClass<Shape<T, P, kDim, 8, 1>>(2, step, args, work, pool, stream);
  }
}

template <class T, class P>
void LaunchDim(const StepView& step, const AttentionArgs& args, const WorkView& work,
               const DevicePool& pool, cudaStream_t stream, int classes) {
  if (pool.head_dim <= 64) {
    LaunchAll<T, P, 64>(step, args, work, pool, stream, classes);
  } else if (pool.head_dim <= 96) {
    LaunchAll<T, P, 96>(step, args, work, pool, stream, classes);
  } else if (pool.head_dim <= 128) {
    LaunchAll<T, P, 128>(step, args, work, pool, stream, classes);
  } else {
    LaunchAll<T, P, 256>(step, args, work, pool, stream, classes);
  }
}

int PaddedDim(int head_dim) {
  return head_dim <= 64 ? 64 : head_dim <= 96 ? 96 : head_dim <= 128 ? 128 : 256;
}

int64_t SharedBytes(int tile_class, int head_dim) {
  return int64_t{kTileRows[tile_class] + kStages * 2 * kKvTile} * (PaddedDim(head_dim) + 8) * 2;
}

}  // namespace

int TileClasses(DType activations, const DevicePool& pool, int64_t block_shared_bytes) {
  constexpr int64_t kStatic = 1024;  // what a block uses besides, and what the driver reserves
  if (activations == DType::kF32 || pool.head_dim > kMostDim) return 0;
  if (pool.dtype != activations && pool.dtype != DType::kI8) return 0;
  const int most = pool.head_dim <= kMostDimOfAllClasses ? kTileClasses : kTileClasses - 1;
  int classes = 0;
  while (classes < most && SharedBytes(classes, pool.head_dim) + kStatic <= block_shared_bytes)
    ++classes;
  return classes;
}

int TileBlocksPerMultiprocessor(int tile_class, int head_dim, int64_t shared_bytes) {
  const int64_t block_bytes = SharedBytes(tile_class, head_dim) + 2048;
  return static_cast<int>(
      std::clamp<int64_t>(shared_bytes / block_bytes, 1, kBlocksByRegisters[tile_class]));
}

void TiledAttention(const StepView& step, const AttentionArgs& args, const WorkView& work,
                    const DevicePool& pool, cudaStream_t stream, int classes) {
  const auto launch = [&](auto activation) {
    using T = decltype(activation);
    if (pool.dtype == DType::kI8) {
      LaunchDim<T, int8_t>(step, args, work, pool, stream, classes);
    } else {
      LaunchDim<T, T>(step, args, work, pool, stream, classes);
    }
  };
  args.dtype == DType::kF16 ? launch(dev::f16()) : launch(dev::bf16());
}

}  // namespace coppice::kernels::cuda
