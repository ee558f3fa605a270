#include "lab/bench/cuda/forest_plan.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

namespace coppice::bench {
namespace {

int BlocksOf(int slots) { return (slots + kBlockSize - 1) / kBlockSize; }

// The blocks 1 .. count in mixed order.
std::vector<int32_t> MixedBlocks(int count) {
  std::vector<int32_t> blocks(count);
  std::iota(blocks.begin(), blocks.end(), 1);
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937_64(1));
  return blocks;
}

void AddRow(int position, int32_t slot, StepPlan* plan) {
  plan->token.push_back(plan->rows() % 1000);
  plan->position.push_back(position);
  plan->slot.push_back(slot);
  plan->chain_begin.push_back(static_cast<int32_t>(plan->chain.size()));
}

}  // namespace

BenchPlan ForestPlan(int requests, int context, int rows, int common) {
  const int common_blocks = std::min(common, context) / kBlockSize;
  const int own_blocks = BlocksOf(context) - common_blocks, scratch_blocks = BlocksOf(rows);
  const int all_blocks = common_blocks + requests * (own_blocks + scratch_blocks);
  const std::vector<int32_t> blocks = MixedBlocks(all_blocks);
  BenchPlan result;
  result.blocks = all_blocks + 1;
  StepPlan& plan = result.plan;
  plan.step = 1;
  auto next = blocks.begin() + common_blocks;
  for (int request = 0; request < requests; ++request) {
    plan.segments.push_back({plan.rows(), rows, context});
    plan.table.insert(plan.table.end(), blocks.begin(), blocks.begin() + common_blocks);
    plan.table.insert(plan.table.end(), next, next + own_blocks);
    plan.table_begin.push_back(static_cast<int32_t>(plan.table.size()));
    next += own_blocks;
    const auto slot = [&](int node) {
      return next[node / kBlockSize] * kBlockSize + node % kBlockSize;
    };
    for (int node = 0; node < rows; ++node) {
      for (int ancestor = node % kBeams; ancestor <= node; ancestor += kBeams)
        plan.chain.push_back(slot(ancestor));
      AddRow(context + node / kBeams, slot(node), &plan);
    }
    next += scratch_blocks;
  }
  return result;
}

BenchPlan BeamPlan(int beams, int context, int own) {
  const int prefix_blocks = BlocksOf(context), own_blocks = BlocksOf(beams * own);
  const std::vector<int32_t> blocks = MixedBlocks(prefix_blocks + own_blocks);
  BenchPlan result;
  result.blocks = static_cast<int64_t>(blocks.size()) + 1;
  StepPlan& plan = result.plan;
  plan.step = 1;
  plan.segments = {{0, beams, context}};
  plan.table.assign(blocks.begin(), blocks.begin() + prefix_blocks);
  plan.table_begin = {0, prefix_blocks};
  const auto slot = [&](int place) {
    return blocks[prefix_blocks + place / kBlockSize] * kBlockSize + place % kBlockSize;
  };
  for (int beam = 0; beam < beams; ++beam) {
    for (int token = 0; token < own; ++token) plan.chain.push_back(slot(token * beams + beam));
    AddRow(context + own - 1, plan.chain.back(), &plan);
  }
  return result;
}

BenchPlan PlainPlan(int context) {
  const std::vector<int32_t> blocks = MixedBlocks(BlocksOf(context));
  BenchPlan result;
  result.blocks = static_cast<int64_t>(blocks.size()) + 1;
  StepPlan& plan = result.plan;
  plan.step = 1;
  plan.segments = {{0, 1, context}};
  plan.table = blocks;
  plan.table_begin = {0, static_cast<int32_t>(blocks.size())};
  AddRow(context - 1, blocks.back() * kBlockSize + (context - 1) % kBlockSize, &plan);
  return result;
}

void NeedEveryRow(StepPlan* plan) {
  for (int row = 0; row < plan->rows(); ++row) {
    RowNeed need;
    need.form = RowNeed::Form::kTop;
    need.row = row;
    need.count = 8;
    plan->needs.push_back(need);
  }
}

void NeedDraws(int slots, StepPlan* plan) {
  for (int row = 0; row < plan->rows(); ++row) {
    RowNeed need;
    need.form = RowNeed::Form::kGumbel;
    need.row = row;
    need.count = 1;
    need.slots = (uint32_t{1} << slots) - 1;
    need.seed = 1;
    need.path_hash = static_cast<uint64_t>(row);
    need.sums = true;
    plan->needs.push_back(need);
  }
}

}  // namespace coppice::bench
