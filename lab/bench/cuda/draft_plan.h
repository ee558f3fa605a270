// Draft forests of many requests of one shape, whose levels the device chooses. Pure.
#pragma once

#include <cstdint>

#include "plan/forest_plan.h"

namespace coppice::bench {

struct DraftShape {
  int requests = 1, context = 0;
  int roots = 4, width = 7, depth = 4;  // with the roots, 32 rows for the target
  int beams = 4;                        // that the roots, which are distinct, stand for
  // For a head on states: columns of a state, and rows of an accepted path before the roots that come
  // again, now with their true states. 0: the draft takes none.
  int state_columns = 0, again = 0;
};

struct BenchForests {
  coppice::ForestPlan plan;
  int64_t blocks = 1;  // of the pool, the sink included
};

// The roots lie behind a stable prefix. Every slot of beam sampling draws its own continuation,
// from the 64 most likely tokens.
BenchForests DraftForests(const DraftShape& shape);

}  // namespace coppice::bench
