// Forest attention by tiles: the rows of a request pass together over its tokens, so that K and V
// are read once for all of them (work_list.h). bf16 or f16 tensor cores, sums in f32. Softmax runs
// online over KV tiles of 64 tokens (Milakov and Gimelshein, "Online normalizer calculation for
// softmax", 2018, algorithm 3, in base 2), the weights rounded to the type of V before they meet
// it. Codes of 8 bits times their scales are rounded to the type of the activations on their way
// into shared memory.
#include <algorithm>

#include "kernels/cuda/ops/attention_cost.h"
#include "kernels/cuda/ops/attention_rows.h"
#include "kernels/cuda/ops/attention_tile_loads.h"
#include "kernels/cuda/ops/kernel_types.h"

namespace coppice::kernels::cuda {
namespace {

constexpr int kStages = 2;  // KV tiles in shared memory
// Blocks of a class that a multiprocessor holds by its registers.
constexpr int64_t kBlocksByRegisters[kTileClasses] = {3, 2, 2};

// One warp holds 16 kHeights packed rows and 64 / kTokenWarps tokens of a KV tile, and sums kDim /
// kDimWarps dims of V: warps that share rows and tokens score them each for itself. With more
// kHeights a matrix of K or V that a warp has loaded serves more rows. kDim: head_dim, padded with
// zeros in shared memory.
template <class T, class P, int kDim_, int kRowWarps_, int kTokenWarps_, int kDimWarps_ = 1,
          int kHeights_ = 1>
struct Shape {
  using Type = T;     // type of activations
  using Element = P;  // type of the pool: T or codes
  static constexpr int kDim = kDim_, kRowWarps = kRowWarps_, kTokenWarps = kTokenWarps_;
  static constexpr int kDimWarps = kDimWarps_, kHeights = kHeights_;
  static constexpr int kRows = 16 * kHeights * kRowWarps;
  static constexpr int kThreads = dev::kWarpSize * kRowWarps * kTokenWarps * kDimWarps;
  static constexpr int kTokens = kKvTile / kTokenWarps;  // tokens per warp
  static constexpr int kDims = kDim / kDimWarps;         // dims per warp
  static constexpr int kStride = kDim + 8;               // elements; rows of a matrix miss no bank
  static constexpr int kTile = kKvTile * kStride;        // elements of K or V of a stage
  static constexpr int kQueryElements = kRows * kStride;
  static constexpr int kStats = kHeights > 1 ? kThreads* kHeights : 0;  // of four floats
  static constexpr int kSharedBytes = (kQueryElements + kStages * 2 * kTile) * 2 + kStats * 16;
};

template <class S>
struct Block : TileLoads<S> {
  using T = typename S::Type;
  using Rows = RowTile<T, S::kRows>;
  using Loads = TileLoads<S>;
  using Loads::args, Loads::item, Loads::pool, Loads::query, Loads::tiles;
  using Loads::KeepRequestsApart, Loads::LoadQuery, Loads::LoadTile, Loads::Thread, Loads::Tile;
  using Rows::Cap, Rows::EmitState, Rows::Mask, Rows::MaskWindow, Rows::MixesRequests;
  using Rows::SumTotals, Rows::Weigh;

  using State = RowState<S::kDims / 8>;

  const float& scale;  // ScoreScale

  DEV_FUNCTION int Lane() const { return Thread() % dev::kWarpSize; }
  DEV_FUNCTION int Warp() const { return Thread() / dev::kWarpSize; }
  DEV_FUNCTION int DimWarp() const { return Warp() % S::kDimWarps; }
  DEV_FUNCTION int TokenWarp() const { return Warp() / S::kDimWarps % S::kTokenWarps; }
  // First of the warp's rows with this height.
  DEV_FUNCTION int FirstRow(int height = 0) const {
    return (Warp() / S::kDimWarps / S::kTokenWarps * S::kHeights + height) * 16;
  }

  // The warp's scores of its rows and kTokens tokens, not scaled.
  DEV_FUNCTION void Score(const T* k, float (&score)[S::kHeights][S::kTokens / 8][4]) const {
    const int lane = Lane();
    const T* q_row = query + (FirstRow() + lane % 16) * S::kStride + lane / 16 * 8;
    const T* k_row =
        k + (TokenWarp() * S::kTokens + lane / 16 * 8 + lane % 8) * S::kStride + lane / 8 % 2 * 8;
    DEV_UNROLL
    for (int h = 0; h < S::kHeights; ++h) {
      DEV_UNROLL
      for (int n = 0; n < S::kTokens / 8; ++n) {
        for (int e = 0; e < 4; ++e) score[h][n][e] = 0.0f;
      }
    }
    DEV_UNROLL
    for (int d = 0; d < S::kDim; d += 16) {
      uint32_t a[S::kHeights][4];
      DEV_UNROLL
      for (int h = 0; h < S::kHeights; ++h) dev::LoadMatrix4(a[h], q_row + h * 16 * S::kStride + d);
      DEV_UNROLL
      for (int n = 0; n < S::kTokens / 8; n += 2) {
        uint32_t b[4];
        dev::LoadMatrix4(b, k_row + n * 8 * S::kStride + d);
        DEV_UNROLL
        for (int h = 0; h < S::kHeights; ++h) {
          dev::Mma<T>(score[h][n], a[h], {b[0], b[1]});
          dev::Mma<T>(score[h][n + 1], a[h], {b[2], b[3]});
        }
      }
    }
  }

  // Weights as the left side of products, rounded to the type of V.
  DEV_FUNCTION static void PackWeights(const float (&weight)[S::kTokens / 8][4],
                                       uint32_t (&packed)[S::kTokens / 16][4]) {
    DEV_UNROLL
    for (int t = 0; t < S::kTokens / 16; ++t) {
      const float(&low)[4] = weight[2 * t], (&high)[4] = weight[2 * t + 1];
      packed[t][0] = dev::PackPair<T>(low[0], low[1]);
      packed[t][1] = dev::PackPair<T>(low[2], low[3]);
      packed[t][2] = dev::PackPair<T>(high[0], high[1]);
      packed[t][3] = dev::PackPair<T>(high[2], high[3]);
    }
  }

  // Adds the weighted V of the warp's tokens.
  DEV_FUNCTION void AddValues(const T* v, const uint32_t (&weight)[S::kHeights][S::kTokens / 16][4],
                              State (&state)[S::kHeights]) const {
    const int lane = Lane();
    const T* v_row = v + (TokenWarp() * S::kTokens + lane % 16) * S::kStride +
                     DimWarp() * S::kDims + lane / 16 * 8;
    DEV_UNROLL
    for (int t = 0; t < S::kTokens / 16; ++t) {
      DEV_UNROLL
      for (int j = 0; j < S::kDims / 8; j += 2) {
        uint32_t b[4];
        dev::LoadMatrix4Transposed(b, v_row + t * 16 * S::kStride + j * 8);
        DEV_UNROLL
        for (int h = 0; h < S::kHeights; ++h) {
          dev::Mma<T>(state[h].sum[j], weight[h][t], {b[0], b[1]});
          dev::Mma<T>(state[h].sum[j + 1], weight[h][t], {b[2], b[3]});
        }
      }
    }
  }

  // Passes over all tokens of the item. Copies of the next KV tile run behind the arithmetic.
  DEV_FUNCTION void Accumulate(State (&state)[S::kHeights]) const {
    DEV_UNROLL
    for (int h = 0; h < S::kHeights; ++h) PutStats(h, state[h]);
    const int32_t begin = BeginOf(item, args.rule);
    if (begin < item.kv_end) {
      LoadQuery();
      LoadTile(begin, begin / kKvTile % kStages);
    }
    dev::CopyCommit();
    for (int32_t first = begin; first < item.kv_end; first += kKvTile) {
      const int stage = first / kKvTile % kStages;
      if (first + kKvTile < item.kv_end) LoadTile(first + kKvTile, 1 - stage);
      dev::CopyCommit();
      dev::CopyWait<1>();
      if (MixesRequests(first / kKvTile)) KeepRequestsApart(stage);
      __syncthreads();
      float score[S::kHeights][S::kTokens / 8][4];
      uint32_t weight[S::kHeights][S::kTokens / 16][4];
      Score(Tile(stage, false), score);
      DEV_UNROLL
      for (int h = 0; h < S::kHeights; ++h) {
        Cap(score[h]);
        if (first / kKvTile >= item.mask_tile)
          Mask(FirstRow(h), first / kKvTile, TokenWarp() * S::kTokens, score[h]);
        MaskWindow(FirstRow(h), first, TokenWarp() * S::kTokens, score[h]);
        TakeStats(h, &state[h]);
        Weigh(scale, score[h], &state[h]);
        PutStats(h, state[h]);
        PackWeights(score[h], weight[h]);
        if constexpr (S::kHeights > 1) __syncwarp();
      }
      AddValues(Tile(stage, true), weight, state);
      __syncthreads();  // the next copies overwrite this stage
    }
    dev::CopyWait<0>();
    DEV_UNROLL
    for (int h = 0; h < S::kHeights; ++h) {
      TakeStats(h, &state[h]);
      SumTotals(&state[h]);
    }
  }

  // With several heights the maxima and totals of a thread lie in shared memory between KV tiles:
  // sums and scores fill its registers.
  DEV_FUNCTION dev::Pack<float, 4>* Stats(int h) const {
    T* const behind = tiles + kStages * 2 * S::kTile;
    return reinterpret_cast<dev::Pack<float, 4>*>(behind) + h * S::kThreads + Thread();
  }
  DEV_FUNCTION void PutStats(int h, const State& state) const {
    if constexpr (S::kStats > 0)
      *Stats(h) = {{state.max[0], state.max[1], state.total[0], state.total[1]}};
  }
  DEV_FUNCTION void TakeStats(int h, State* state) const {
    if constexpr (S::kStats > 0) {
      const dev::Pack<float, 4> stats = *Stats(h);
      DEV_UNROLL
      for (int half = 0; half < 2; ++half) {
        state->max[half] = stats.value[half];
        state->total[half] = stats.value[2 + half];
      }
    }
  }

  DEV_FUNCTION void Finish(const State (&state)[S::kHeights]) const {
    if constexpr (S::kTokenWarps == 1) {
      DEV_UNROLL
      for (int h = 0; h < S::kHeights; ++h) EmitState(FirstRow(h), DimWarp() * S::kDims, state[h]);
    } else {
      MergeWarps(state[0]);
    }
  }

  // The warps that share the rows meet in shared memory, where the KV tiles were.
  DEV_FUNCTION void MergeWarps(const State& state) const {
    static_assert(S::kRows == 16 && S::kDimWarps == 1 &&
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

// What a block reads now and then while it passes over the tokens of an item. In shared memory, as
// the registers are full of sums; what follows from the launch's arguments would fill them too.
template <class P>
struct Task {
  AttentionItem item;
  const AttentionItem* items;
  AttentionArgs args;
  DevicePool pool;
  Tokens tokens;
  Merging merging;
  Planes<P> planes;
  float scale;
};
using Words = dev::Pack<uint32_t, 4>;
constexpr int kItemWords = sizeof(AttentionItem) / sizeof(Words);
static_assert(sizeof(AttentionItem) % sizeof(Words) == 0);

template <class S>
DEV_KERNEL void DEV_BOUNDS(S::kThreads, 1)
    AttendTiles(const DeviceStep* step, AttentionArgs args, const DeviceWork* work, DevicePool pool,
                int tile_class) {
  dev::WaitForPrevious();
  using TaskOf = Task<typename S::Element>;
  DEV_DYNAMIC_SHARED(typename S::Type, memory);
  DEV_SHARED(uint32_t, arrived, 1);
  DEV_SHARED(Words, words, (sizeof(TaskOf) + sizeof(Words) - 1) / sizeof(Words));
  const DeviceWork::OfClass list = work->classes[tile_class];
  const int worker = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  if (worker >= list.workers) return;
  TaskOf* const task = reinterpret_cast<TaskOf*>(words);
  if (thread == 0) {
    task->items = list.items;
    task->args = args;
    task->pool = pool;
    task->tokens = TokensOf(*step, *work, args, pool);
    task->merging = {work->partials, work->counters};
    task->planes = Planes<typename S::Element>::Of(pool, args.layer);
    task->scale = ScoreScale(args.rule);
  }
  const AttentionItem* next = list.items + worker;
  do {
    if (dev::UnknownThread() < kItemWords)
      words[dev::UnknownThread()] = reinterpret_cast<const Words*>(next)[dev::UnknownThread()];
    __syncthreads();
    const Block<S> block = {{{task->tokens, task->args, task->merging, task->pool, task->item},
                             task->planes,
                             memory,
                             memory + S::kQueryElements},
                            task->scale};
    typename Block<S>::State state[S::kHeights];
    block.Accumulate(state);
    block.Finish(state);
    if (task->item.splits > 1) {
      block.MergeSplits(
          thread, S::kThreads, [] { __syncthreads(); }, arrived);
    }
    next = task->item.next < 0 ? nullptr : task->items + task->item.next;
    __syncthreads();  // the next item overwrites shared memory
  } while (next != nullptr);
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
    if (classes > 2) LaunchClass<Shape<T, P, kDim, 4, 1, 1, 2>>(2, step, args, work, pool, stream);
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
  constexpr int64_t kStatsBytes = Shape<dev::bf16, dev::bf16, 128, 4, 1, 1, 2>::kStats * 16;
  return int64_t{kTileRows[tile_class] + kStages * 2 * kKvTile} * (PaddedDim(head_dim) + 8) * 2 +
         (tile_class == kTileClasses - 1 ? kStatsBytes : 0);
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

int TileBlocksPerMultiprocessor(int tile_class, int head_dim, int64_t shared_bytes, bool wide) {
  if (wide && tile_class == kTileClasses - 1) return 1;
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
