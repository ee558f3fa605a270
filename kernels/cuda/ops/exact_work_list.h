// The work of tiled attention in exact mode: a list in which a row's result is summed in an order
// that depends on the row's own tokens alone. Pure. Called by MakeWorkList.
//
// A token at position p of a row's context stands at place p % 64 of a KV tile, whether it lies in
// the table or in a chain. KV tiles that every row of a row tile sees whole come first. Behind them
// each row finds the rest of its context in tiles of its own, in order of position; rows share such
// a tile where one's tokens are the beginning of the other's. So rows of several segments may make
// a row tile (row_tiles.h), as those of one. To a row that sees nothing of a tile it adds nothing:
// weights of zero, and a maximum that stays. Items are cut where chunks of positions begin
// (kExactChunkTiles), wherever the row tile ends, and are merged in order.
#pragma once

#include "kernels/cuda/ops/work_list.h"
#include "plan/step_plan.h"

namespace coppice::kernels::cuda {

// KV tiles of a chunk. More of them: fewer partial results; fewer of them: more blocks that share a
// long context.
inline constexpr int kExactChunkTiles = 16;

WorkList MakeExactWorkList(const StepPlan& plan, const WorkShape& shape);

}  // namespace coppice::kernels::cuda
