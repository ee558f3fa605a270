#include "kernels/cuda/ops/exact_work_list.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace coppice::kernels::cuda {
namespace {

int32_t TilesOf(int32_t tokens) { return (tokens + kKvTile - 1) / kKvTile; }

// Rows that pass together, and where their KV tiles lie in their contexts.
struct RowTile {
  AttentionItem whole;             // covers all KV tiles; its head is not set yet
  std::vector<int32_t> positions;  // [KV tiles] of the contexts, in KV tiles
};

class RowTileMaker {
 public:
  RowTileMaker(const StepPlan& plan, const TileRows& rows, WorkList* list)
      : plan_(plan), rows_(rows), list_(list) {
    AttentionItem& item = made_.whole;
    PlaceRows(plan, rows, &item, list);
    int32_t longest = 0;
    for (int i = 0; i < item.rows; ++i) longest = std::max(longest, Length(i));
    item.mask_tile = rows.common / kKvTile;
    item.prefix = item.mask_tile * kKvTile;
    item.chain_begin = static_cast<int32_t>(list->chain.size());
    item.kv_end = item.prefix;
    made_.positions.resize(item.mask_tile);
    std::iota(made_.positions.begin(), made_.positions.end(), 0);
    for (int32_t tile = item.mask_tile; tile < TilesOf(longest); ++tile) AddTilesAt(tile);
    PlaceMasks();
  }
  RowTile Take() { return std::move(made_); }

 private:
  // A KV tile behind those that all rows see whole, and how many of its tokens each row sees.
  struct OwnTile {
    std::vector<int32_t> slots;
    std::vector<int32_t> seen;  // [rows]
  };

  // Row i of the tile.
  int32_t Length(int i) const { return plan_.position[rows_.rows[i]] + 1; }
  int32_t SlotAt(int i, int32_t position) const {
    const int32_t row = rows_.rows[i], prefix = plan_.prefix_length(row);
    if (position >= prefix) return plan_.chain[plan_.chain_begin[row] + position - prefix];
    const int32_t table = plan_.table_begin[rows_.segments[i]];
    const int32_t block = plan_.table[table + position / kBlockSize];
    return block * kBlockSize + position % kBlockSize;
  }

  // Longest first, so that a row that is the beginning of another finds it.
  void AddTilesAt(int32_t tile) {
    const AttentionItem& item = made_.whole;
    std::vector<int> rows(item.rows);
    std::iota(rows.begin(), rows.end(), 0);
    std::stable_sort(rows.begin(), rows.end(), [&](int a, int b) { return Length(a) > Length(b); });
    std::vector<OwnTile> tiles;
    for (const int row : rows) {
      std::vector<int32_t> slots;
      const int32_t end = std::min(Length(row), (tile + 1) * kKvTile);
      for (int32_t p = tile * kKvTile; p < end; ++p) slots.push_back(SlotAt(row, p));
      if (slots.empty()) break;  // rows after this one do not reach this tile either
      auto found = std::find_if(tiles.begin(), tiles.end(), [&](const OwnTile& own) {
        return std::equal(slots.begin(), slots.end(), own.slots.begin());
      });
      if (found == tiles.end()) {
        tiles.push_back({slots, std::vector<int32_t>(item.rows)});
        found = tiles.end() - 1;
      }
      found->seen[row] = static_cast<int32_t>(slots.size());
    }
    for (OwnTile& own : tiles) Append(tile, std::move(own));
  }

  // Fills the previous tile with an existing token: no row sees it, but it is multiplied by zero.
  void Append(int32_t tile, OwnTile own) {
    AttentionItem& item = made_.whole;
    while (item.kv_end % kKvTile != 0) {
      list_->chain.push_back(own_.back().slots[0]);
      list_->chain_position.push_back(0);
      ++item.kv_end;
    }
    list_->chain.insert(list_->chain.end(), own.slots.begin(), own.slots.end());
    for (size_t i = 0; i < own.slots.size(); ++i) {
      list_->chain_position.push_back(tile * kKvTile + static_cast<int32_t>(i));
    }
    item.kv_end += static_cast<int32_t>(own.slots.size());
    made_.positions.push_back(tile);
    own_.push_back(std::move(own));
  }

  void PlaceMasks() {
    AttentionItem& item = made_.whole;
    item.mask_begin = static_cast<int32_t>(list_->masks.size());
    item.mask_words = static_cast<int32_t>(own_.size());
    for (int r = 0; r < item.rows; ++r) {
      for (const OwnTile& own : own_) {
        const int32_t seen = own.seen[r];
        list_->masks.push_back(seen == kKvTile ? ~uint64_t{0} : (uint64_t{1} << seen) - 1);
      }
    }
  }

  const StepPlan& plan_;
  const TileRows& rows_;
  WorkList* const list_;
  RowTile made_;
  std::vector<OwnTile> own_;
};

// The items of one row tile and head: one for each chunk of positions.
void AddItems(const RowTile& tile, int head, std::vector<AttentionItem>* items) {
  const auto tiles = static_cast<int32_t>(tile.positions.size());
  int32_t begin = 0;
  do {
    int32_t end = begin;
    while (end < tiles &&
           tile.positions[end] / kExactChunkTiles == tile.positions[begin] / kExactChunkTiles)
      ++end;
    AttentionItem item = tile.whole;
    item.kv_head = head;
    item.kv_begin = begin * kKvTile;
    item.kv_end = std::min(item.kv_end, end * kKvTile);
    items->push_back(item);
    begin = end;
  } while (begin < tiles);
}

// Runs of items of about the same cost, one for each worker. The assignment of items changes no
// bit.
void DealOut(int workers, WorkList::OfClass* out) {
  const auto cost = [](const AttentionItem& item) {
    return int64_t{TilesOf(item.kv_end - item.kv_begin)} + kItemCost;
  };
  int64_t left = 0, used = 0;
  for (const AttentionItem& item : out->items) left += cost(item);
  int others = workers;  // this one included
  for (size_t i = 0; i < out->items.size(); ++i) {
    const int64_t next = cost(out->items[i]);
    if (used > 0 && others > 1 && (used + next / 2) * others > left) {
      out->worker_begin.push_back(static_cast<int32_t>(i));
      left -= used;
      used = 0;
      --others;
    }
    used += next;
  }
  if (used > 0) out->worker_begin.push_back(static_cast<int32_t>(out->items.size()));
}

}  // namespace

WorkList MakeExactWorkList(const StepPlan& plan, const WorkShape& shape) {
  WorkList list;
  const int least_class = shape.classes > 1 ? 1 : 0;
  const int most_rows = kTileRows[shape.classes - 1] / shape.group;
  for (const RowTileGroup& group : CutIntoRowTiles(plan, most_rows, /*join=*/true)) {
    std::vector<RowTile> tiles;
    for (const TileRows& rows : group.tiles)
      tiles.push_back(RowTileMaker(plan, rows, &list).Take());
    for (int head = 0; head < shape.kv_heads; ++head) {
      for (const RowTile& tile : tiles) {
        int tile_class = least_class;
        while (kTileRows[tile_class] < tile.whole.rows * shape.group) ++tile_class;
        AddItems(tile, head, &list.classes[tile_class].items);
      }
    }
  }
  for (int c = 0; c < kTileClasses; ++c) {
    DealOut(shape.workers[c], &list.classes[c]);
    NumberSplits(c, shape.head_dim, &list);
  }
  return list;
}

}  // namespace coppice::kernels::cuda
