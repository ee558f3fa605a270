// Steps of many requests of one shape, laid out in a paged pool in mixed order. Pure.
#pragma once

#include <cstdint>

#include "plan/step_plan.h"

namespace coppice::bench {

struct BenchPlan {
  StepPlan plan;
  int64_t blocks = 1;  // of the pool, the sink included
};

// Each request: a stable prefix of `context` tokens, then `rows` nodes of a forest of kBeams beams,
// one level after the other; a node sees the prefix, its ancestors and itself. The first `common`
// tokens of all prefixes, whole blocks, are in the same blocks.
inline constexpr int kBeams = 4;
BenchPlan ForestPlan(int requests, int context, int rows, int common = 0);

// One request of `beams` beams after a context: each has `own` tokens, the last of which is a row.
BenchPlan BeamPlan(int beams, int context, int own);

// One request, one row: the last of `context` tokens.
BenchPlan PlainPlan(int context);

// Every row is wanted, as the most likely tokens.
void NeedEveryRow(StepPlan* plan);
// Every row is wanted, as the draws of this many slots and the log-sum-exp: beam sampling.
void NeedDraws(int slots, StepPlan* plan);

}  // namespace coppice::bench
