// The work of one launch of tiled attention, counted from its work list. For attention_tiles.cu.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/device/device.h"
#include "kernels/cuda/ops/attention_rows.h"
#include "kernels/cuda/ops/launch.h"

namespace coppice::kernels::cuda {

// S: the shape of a tile. K and V once for each item, partial results written and read. The
// arithmetic is what the tensor cores do, rows and tokens that fill up a tile included.
template <class S>
dev::Cost CostOf(const DeviceWork::OfClass& list, const AttentionArgs& args,
                 const DevicePool& pool) {
  constexpr int64_t kElement = sizeof(typename S::Type);
  dev::Cost cost;
  for (int i = 0; i < list.count; ++i) {
    const AttentionItem& item = list.items[i];
    const int64_t tokens = std::max(0, item.kv_end - BeginOf(item, args.rule));
    const int64_t packed = int64_t{item.rows} * (args.q_heads / pool.kv_heads);
    const int64_t partial = packed * (pool.head_dim + 2) * int64_t{sizeof(float)};
    cost.bytes += 2 * tokens * VectorBytes(pool) + packed * pool.head_dim * kElement;
    cost.bytes += item.splits > 1 ? 2 * partial : 0;
    cost.bytes += item.split == 0 ? packed * pool.head_dim * kElement : 0;
    const int64_t tiles = (tokens + kKvTile - 1) / kKvTile;
    cost.flops += 2 * (S::kDimWarps + 1) * tiles * kKvTile * S::kRows * S::kDim;
  }
  return cost;
}

}  // namespace coppice::kernels::cuda
