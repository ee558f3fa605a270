// The work of one launch of tiled attention, counted from its work list. For attention_tiles.cu.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/device/device.h"
#include "kernels/cuda/ops/attention_rows.h"
#include "kernels/cuda/ops/launch.h"

namespace coppice::kernels::cuda {

// Bytes that the warps of a block move through shared memory for one KV tile: K and V into it, and
// what they read. Each warp of mma.sync reads its rows of q and its part of K, then of V; wgmma has
// q in shared memory too and reads K and V once for 64 rows.
template <class S>
constexpr int64_t SharedTileBytes() {
  constexpr int64_t kTileBytes = int64_t{2} * kKvTile * S::kDim * 2;
  if constexpr (requires { S::kTokenWarps; }) {
    constexpr int64_t kMatrices = 512;  // bytes that a warp reads by one instruction
    constexpr int64_t kWarps = S::kThreads / 32;
    int64_t heights = 1;  // rows of a warp, in sixteens
    if constexpr (requires { S::kHeights; }) heights = S::kHeights;
    const int64_t scores = S::kDim / 16 * (heights + S::kTokens / 16);
    const int64_t values = S::kTokens / 16 * (S::kDims / 16);
    return kTileBytes + kWarps * kMatrices * (scores + values);
  } else {
    return kTileBytes + S::kRows / 64 * (kTileBytes + 64 * S::kDim * 2);
  }
}

// S: the shape of a tile. K and V once for each item, partial results written and read. The
// arithmetic is what the tensor cores do, rows and tokens that fill up a tile included.
template <class S>
dev::Cost CostOf(const DeviceWork::OfClass& list, const AttentionArgs& args,
                 const DevicePool& pool) {
  constexpr int64_t kElement = sizeof(typename S::Type);
  dev::Cost cost;
  cost.blocks = list.workers;
  cost.block_bytes = int64_t{2} * kKvTile * S::kDim * kElement;  // the next KV tile
  cost.resident = 1;
  int64_t items = 0, most_splits = 1;
  for (int i = 0; i < list.count; ++i) {
    const AttentionItem& item = list.items[i];
    const int64_t tokens = std::max(0, item.kv_end - BeginOf(item, args.rule));
    const int64_t packed = int64_t{item.rows} * (args.q_heads / pool.kv_heads);
    const int64_t partial = packed * (pool.head_dim + 2) * int64_t{sizeof(float)};
    cost.bytes += 2 * tokens * VectorBytes(pool) + packed * pool.head_dim * kElement;
    cost.bytes += item.splits > 1 ? 2 * partial : 0;
    cost.bytes += item.split == 0 ? packed * pool.head_dim * kElement : 0;
    ++items;
    cost.cold_bytes += 2 * tokens * VectorBytes(pool);
    most_splits = std::max<int64_t>(most_splits, item.splits);
    const int64_t tiles = (tokens + kKvTile - 1) / kKvTile;
    cost.shared_bytes += tiles * SharedTileBytes<S>();
    cost.flops += 2 * (S::kDimWarps + 1) * tiles * kKvTile * S::kRows * S::kDim;
  }
  // Step, item, table; q and the first KV tile of each item; a merge writes, counts, reads.
  const int64_t of_worker = (items + list.workers - 1) / std::max(list.workers, 1);
  cost.dependent_loads = 3 + 2 * of_worker + (most_splits > 1 ? 3 : 0);
  return cost;
}

}  // namespace coppice::kernels::cuda
