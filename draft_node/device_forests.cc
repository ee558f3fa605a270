#include "draft_node/device_forests.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/status.h"

namespace coppice::draft_node {

absl::Status SubmitForests(absl::Span<ForestBuilder* const> builders, model::ModelRunner* runner) {
  ForestPlan plan;
  int depth = 0;
  for (const ForestBuilder* builder : builders) {
    plan.forests.push_back(builder->DeviceForest());
    depth = std::max(depth, builder->depth());
  }
  for (int level = 0; level < depth; ++level) {
    model::StepBuilder step = runner->NewStep();
    std::vector<KvCopy> due = std::exchange(*runner->commits(), {});
    for (size_t i = 0; i < builders.size(); ++i) {
      if (level >= builders[i]->depth()) continue;
      COPPICE_RETURN_IF_ERROR(builders[i]->PlanLevel(&step, runner->commits(), &plan.forests[i]));
    }
    if (step.empty()) {  // no forest got that far
      *runner->commits() = std::move(due);
      break;
    }
    plan.levels.push_back(step.Take());
    plan.levels.back().commits = std::move(due);
  }
  return runner->SubmitForests(std::move(plan));
}

absl::StatusOr<std::vector<absl::Status>> WaitForForests(absl::Span<ForestBuilder* const> builders,
                                                         model::ModelRunner* runner) {
  COPPICE_ASSIGN_OR_RETURN(const std::vector<GrownForest> grown, runner->WaitForests());
  std::vector<absl::Status> results;
  for (size_t i = 0; i < builders.size(); ++i) results.push_back(builders[i]->TakeGrown(grown[i]));
  return results;
}

}  // namespace coppice::draft_node
