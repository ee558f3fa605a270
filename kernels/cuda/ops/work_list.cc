#include "kernels/cuda/ops/work_list.h"

#include <algorithm>
#include <climits>
#include <numeric>
#include <unordered_map>

#include "kernels/cuda/ops/exact_work_list.h"

namespace coppice::kernels::cuda {
namespace {

int64_t CeilDiv64(int64_t a, int64_t b) { return (a + b - 1) / b; }

int ClassOf(int packed_rows) {
  int tile_class = 0;
  while (kTileRows[tile_class] < packed_rows) ++tile_class;
  return tile_class;
}

// All of one row tile and KV head, before it is cut. kv_end is the size of its KV index space.
struct Unit {
  AttentionItem whole;
  int64_t tiles() const { return CeilDiv64(whole.kv_end, kKvTile); }
};

// Tokens of the tables of joined segments behind what all have in common.
class OwnBlocks {
 public:
  // A row of the tile: `begin` is the end of what all have in common.
  void Add(const StepPlan& plan, int32_t segment, int32_t begin, int32_t prefix) {
    for (int32_t p = begin; p < prefix; p += kBlockSize) {
      const int32_t block = plan.table[plan.table_begin[segment] + p / kBlockSize];
      const auto [found, added] = places_.emplace(block, blocks_.size());
      if (added) blocks_.push_back({block, p, 0, 0});
      int32_t& tokens = blocks_[found->second].tokens;
      tokens = std::max(tokens, std::min(kBlockSize, prefix - p));
    }
  }
  // Gives the tokens their places from `next` on; returns the place after them.
  int32_t Append(int32_t next, WorkList* list) {
    for (Block& block : blocks_) {
      block.place = next;
      next += block.tokens;
      for (int32_t i = 0; i < block.tokens; ++i) {
        list->chain.push_back(block.id * kBlockSize + i);
        list->chain_position.push_back(block.position + i);
      }
    }
    return next;
  }
  int32_t PlaceOf(int32_t block) const { return blocks_[places_.at(block)].place; }

 private:
  struct Block {
    int32_t id = 0, position = 0, tokens = 0, place = 0;
  };
  std::vector<Block> blocks_;  // in order of first use
  std::unordered_map<int32_t, size_t> places_;
};

// Appends the tokens of the tile behind its item's prefix, with the distinct chain slots of
// `chained`, which has the rows of the tile, and the masks of its rows.
void AddTokens(const StepPlan& plan, const TileRows& tile, const std::vector<int32_t>& chained,
               AttentionItem* item, WorkList* list) {
  PlaceRows(plan, tile, item, list);
  item->prefix = tile.joined() ? tile.common : tile.longest;
  item->chain_begin = static_cast<int32_t>(list->chain.size());
  OwnBlocks own;
  for (size_t i = 0; i < tile.rows.size(); ++i)
    own.Add(plan, tile.segments[i], item->prefix, plan.prefix_length(tile.rows[i]));
  const int32_t chains = own.Append(item->prefix, list);
  std::unordered_map<int32_t, int32_t> place;  // slot -> token of the KV index space
  for (const int32_t r : chained) {
    for (int32_t i = plan.chain_begin[r]; i < plan.chain_begin[r + 1]; ++i) {
      const int32_t next = chains + static_cast<int32_t>(place.size());
      if (!place.emplace(plan.chain[i], next).second) continue;
      list->chain.push_back(plan.chain[i]);
      list->chain_position.push_back(plan.prefix_length(r) + i - plan.chain_begin[r]);
    }
  }
  item->kv_end = chains + static_cast<int32_t>(place.size());
  item->mask_begin = static_cast<int32_t>(list->masks.size());
  item->mask_tile = tile.common / kKvTile;
  item->mask_words = static_cast<int32_t>(CeilDiv64(item->kv_end, kKvTile)) - item->mask_tile;
  list->masks.resize(list->masks.size() + int64_t{item->rows} * item->mask_words);
  uint64_t* words = list->masks.data() + item->mask_begin;
  for (size_t row = 0; row < tile.rows.size(); ++row, words += item->mask_words) {
    const int32_t r = tile.rows[row], table = plan.table_begin[tile.segments[row]];
    const auto set = [&](int32_t token) {
      words[token / kKvTile - item->mask_tile] |= uint64_t{1} << token % kKvTile;
    };
    const int32_t in_table = plan.prefix_length(r);
    for (int32_t t = item->mask_tile * kKvTile; t < std::min(in_table, item->prefix); ++t) set(t);
    for (int32_t p = item->prefix; p < in_table; p += kBlockSize) {
      const int32_t first = own.PlaceOf(plan.table[table + p / kBlockSize]);
      for (int32_t i = 0; i < std::min(kBlockSize, in_table - p); ++i) set(first + i);
    }
    for (int32_t i = plan.chain_begin[r]; i < plan.chain_begin[r + 1]; ++i) {
      set(place.at(plan.chain[i]));
    }
  }
}

std::vector<int32_t> RowsOf(const Segment& segment) {
  std::vector<int32_t> rows(segment.rows);
  std::iota(rows.begin(), rows.end(), segment.first_row);
  return rows;
}

// Row tiles of one group and head lie beside each other: they read the same K and V.
void AddUnits(const StepPlan& plan, const WorkShape& shape, bool shared_chains, WorkList* list,
              std::vector<Unit> (*units)[kTileClasses]) {
  const int most_rows = kTileRows[shape.classes - 1] / shape.group;
  for (const RowTileGroup& group : CutIntoRowTiles(plan, most_rows, /*join=*/!shared_chains)) {
    std::vector<AttentionItem> row_tiles;
    for (const TileRows& tile : group.tiles) {
      AttentionItem item;
      AddTokens(plan, tile,
                shared_chains ? RowsOf(plan.segments[tile.segments.front()]) : tile.rows, &item,
                list);
      row_tiles.push_back(item);
    }
    for (int head = 0; head < shape.kv_heads; ++head) {
      for (AttentionItem item : row_tiles) {
        item.kv_head = head;
        (*units)[ClassOf(item.rows * shape.group)].push_back({item});
      }
    }
  }
}

// Lays the units end to end and cuts the line into equal parts, one for each worker. finer: units
// are cut as SoonestTiles says.
class Cutter {
 public:
  Cutter(const std::vector<Unit>& units, int workers, const WorkShape& shape, bool finer,
         WorkList::OfClass* out)
      : workers_(workers), shape_(shape), finer_(finer), out_(out) {
    for (const Unit& unit : units) left_ += unit.tiles() + kItemCost;
    const int64_t mean = units.empty() ? 0 : left_ / static_cast<int64_t>(units.size());
    cuts_cost_ = mean > 2 * (kItemCost + shape.least_tiles);
    StartWorker();
  }

  // The items of a unit follow each other in `items`.
  void Add(const Unit& unit) {
    int64_t tile = 0;
    const int64_t tiles = unit.tiles();
    const int64_t least =
        finer_ ? SoonestTiles(tiles, unit.whole.rows * shape_.group, shape_.least_tiles)
               : shape_.least_tiles;
    do {
      int64_t take = tiles - tile;
      const int64_t room = budget_ - used_ - kItemCost;
      if (!LastWorker() && take > least && take > room + least / 2) {
        take = std::min(room, tiles - tile - least);  // nor may the rest be too small
        if (take < least) {
          if (used_ > 0) {
            NextWorker();
            continue;
          }
          take = std::min(tiles - tile, least);
        }
      }
      AttentionItem item = unit.whole;
      item.kv_begin = static_cast<int32_t>(tile * kKvTile);
      item.kv_end = std::min(item.kv_end, static_cast<int32_t>((tile + take) * kKvTile));
      out_->items.push_back(item);
      used_ += take + kItemCost;
      left_ -= take;
      tile += take;
      if (!LastWorker() && used_ >= budget_) NextWorker();
    } while (tile < tiles);
    left_ -= kItemCost;
  }

  void Finish() {
    if (used_ > 0) out_->worker_begin.push_back(static_cast<int32_t>(out_->items.size()));
  }

 private:
  bool LastWorker() const { return worker_ + 1 == workers_; }
  void StartWorker() {
    const int64_t others = workers_ - worker_;
    budget_ = CeilDiv64(left_ + (cuts_cost_ ? (others - 1) * kItemCost : 0), others);
    used_ = 0;
  }
  void NextWorker() {
    out_->worker_begin.push_back(static_cast<int32_t>(out_->items.size()));
    ++worker_;
    StartWorker();
  }

  const int workers_;
  const WorkShape& shape_;
  const bool finer_;
  WorkList::OfClass* out_;
  bool cuts_cost_ = false;  // units are long: most workers end inside a unit
  int worker_ = 0;
  int64_t left_ = 0;    // cost of what is not assigned to a worker yet
  int64_t budget_ = 0;  // cost that this worker may still take
  int64_t used_ = 0;
};

WorkList::OfClass Cut(const std::vector<Unit>& units, int workers, const WorkShape& shape,
                      bool finer) {
  WorkList::OfClass cut;
  Cutter cutter(units, workers, shape, finer, &cut);
  for (const Unit& unit : units) cutter.Add(unit);
  cutter.Finish();
  return cut;
}

}  // namespace

// A partial result of a packed row has the bytes of 1/64 of a KV tile; to reach the first of an
// item's takes about as long as 1/8 of one.
int SoonestTiles(int64_t tiles, int packed_rows, int least_tiles) {
  const auto cost = [&](int take) {
    return 64 * take + CeilDiv64(tiles, take) * (8 + packed_rows);
  };
  int soonest = least_tiles;
  for (int take = least_tiles - 1; take > 0; --take) {
    if (cost(take) < cost(soonest)) soonest = take;
  }
  return soonest;
}

void PlaceRows(const StepPlan& plan, const TileRows& tile, AttentionItem* item, WorkList* list) {
  const std::vector<int32_t>& rows = tile.rows;
  item->first_row = rows.front();
  item->rows = static_cast<int32_t>(rows.size());
  item->table_begin = plan.table_begin[tile.segments.front()];
  item->first_position = INT32_MAX;
  for (const int32_t row : rows)
    item->first_position = std::min(item->first_position, plan.position[row]);
  if (!tile.joined()) return;
  item->listed = static_cast<int32_t>(list->rows.size());
  list->rows.insert(list->rows.end(), rows.begin(), rows.end());
}

void NumberSplits(int tile_class, int head_dim, WorkList* list) {
  std::vector<AttentionItem>& items = list->classes[tile_class].items;
  for (size_t begin = 0, end = 0; begin < items.size(); begin = end) {
    do {
      ++end;
    } while (end < items.size() && items[end].kv_begin > 0);
    const auto splits = static_cast<int32_t>(end - begin);
    for (size_t i = begin; i < end; ++i) {
      items[i].split = static_cast<int32_t>(i - begin);
      items[i].splits = splits;
      items[i].partial = static_cast<int32_t>(list->partial_floats);
      items[i].merge = list->merges;
    }
    if (splits == 1) continue;
    list->partial_floats += int64_t{splits} * PartialFloats(tile_class, head_dim);
    ++list->merges;
  }
}

std::vector<AttentionItem> ItemsByWorker(const WorkList::OfClass& work) {
  const size_t workers = work.worker_begin.size() - 1;
  std::vector<AttentionItem> items(workers);
  items.reserve(work.items.size());
  for (size_t w = 0; w < workers; ++w) {
    size_t place = w;
    items[place] = work.items[work.worker_begin[w]];
    for (int32_t i = work.worker_begin[w] + 1; i < work.worker_begin[w + 1]; ++i) {
      items[place].next = static_cast<int32_t>(items.size());
      place = items.size();
      items.push_back(work.items[i]);
    }
  }
  return items;
}

WorkList MakeWorkList(const StepPlan& plan, const WorkShape& shape, bool shared_chains) {
  if (shape.exact) return MakeExactWorkList(plan, shape);
  WorkList list;
  std::vector<Unit> units[kTileClasses];
  AddUnits(plan, shape, shared_chains, &list, &units);
  const auto too_few = [&](size_t items) {
    return items > 0 && static_cast<int64_t>(items) < shape.multiprocessors;
  };
  for (int c = 0; c < kTileClasses; ++c) {
    list.classes[c] = Cut(units[c], shape.workers[c], shape, /*finer=*/false);
    const size_t items = list.classes[c].items.size();
    // Two narrow row tiles read the same K and V, the second time out of the L2 cache.
    if (c + 1 == kTileClasses && too_few(2 * items) && shape.group <= kTileRows[c - 1]) {
      WorkShape narrower = shape;
      narrower.classes = c;
      return MakeWorkList(plan, narrower, shared_chains);
    }
    if (too_few(items)) {
      const int workers = std::min(shape.workers[c], shape.multiprocessors);
      list.classes[c] = Cut(units[c], workers, shape, /*finer=*/true);
    }
    NumberSplits(c, shape.head_dim, &list);
  }
  return list;
}

}  // namespace coppice::kernels::cuda
