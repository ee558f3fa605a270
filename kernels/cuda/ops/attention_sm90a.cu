// Forest attention of the largest tile class by Hopper's own instructions: one warp lets the copy
// engine bring KV tiles into a ring in shared memory, and two warpgroups of 64 packed rows each
// take them out. Otherwise as attention_tiles.cu: the same work list, the same order of every sum.
// It knows neither caps nor windows.
// q and the weights of softmax are in registers; K and V come from swizzled shared memory, V as it
// lies there (the instruction transposes it).
#include <algorithm>

#include "kernels/cuda/device/hopper.h"
#include "kernels/cuda/ops/attention_cost.h"
#include "kernels/cuda/ops/attention_rows.h"
#include "kernels/cuda/ops/kernel_types.h"

namespace coppice::kernels::cuda {
namespace {

constexpr int kClass = kTileClasses - 1, kRows = kTileRows[kClass];
constexpr int kStages = 4;  // KV tiles in shared memory
constexpr int kGroupRows = 64, kConsumers = kRows / kGroupRows * 128;
constexpr int kThreads = kConsumers + 128;  // a whole warpgroup loads: registers go by warpgroups
// Bytes and dims of a row of swizzled shared memory.
constexpr int kRowBytes = 128, kPanelDims = 64;
constexpr int kPanelBytes = kKvTile * kRowBytes;   // bytes of 64 dims of a KV tile
constexpr int kTileBlocks = kKvTile / kBlockSize;  // blocks of a KV tile; each is copied as one box
static_assert(kBlockSize % 8 == 0 && kTileBlocks <= dev::kWarpSize);

template <class T, int kDim_>
struct WideShape {
  using Type = T;
  static constexpr int kDim = kDim_, kRows = cuda::kRows, kDimWarps = 1;
  static constexpr int kPanels = kDim / kPanelDims;
  static constexpr int kTileBytes = kPanels * kPanelBytes;  // bytes of K or V of a KV tile
  static constexpr int kStageBytes = 2 * kTileBytes;
  static constexpr int kAlignment = 1024;
  static constexpr int kSharedBytes = kStages * kStageBytes + kAlignment;
};

// Where a warp is in the ring.
struct Place {
  int stage = 0;
  uint32_t parity = 0;

  DEV_FUNCTION void Next() {
    stage = stage + 1 == kStages ? 0 : stage + 1;
    if (stage == 0) parity ^= 1;
  }
};

// The barriers of the block.
struct Ring {
  uint64_t* barriers;  // [2 kStages + 1]

  // One arrival: the tile is there.
  DEV_FUNCTION uint64_t* Full(int stage) const { return barriers + stage; }
  // One arrival for each warp that has read it.
  DEV_FUNCTION uint64_t* Empty(int stage) const { return barriers + kStages + stage; }
  // The barrier of all consumers.
  DEV_FUNCTION uint64_t* Meeting() const { return barriers + 2 * kStages; }

  DEV_FUNCTION void Init() const {
    for (int stage = 0; stage < kStages; ++stage) {
      dev::BarrierInit(Full(stage), 1);
      dev::BarrierInit(Empty(stage), kConsumers / dev::kWarpSize);
    }
    dev::BarrierInit(Meeting(), kConsumers);
    dev::BarriersReady();
  }
};

template <class S>
struct WideTile : RowTile<typename S::Type, S::kRows> {
  using T = typename S::Type;
  using Rows = RowTile<T, S::kRows>;
  using State = RowState<S::kDim / 8>;
  using Rows::args, Rows::item, Rows::pool, Rows::tokens;
  using Rows::EmitState, Rows::Fill, Rows::Finite, Rows::HoldsForToken, Rows::Mask;
  using Rows::MixesRequests, Rows::PackedRows, Rows::QueryOf, Rows::SlotOf;
  using Rows::SumTotals, Rows::Weigh;

  const dev::TensorMap& map;  // tensor map of the pool
  Ring ring;
  unsigned char* stages;  // [kStages][K then V][kPanels][kKvTile, 64]

  DEV_FUNCTION int Thread() const { return static_cast<int>(threadIdx.x); }
  DEV_FUNCTION int Lane() const { return Thread() % dev::kWarpSize; }
  // First row of the warp.
  DEV_FUNCTION int FirstRow() const { return Thread() / dev::kWarpSize * 16; }
  DEV_FUNCTION unsigned char* Panel(int stage, bool value, int panel) const {
    return stages + stage * S::kStageBytes + value * S::kTileBytes + panel * kPanelBytes;
  }

  // ---- The warp that loads.

  DEV_FUNCTION void Load(Place* place) const {
    for (int32_t first = item.kv_begin; first < item.kv_end; first += kKvTile, place->Next()) {
      dev::BarrierWait(ring.Empty(place->stage), place->parity ^ 1);
      if (first + kKvTile <= item.prefix && first + kKvTile <= item.kv_end) {
        LoadBlocks(first, place->stage);
      } else {
        LoadTokens(first, place->stage);
      }
    }
  }

  // A tile of four whole blocks, by the copy engine.
  DEV_FUNCTION void LoadBlocks(int32_t first, int stage) const {
    if (Lane() == 0) dev::BarrierArriveExpecting(ring.Full(stage), S::kStageBytes);
    __syncwarp();
    if (Lane() >= kTileBlocks) return;
    const int32_t block = tokens.table[item.table_begin + first / kBlockSize + Lane()];
    for (int value = 0; value < 2; ++value) {
      const int64_t plane = int64_t{2} * args.layer + value;
      const int64_t tile = (plane * pool.blocks + block) * pool.kv_heads + item.kv_head;
      const int row = static_cast<int>(tile * kBlockSize);
      for (int panel = 0; panel < S::kPanels; ++panel) {
        dev::CopyBox(Panel(stage, value != 0, panel) + Lane() * kBlockSize * kRowBytes, map,
                     panel * kPanelDims, row, ring.Full(stage));
      }
    }
  }

  // Loads any tile, token by token, with eight lanes per token. Tokens after the item's are zeros.
  DEV_FUNCTION void LoadTokens(int32_t first, int stage) const {
    const int chunk = Lane() % 8;  // chunk of 16 bytes in a row
    for (int t = Lane() / 8; t < kKvTile; t += dev::kWarpSize / 8) {
      const bool seen = first + t < item.kv_end;
      const int32_t slot = seen ? SlotOf(first + t) : 0;
      const T* k = PoolRow<const T>(pool, args.layer, /*value=*/false, slot, item.kv_head);
      const T* v = PoolRow<const T>(pool, args.layer, /*value=*/true, slot, item.kv_head);
      const int at = t * kRowBytes + (chunk ^ t % 8) * 16;
      for (int panel = 0; panel < S::kPanels; ++panel) {
        const int dim = panel * kPanelDims + chunk * 8;
        dev::CopyAsync16(Panel(stage, false, panel) + at, k + dim, seen);
        dev::CopyAsync16(Panel(stage, true, panel) + at, v + dim, seen);
      }
    }
    dev::CopyCommit();
    dev::CopyWait<0>();
    dev::ShowToAsync();
    if (MixesRequests(first / kKvTile)) {
      KeepRequestsApart(stage);
      dev::ShowToAsync();
    }
    __syncwarp();
    if (Lane() == 0) dev::BarrierArrive(ring.Full(stage));
  }

  // Each lane looks at what it has loaded.
  DEV_FUNCTION void KeepRequestsApart(int stage) const {
    for (int t = Lane() / 8; t < kKvTile; t += dev::kWarpSize / 8) {
      const int at = t * kRowBytes + (Lane() % 8 ^ t % 8) * 16;
      const auto piece = [&](bool value, int panel) {
        return reinterpret_cast<T*>(Panel(stage, value, panel) + at);
      };
      bool finite = true;
      for (int panel = 0; panel < S::kPanels; ++panel)
        finite = finite && Finite(piece(true, panel));
      if (HoldsForToken(finite)) continue;
      for (int panel = 0; panel < S::kPanels; ++panel) {
        Fill(piece(false, panel), NAN);
        Fill(piece(true, panel), 0.0f);
      }
    }
  }

  // ---- The warpgroups that compute.

  // The lane's part of q, as the left side of products.
  DEV_FUNCTION void LoadQuery(uint32_t (&q)[S::kDim / 16][4]) const {
    DEV_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int packed = FirstRow() + Lane() / 4 + half * 8;
      const bool valid = packed < PackedRows();
      const T* row = valid ? QueryOf(packed) : static_cast<const T*>(args.qkv);
      DEV_UNROLL
      for (int d = 0; d < S::kDim / 16; ++d) {
        const auto* pairs = reinterpret_cast<const uint32_t*>(row + d * 16) + Lane() % 4;
        q[d][half] = valid ? pairs[0] : 0;
        q[d][half + 2] = valid ? pairs[4] : 0;
      }
    }
  }

  DEV_FUNCTION void Accumulate(Place* place, State* state) const {
    const float scale = ScoreScale(args.rule);
    uint32_t q[S::kDim / 16][4];
    LoadQuery(q);
    for (int32_t first = item.kv_begin; first < item.kv_end; first += kKvTile, place->Next()) {
      const int stage = place->stage;
      dev::BarrierWait(ring.Full(stage), place->parity);
      float score[kKvTile / 8][4] = {};
      dev::WarpgroupBegin(score);
      DEV_UNROLL
      for (int d = 0; d < S::kDim / 16; ++d) {
        // 16 dims are 32 bytes of a row.
        const unsigned char* k = Panel(stage, false, d / 4) + d % 4 * 32;
        dev::MmaAsync<T, /*kTransposed=*/false>(score, q[d], dev::MatrixOf(k, 0), d > 0);
      }
      dev::WarpgroupCommit();
      dev::WarpgroupWait<0>(score);
      if (first / kKvTile >= item.mask_tile) Mask(FirstRow(), first / kKvTile, 0, score);
      Weigh(scale, score, state);
      uint32_t weight[kKvTile / 16][4];
      DEV_UNROLL
      for (int t = 0; t < kKvTile / 16; ++t) {
        DEV_UNROLL
        for (int i = 0; i < 4; ++i) {
          const float* pair = score[2 * t + i / 2] + i % 2 * 2;
          weight[t][i] = dev::PackPair<T>(pair[0], pair[1]);
        }
      }
      dev::WarpgroupBegin(state->sum);
      DEV_UNROLL
      for (int t = 0; t < kKvTile / 16; ++t) {
        const unsigned char* v = Panel(stage, true, 0) + t * 16 * kRowBytes;
        dev::MmaAsync<T, /*kTransposed=*/true>(state->sum, weight[t], dev::MatrixOf(v, kPanelBytes),
                                               true);
      }
      dev::WarpgroupCommit();
      dev::WarpgroupWait<0>(state->sum);
      __syncwarp();
      if (Lane() == 0) dev::BarrierArrive(ring.Empty(stage));
    }
    SumTotals(state);
  }

  DEV_FUNCTION void Finish(const State& state) const { EmitState(FirstRow(), 0, state); }
};

template <class S>
DEV_KERNEL void DEV_BOUNDS(kThreads, 1)
    AttendWide(const DeviceStep* step, AttentionArgs args, const DeviceWork* work, DevicePool pool,
               const DEV_GRID_CONSTANT dev::TensorMap map) {
  dev::WaitForPrevious();
  DEV_DYNAMIC_SHARED(unsigned char, memory);
  DEV_SHARED(uint64_t, barriers, 2 * kStages + 1);
  DEV_SHARED(uint32_t, arrived, 1);
  const DeviceWork::OfClass list = work->classes[kClass];
  const int worker = static_cast<int>(blockIdx.x);
  if (worker >= list.workers) return;
  const Ring ring = {barriers};
  if (threadIdx.x == 0) ring.Init();
  __syncthreads();
  unsigned char* const stages =
      memory + (S::kAlignment - dev::SharedAddress(memory) % S::kAlignment) % S::kAlignment;
  const Tokens tokens = TokensOf(*step, *work, args, pool);
  const Merging merging = {work->partials, work->counters};
  Place place;
  if (threadIdx.x >= kConsumers) {
    dev::GiveRegisters<72>();
    if (threadIdx.x >= kConsumers + dev::kWarpSize) return;
    for (int i = worker; i >= 0; i = list.items[i].next) {
      const AttentionItem item = list.items[i];
      const WideTile<S> tile = {{tokens, args, merging, pool, item}, map, ring, stages};
      tile.Load(&place);
    }
  } else {
    dev::TakeRegisters<216>();
    uint32_t meeting = 0;
    const auto meet = [&] {
      dev::BarrierArrive(ring.Meeting());
      dev::BarrierWait(ring.Meeting(), meeting);
      meeting ^= 1;
    };
    for (int i = worker; i >= 0; i = list.items[i].next) {
      const AttentionItem item = list.items[i];
      const WideTile<S> tile = {{tokens, args, merging, pool, item}, map, ring, stages};
      typename WideTile<S>::State state;
      tile.Accumulate(&place, &state);
      tile.Finish(state);
      if (item.splits > 1) tile.MergeSplits(tile.Thread(), kConsumers, meet, arrived);
    }
  }
}

int64_t PoolRows(const DevicePool& pool) {
  return int64_t{2} * pool.layers * pool.blocks * pool.kv_heads * kBlockSize;
}

template <class S>
cudaError_t LaunchWide(const StepView& step, const AttentionArgs& args, const WorkView& work,
                       const DevicePool& pool, cudaStream_t stream) {
  if (work.blocks[kClass] == 0) return cudaSuccess;
  dev::TensorMap map;
  const cudaError_t error = dev::MakeTensorMap(pool.data, pool.dtype == DType::kF16, PoolRows(pool),
                                               pool.head_dim, kBlockSize, &map);
  if (error != cudaSuccess) return error;
  dev::Declare("attention T128 by wgmma", [work = work.work, args, pool] {
    return CostOf<S>(work->classes[kClass], args, pool);
  });
  dev::Launch(AttendWide<S>, dim3(static_cast<unsigned>(work.blocks[kClass])), dim3(kThreads),
              S::kSharedBytes, stream, step.step, args, work.work, pool, map);
  return cudaSuccess;
}

template <class T>
cudaError_t LaunchDim(const StepView& step, const AttentionArgs& args, const WorkView& work,
                      const DevicePool& pool, cudaStream_t stream) {
  return pool.head_dim == 64 ? LaunchWide<WideShape<T, 64>>(step, args, work, pool, stream)
                             : LaunchWide<WideShape<T, 128>>(step, args, work, pool, stream);
}

}  // namespace

bool CanAttendWide(DType activations, const AttentionRule& rule, const DevicePool& pool,
                   int64_t block_shared_bytes) {
  constexpr int64_t kStatic = 1024;
  return rule.softcap == 0 && rule.window == 0 && activations != DType::kF32 &&
         pool.dtype == activations && (pool.head_dim == 64 || pool.head_dim == 128) &&
         PoolRows(pool) <= INT32_MAX &&
         WideShape<dev::bf16, 128>::kSharedBytes + kStatic <= block_shared_bytes;
}

cudaError_t AttendWide(const StepView& step, const AttentionArgs& args, const WorkView& work,
                       const DevicePool& pool, cudaStream_t stream) {
  return pool.dtype == DType::kF16 ? LaunchDim<dev::f16>(step, args, work, pool, stream)
                                   : LaunchDim<dev::bf16>(step, args, work, pool, stream);
}

}  // namespace coppice::kernels::cuda
