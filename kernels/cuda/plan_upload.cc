#include "kernels/cuda/plan_upload.h"

#include <cstdint>
#include <vector>

#include "base/status.h"

namespace coppice::kernels::cuda {
namespace {

constexpr char kWhat[] = "the plan of a step";

// What follows from the plan row by row.
struct RowFacts {
  explicit RowFacts(const StepPlan& plan) : segment(plan.rows()), prefix_len(plan.rows()) {
    for (size_t s = 0; s < plan.segments.size(); ++s) {
      const Segment& of = plan.segments[s];
      for (int row = of.first_row; row < of.first_row + of.rows; ++row) {
        segment[row] = static_cast<int32_t>(s);
        prefix_len[row] = plan.prefix_length(row);
      }
    }
    for (const RowNeed& need : plan.needs) need_row.push_back(need.row);
  }

  std::vector<int32_t> segment, prefix_len;  // [rows]
  std::vector<int32_t> need_row;             // [needs]
};

DeviceStep Place(const StepPlan& plan, const RowFacts& facts, BlockLayout* layout) {
  DeviceStep step;
  step.token = layout->Add(plan.token);
  step.position = layout->Add(plan.position);
  step.slot = layout->Add(plan.slot);
  step.segment = layout->Add(facts.segment);
  step.prefix_len = layout->Add(facts.prefix_len);
  step.chain_begin = layout->Add(plan.chain_begin);
  step.chain = layout->Add(plan.chain);
  step.table_begin = layout->Add(plan.table_begin);
  step.table = layout->Add(plan.table);
  step.need_row = layout->Add(facts.need_row);
  step.commits = layout->Add(plan.commits);
  step.rows = plan.rows();
  step.needs = static_cast<int32_t>(plan.needs.size());
  step.commit_count = static_cast<int32_t>(plan.commits.size());
  return step;
}

}  // namespace

absl::Status PlanUpload::Upload(const StepPlan& plan, DeviceStream* stream) {
  const RowFacts facts(plan);
  DeviceStep step;
  COPPICE_RETURN_IF_ERROR(blocks_[next_].Upload(
      stream, kWhat, [&](BlockLayout* layout) { step = Place(plan, facts, layout); }));
  next_ = 1 - next_;
  step_ = step;
  return absl::OkStatus();
}

}  // namespace coppice::kernels::cuda
