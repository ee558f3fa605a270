#include "lab/bench/cuda/draft_plan.h"

#include <algorithm>

#include "plan/step_plan.h"

namespace coppice::bench {
namespace {

constexpr int kSupport = 64;

int BlocksOf(int slots) { return (slots + kBlockSize - 1) / kBlockSize; }

coppice::ForestPlan::Forest OneForest(int request, const DraftShape& shape) {
  coppice::ForestPlan::Forest forest;
  forest.rule.kind = DeviceDrafting::Kind::kPicks;
  forest.rule.width = shape.width;
  forest.rule.support = kSupport;
  forest.rule.seed = static_cast<uint64_t>(request);
  forest.rule.beam_width = shape.beams;
  for (int root = 0; root < shape.roots; ++root) {
    forest.root_hash.push_back(static_cast<uint64_t>(request) << 8 | static_cast<uint64_t>(root));
    forest.root_score.push_back(-root);
  }
  for (int beam = 0; beam < shape.beams; ++beam) {
    forest.slot_root.push_back(beam % shape.roots);
    forest.slot_token.push_back(-1);
    forest.slot_log_prob.push_back(0);
  }
  return forest;
}

// The KV slots of one request's rows: those of the path that comes again, of the roots, then of each
// level.
class RequestSlots {
 public:
  RequestSlots(int first_block, const DraftShape& shape) : first_(first_block), shape_(shape) {}
  int32_t of(int level, int row) const {
    const int place = level == 0 ? row : shape_.roots + (level - 1) * shape_.width + row;
    return again(shape_.again) + place;
  }
  int32_t again(int row) const { return first_ * kBlockSize + row; }

 private:
  const int first_;
  const DraftShape& shape_;
};

// The end of a row, whose chain has been added.
void AddRow(int position, bool has_true_state, const DraftShape& shape, StepPlan* plan) {
  plan->token.push_back(0);
  plan->position.push_back(position);
  plan->slot.push_back(plan->chain.back());
  plan->chain_begin.push_back(static_cast<int32_t>(plan->chain.size()));
  if (shape.state_columns == 0) return;
  plan->state.push_back(-1);
  if (!has_true_state) return;
  plan->state.back() = static_cast<int32_t>(plan->states.size()) / shape.state_columns;
  plan->states.resize(plan->states.size() + shape.state_columns);
}

void AddRows(int level, const RequestSlots& slots, const DraftShape& shape, StepPlan* plan) {
  const int rows = level == 0 ? shape.roots : shape.width;
  plan->segments.push_back({plan->rows(), rows + (level == 0 ? shape.again : 0), shape.context});
  const auto add_path = [&](int length) {
    for (int i = 0; i < length; ++i) plan->chain.push_back(slots.again(i));
  };
  for (int row = 0; level == 0 && row < shape.again; ++row) {
    add_path(row + 1);
    AddRow(shape.context + row, /*has_true_state=*/true, shape, plan);
  }
  for (int row = 0; row < rows; ++row) {
    RowNeed need;
    need.form = RowNeed::Form::kTop;
    need.row = plan->rows();
    need.count = kSupport;
    plan->needs.push_back(need);
    add_path(shape.again);
    plan->chain.push_back(slots.of(0, row % shape.roots));
    for (int above = 1; above <= level; ++above) plan->chain.push_back(slots.of(above, row));
    AddRow(shape.context + shape.again + level, /*has_true_state=*/level == 0, shape, plan);
  }
}

}  // namespace

BenchForests DraftForests(const DraftShape& shape) {
  const int prefix_blocks = BlocksOf(shape.context);
  const int of_request =
      prefix_blocks + BlocksOf(shape.again + shape.roots + (shape.depth - 1) * shape.width);
  BenchForests result;
  result.blocks = int64_t{1} + shape.requests * of_request;
  for (int request = 0; request < shape.requests; ++request)
    result.plan.forests.push_back(OneForest(request, shape));
  for (int level = 0; level < shape.depth; ++level) {
    StepPlan& plan = result.plan.levels.emplace_back();
    plan.step = static_cast<uint64_t>(level) + 1;
    for (int request = 0; request < shape.requests; ++request) {
      const int first_block = 1 + request * of_request;
      coppice::ForestPlan::Level of_level;
      of_level.first_row = plan.rows() + (level == 0 ? shape.again : 0);
      of_level.first_need = static_cast<int32_t>(plan.needs.size());
      for (int block = 0; block < prefix_blocks; ++block) plan.table.push_back(first_block + block);
      plan.table_begin.push_back(static_cast<int32_t>(plan.table.size()));
      AddRows(level, RequestSlots(first_block + prefix_blocks, shape), shape, &plan);
      of_level.rows = plan.rows() - of_level.first_row;
      result.plan.forests[request].levels.push_back(of_level);
    }
  }
  return result;
}

}  // namespace coppice::bench
