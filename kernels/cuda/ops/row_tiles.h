// Which rows of a step pass together over their tokens in tiled attention: those of one segment, or
// of several segments whose block tables begin with the same blocks, so that these are read once
// for all of them. Pure. For makers of work lists.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/step_plan.h"

namespace coppice::kernels::cuda {

// Of one row tile (work_list.h).
struct TileRows {
  std::vector<int32_t> rows;      // of the plan
  std::vector<int32_t> segments;  // [rows]
  // Tokens with which the contexts of all rows begin, in the same places of the pool.
  int32_t common = 0;
  // Tokens of the segments' tables that a row sees.
  int32_t longest = 0;

  bool joined() const { return segments.front() != segments.back(); }
};

// The row tiles of a step, of at most `most_rows` rows each. Tiles of one group follow each other
// and read the same tokens.
struct RowTileGroup {
  std::vector<TileRows> tiles;
};
// join: rows of several segments may be in one tile.
std::vector<RowTileGroup> CutIntoRowTiles(const StepPlan& plan, int most_rows, bool join);

}  // namespace coppice::kernels::cuda
