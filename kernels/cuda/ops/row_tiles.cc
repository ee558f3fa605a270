#include "kernels/cuda/ops/row_tiles.h"

#include <algorithm>

#include "plan/prefix_order.h"

namespace coppice::kernels::cuda {
namespace {

// Blocks that segments must have in common before their rows pass together: less is not worth an
// item of other rows.
constexpr int32_t kLeastCommonBlocks = 8;
// What a segment's table may have beyond the common blocks, in multiples of these: its KV tiles
// pass by the rows of the other segments in vain, and each row has a mask of each.
constexpr int64_t kMostOwn = 4;
// The same in a model with windows, in tokens: no row tile can leave out what lies before the
// window of one of its rows alone.
constexpr int64_t kMostOwnWithWindows = 512;

class TileCutter {
 public:
  TileCutter(const StepPlan& plan, int most_rows) : plan_(plan), most_rows_(most_rows) {}

  void AddSegment(int32_t s) {
    const Segment& segment = plan_.segments[s];
    RowTileGroup group;
    for (int begin = 0; begin < segment.rows; begin += most_rows_) {
      TileRows tile;
      AddRows(s, segment.first_row + begin, std::min(most_rows_, segment.rows - begin), &tile);
      group.tiles.push_back(std::move(tile));
    }
    groups_.push_back(std::move(group));
  }

  // Joins segments that begin with the same blocks, in the order of their tables.
  void AddJoined() {
    const PrefixOrder order = OrderByPrefix(plan_);
    const size_t count = order.segments.size();
    for (size_t begin = 0, end = 0; begin < count; begin = end) {
      int rows = plan_.segments[order.segments[begin]].rows;
      int32_t common = TableTokens(order.segments[begin]), longest = common;
      for (end = begin + 1; end < count; ++end) {
        const int32_t s = order.segments[end];
        const int32_t next = std::min({common, order.common[end] * kBlockSize, LeastSeen(s),
                                       LeastSeen(order.segments[begin])});
        const int32_t longer = std::max(longest, TableTokens(s));
        if (rows + plan_.segments[s].rows > most_rows_ || !Pays(next / kBlockSize, longer)) break;
        common = next / kBlockSize * kBlockSize;
        longest = longer;
        rows += plan_.segments[s].rows;
      }
      if (end == begin + 1) {
        AddSegment(order.segments[begin]);
        continue;
      }
      TileRows tile;
      for (size_t i = begin; i < end; ++i) {
        const int32_t s = order.segments[i];
        AddRows(s, plan_.segments[s].first_row, plan_.segments[s].rows, &tile);
      }
      tile.common = common;
      groups_.push_back({{std::move(tile)}});
    }
  }

  std::vector<RowTileGroup> Take() { return std::move(groups_); }

 private:
  bool Pays(int32_t common_blocks, int32_t longest) const {
    const int64_t own = longest - int64_t{common_blocks} * kBlockSize;
    return common_blocks >= kLeastCommonBlocks && own <= kMostOwn * common_blocks * kBlockSize &&
           (plan_.groups.empty() || own <= kMostOwnWithWindows);
  }
  int32_t TableTokens(int32_t s) const {
    int32_t tokens = 0;
    for (int r = 0; r < plan_.segments[s].rows; ++r)
      tokens = std::max(tokens, plan_.prefix_length(plan_.segments[s].first_row + r));
    return tokens;
  }
  int32_t LeastSeen(int32_t s) const {
    int32_t tokens = INT32_MAX;
    for (int r = 0; r < plan_.segments[s].rows; ++r)
      tokens = std::min(tokens, plan_.prefix_length(plan_.segments[s].first_row + r));
    return tokens;
  }
  void AddRows(int32_t s, int first, int count, TileRows* tile) const {
    for (int row = first; row < first + count; ++row) {
      const int32_t prefix = plan_.prefix_length(row);
      tile->common = tile->rows.empty() ? prefix : std::min(tile->common, prefix);
      tile->longest = std::max(tile->longest, prefix);
      tile->rows.push_back(row);
      tile->segments.push_back(s);
    }
  }

  const StepPlan& plan_;
  const int most_rows_;
  std::vector<RowTileGroup> groups_;
};

}  // namespace

std::vector<RowTileGroup> CutIntoRowTiles(const StepPlan& plan, int most_rows, bool join) {
  TileCutter cutter(plan, most_rows);
  if (join && plan.segments.size() > 1) {
    cutter.AddJoined();
  } else {
    for (size_t s = 0; s < plan.segments.size(); ++s) cutter.AddSegment(static_cast<int32_t>(s));
  }
  return cutter.Take();
}

}  // namespace coppice::kernels::cuda
