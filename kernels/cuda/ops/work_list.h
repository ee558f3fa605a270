// The work of tiled attention over one step: which block of threads computes which rows over which
// tokens. Made by the host once per step from the plan and read by the kernel in every layer. Pure:
// equal inputs give equal lists, so that results are deterministic.
//
// A *row tile* is rows that pass together over their tokens (row_tiles.h), all q heads of a KV head
// packed: packed row = row in the tile * group + head in the group. They are rows of one segment,
// or of several segments whose block tables begin alike. Its *KV index space* is the tokens of the
// block table that any of its rows sees, or, of several segments, those that all have in common;
// then the other tokens of their tables, a block that some share once; then the distinct chain
// slots of its rows in order of first use. It is cut into *KV tiles* of 64 tokens. Where not every
// row sees every token of a KV tile, a word of 64 bits per row says which.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/ops/row_tiles.h"
#include "plan/step_plan.h"

namespace coppice::kernels::cuda {

inline constexpr int kKvTile = 64;  // tokens

// Packed rows of the tile classes; a row tile takes the smallest class that holds it.
inline constexpr int kTileClasses = 3;
inline constexpr int kTileRows[kTileClasses] = {16, 64, 128};

// A run of KV tiles of one row tile and KV head. Kernels load it by 16 bytes.
struct alignas(16) AttentionItem {
  // Its rows are first_row, first_row + 1, ... of one segment, or, where listed >= 0, those of
  // several: WorkList::rows[listed], ...
  int32_t first_row = 0, rows = 0;
  int32_t listed = -1;
  int32_t first_position = 0;  // the least position of its rows
  int32_t kv_head = 0;
  int32_t kv_begin = 0, kv_end = 0;  // tokens of the KV index space; kv_begin at a KV tile
  int32_t table_begin = 0;           // begin of the segment's table in DeviceStep::table
  int32_t prefix = 0;       // tokens of the KV index space that lie in the table, at its begin
  int32_t chain_begin = 0;  // begin of its further tokens in WorkList::chain
  // Row r's word of KV tile t >= mask_tile: masks[mask_begin + r * mask_words + t - mask_tile].
  // Every row sees all of the KV tiles before.
  int32_t mask_begin = 0, mask_tile = 0, mask_words = 0;
  // The row tile is cut into `splits` items. With more than one, each leaves a partial result, the
  // first at float `partial`, and the last to finish (counter `merge`) merges them in order.
  int32_t split = 0, splits = 1;
  int32_t partial = 0, merge = 0;
  int32_t next = -1;  // as ItemsByWorker sets it
};

// Floats of one partial result: per packed row the weighted sum of V, the maximum and the total.
constexpr int32_t PartialFloats(int tile_class, int head_dim) {
  return kTileRows[tile_class] * (head_dim + 2);
}

struct WorkList {
  // Worker w, a resident block of threads, does items worker_begin[w] .. worker_begin[w + 1].
  struct OfClass {
    std::vector<AttentionItem> items;
    std::vector<int32_t> worker_begin = {0};
  };
  OfClass classes[kTileClasses];
  std::vector<int32_t> rows;            // of items that list them: rows of the plan
  std::vector<int32_t> chain;           // slots
  std::vector<int32_t> chain_position;  // [chain] positions of their tokens
  std::vector<uint64_t> masks;          // bit i: token i of the KV tile
  int64_t partial_floats = 0;
  int32_t merges = 0;  // number of counters
};

struct WorkShape {
  int group = 1;  // q heads of a KV head, at most the rows of the largest class
  int kv_heads = 1;
  int head_dim = 0;
  int classes = kTileClasses;             // classes that may be used, smallest first
  int workers[kTileClasses] = {1, 1, 1};  // resident blocks of each class, at most
  // A row tile is not cut into items of fewer KV tiles: each costs a load of q and a merge.
  int least_tiles = 4;
  // Where a list has fewer items than the device has multiprocessors, row tiles are narrower and
  // cut finer, except in exact mode. 0: never.
  int multiprocessors = 0;
  // The inputs of a row's result depend only on the row (exact_work_list.h). All row tiles are then
  // of classes that sum in the same order: class 0 if it is the only one, else the others.
  bool exact = false;
};

// Fixed cost of an item besides its KV tiles, in KV tiles.
inline constexpr int kItemCost = 2;

// KV tiles of an item with which a row tile of `tiles` KV tiles is done soonest if every item has a
// multiprocessor: at most least_tiles. The items pass over their tokens side by side; then one
// block merges their partial results.
int SoonestTiles(int64_t tiles, int packed_rows, int least_tiles);

// shared_chains: every row tile of a segment holds the chain slots of all rows of the segment,
// because which row sees which slot is not known yet (draft_levels.h). Segments are not joined
// then.
WorkList MakeWorkList(const StepPlan& plan, const WorkShape& shape, bool shared_chains = false);

// The items as kernels read them: worker w begins with item w and goes on with item `next` of the
// one before, -1: none. So the first item is found by the number of the worker alone.
std::vector<AttentionItem> ItemsByWorker(const WorkList::OfClass& work);

// For makers of such lists. Fills the fields of the item that say which rows it has.
void PlaceRows(const StepPlan& plan, const TileRows& tile, AttentionItem* item, WorkList* list);
// Numbers the items of each row tile and KV head, which follow each
// other, and gives them room for their partial results.
void NumberSplits(int tile_class, int head_dim, WorkList* list);

}  // namespace coppice::kernels::cuda
