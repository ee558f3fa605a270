#include "kernels/cuda/ops/work_list.h"

#include <algorithm>
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

// Appends the distinct chain slots of the rows [first, last), and the masks of the item's rows,
// which are among them.
void AddTokens(const StepPlan& plan, int first, int last, AttentionItem* item, WorkList* list) {
  const int end = item->first_row + item->rows;
  const auto position = plan.position.begin();
  item->first_position = *std::min_element(position + item->first_row, position + end);
  int32_t seen_by_all = plan.prefix_length(item->first_row);
  for (int r = item->first_row; r < end; ++r) {
    item->prefix = std::max(item->prefix, plan.prefix_length(r));
    seen_by_all = std::min(seen_by_all, plan.prefix_length(r));
  }
  item->chain_begin = static_cast<int32_t>(list->chain.size());
  std::unordered_map<int32_t, int32_t> place;  // slot -> token of the KV index space
  for (int r = first; r < last; ++r) {
    for (int32_t i = plan.chain_begin[r]; i < plan.chain_begin[r + 1]; ++i) {
      const int32_t next = item->prefix + static_cast<int32_t>(place.size());
      if (!place.emplace(plan.chain[i], next).second) continue;
      list->chain.push_back(plan.chain[i]);
      list->chain_position.push_back(plan.prefix_length(r) + i - plan.chain_begin[r]);
    }
  }
  item->kv_end = item->prefix + static_cast<int32_t>(place.size());
  item->mask_begin = static_cast<int32_t>(list->masks.size());
  item->mask_tile = seen_by_all / kKvTile;
  item->mask_words = static_cast<int32_t>(CeilDiv64(item->kv_end, kKvTile)) - item->mask_tile;
  list->masks.resize(list->masks.size() + int64_t{item->rows} * item->mask_words);
  uint64_t* words = list->masks.data() + item->mask_begin;
  for (int r = item->first_row; r < end; ++r, words += item->mask_words) {
    const auto set = [&](int32_t token) {
      words[token / kKvTile - item->mask_tile] |= uint64_t{1} << token % kKvTile;
    };
    for (int32_t t = item->mask_tile * kKvTile; t < plan.prefix_length(r); ++t) set(t);
    for (int32_t i = plan.chain_begin[r]; i < plan.chain_begin[r + 1]; ++i) {
      set(place.at(plan.chain[i]));
    }
  }
}

// Row tiles of one segment and head lie beside each other: they read the same K and V.
void AddUnits(const StepPlan& plan, const WorkShape& shape, bool shared_chains, WorkList* list,
              std::vector<Unit> (*units)[kTileClasses]) {
  const int most_rows = kTileRows[shape.classes - 1] / shape.group;
  for (size_t s = 0; s < plan.segments.size(); ++s) {
    const Segment& segment = plan.segments[s];
    std::vector<AttentionItem> row_tiles;
    for (int begin = 0; begin < segment.rows; begin += most_rows) {
      AttentionItem item;
      item.first_row = segment.first_row + begin;
      item.rows = std::min(most_rows, segment.rows - begin);
      item.table_begin = plan.table_begin[s];
      const int first = shared_chains ? segment.first_row : item.first_row;
      const int last =
          shared_chains ? segment.first_row + segment.rows : item.first_row + item.rows;
      AddTokens(plan, first, last, &item, list);
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

// Lays the units end to end and cuts the line into equal parts, one for each worker.
class Cutter {
 public:
  Cutter(const std::vector<Unit>& units, int workers, int least_tiles, WorkList::OfClass* out)
      : workers_(workers), least_(least_tiles), out_(out) {
    for (const Unit& unit : units) left_ += unit.tiles() + kItemCost;
    const int64_t mean = units.empty() ? 0 : left_ / static_cast<int64_t>(units.size());
    cuts_cost_ = mean > 2 * (kItemCost + least_tiles);
    StartWorker();
  }

  // The items of a unit follow each other in `items`.
  void Add(const Unit& unit) {
    int64_t tile = 0;
    const int64_t tiles = unit.tiles();
    do {
      int64_t take = tiles - tile;
      const int64_t room = budget_ - used_ - kItemCost;
      if (!LastWorker() && take > least_ && take > room + least_ / 2) {
        take = std::min(room, tiles - tile - least_);  // nor may the rest be too small
        if (take < least_) {
          if (used_ > 0) {
            NextWorker();
            continue;
          }
          take = std::min<int64_t>(tiles - tile, least_);
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
  const int least_;
  WorkList::OfClass* out_;
  bool cuts_cost_ = false;  // units are long: most workers end inside a unit
  int worker_ = 0;
  int64_t left_ = 0;    // cost of what is not assigned to a worker yet
  int64_t budget_ = 0;  // cost that this worker may still take
  int64_t used_ = 0;
};

}  // namespace

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

WorkList MakeWorkList(const StepPlan& plan, const WorkShape& shape, bool shared_chains) {
  if (shape.exact) return MakeExactWorkList(plan, shape);
  WorkList list;
  std::vector<Unit> units[kTileClasses];
  AddUnits(plan, shape, shared_chains, &list, &units);
  for (int c = 0; c < kTileClasses; ++c) {
    Cutter cutter(units[c], shape.workers[c], shape.least_tiles, &list.classes[c]);
    for (const Unit& unit : units[c]) cutter.Add(unit);
    cutter.Finish();
    NumberSplits(c, shape.head_dim, &list);
  }
  return list;
}

}  // namespace coppice::kernels::cuda
