#include "kernels/cuda/forest_steps.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace coppice::kernels::cuda {
namespace {

constexpr char kWhat[] = "draft forests on the device";

}  // namespace

absl::Status ForestSteps::Begin(const ForestPlan& plan) {
  if (plan.levels.empty() || plan.levels.size() > kMostLevels) {
    return absl::InvalidArgumentError(absl::StrCat("forests of ", plan.levels.size(),
                                                   " levels, the device grows 1 to ", kMostLevels));
  }
  plan_ = &plan;
  const size_t forests = plan.forests.size();
  COPPICE_RETURN_IF_ERROR(GrowBuffer(forests * sizeof(ForestState), kWhat, &states_));
  COPPICE_RETURN_IF_ERROR(GrowBuffer(forests * sizeof(ForestState), kWhat, &host_));
  return GrowBuffer(forests * sizeof(LevelScratch), kWhat, &scratch_);
}

absl::Status ForestSteps::Stage(int level, Pass* pass, CudaOps* ops, DeviceStream* stream) {
  const StepPlan& step = plan_->levels[level];
  OfLevel& of = levels_[level];
  const StepShape shape = PaddedShape(step.rows(), static_cast<int64_t>(step.needs.size()));
  ops->Begin(step, shape);
  pass->Body(ops);
  of.body = ops->Take();
  pass->Head(ops);
  of.head = ops->Take();
  COPPICE_RETURN_IF_ERROR(ops->failure());
  COPPICE_CHECK(ops->selection() != nullptr);
  const LogitRows rows = *ops->selection();
  of.list_plan = MakeListPlan(step, rows, /*always=*/true);
  for (size_t i = 0; i < step.needs.size(); ++i) {
    if (of.list_plan.IsListed(static_cast<int>(i))) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("a level of a forest: need ", i, " cannot be listed"));
  }
  COPPICE_RETURN_IF_ERROR(of.lists.MakeRoom(&of.list_plan, rows));
  of.tasks.emplace(*plan_, level, of.list_plan, static_cast<ForestState*>(states_.data()),
                   static_cast<LevelScratch*>(scratch_.data()));
  if (level > 0) of.body.insert(of.body.begin(), PlaceLevelsOp());
  of.head.push_back(ChooseLevelsOp());
  return of.upload.Stage(step, shape, ops->work(), &of.lists, stream, &*of.tasks);
}

// A header's place does not depend on the sizes of the levels, so that the graphs of earlier forests
// serve this one.
absl::StatusOr<ForestSteps::Lists> ForestSteps::Upload(Pass* pass, CudaOps* ops,
                                                       DeviceStream* stream) {
  const int levels = static_cast<int>(plan_->levels.size());
  for (int l = 0; l < levels; ++l) COPPICE_RETURN_IF_ERROR(Stage(l, pass, ops, stream));
  COPPICE_RETURN_IF_ERROR(block_.Upload(stream, "the plans of draft forests", [&](auto* layout) {
    StepHeader* const headers = layout->template Reserve<StepHeader>(levels);
    for (int l = 0; l < levels; ++l) {
      const StepHeader placed = levels_[l].upload.Place(layout);
      if (headers != nullptr) headers[l] = placed;
    }
  }));
  Lists lists;
  for (int l = 0; l < levels; ++l) {
    OfLevel& of = levels_[l];
    of.upload.Bind(static_cast<const StepHeader*>(block_.device()) + l);
    OpList body = {of.upload.step(), of.upload.work(), {}, std::move(of.body)};
    if (l > 0) body.levels = of.upload.levels();
    lists.levels.push_back(std::move(body));
    OpList head = {of.upload.step(), {}, of.upload.lists(), std::move(of.head), of.upload.levels()};
    head.step.rows = 0;  // the head uses needs alone
    (l + 1 < levels ? lists.levels.emplace_back() : lists.last_head) = std::move(head);
  }
  return lists;
}

absl::Status ForestSteps::Download(DeviceStream* stream) {
  return stream->CopyToHost(host_.data(), states_.data(),
                            plan_->forests.size() * sizeof(ForestState), kWhat);
}

std::vector<GrownForest> ForestSteps::Grown() const {
  const auto* states = reinterpret_cast<const ForestState*>(host_.data());
  std::vector<GrownForest> grown;
  for (size_t f = 0; f < plan_->forests.size(); ++f) grown.push_back(ReadGrown(states[f]));
  return grown;
}

}  // namespace coppice::kernels::cuda
