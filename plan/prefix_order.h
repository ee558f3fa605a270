// The block tables of a plan in an order in which those that begin with the same blocks follow each
// other: requests that share a prefix have its blocks in common (model/kv/block_manager). Attention
// reads such blocks once for all (kernels/cpu, kernels/cuda), and model/memory_traffic counts them
// once. Pure. Blocks, not pages: what has the same block has the same page in every group of
// layers.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/step_plan.h"

namespace coppice {

struct PrefixOrder {
  std::vector<int32_t> segments;  // [segments] ascending by their tables, compared block by block
  // [segments] the leading blocks that segments[i] has in common with segments[i - 1], which are as
  // many as with any earlier one, or more. 0 for i = 0.
  std::vector<int32_t> common;
};

PrefixOrder OrderByPrefix(const StepPlan& plan);

}  // namespace coppice
