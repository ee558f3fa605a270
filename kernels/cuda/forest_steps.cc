#include "kernels/cuda/forest_steps.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace coppice::kernels::cuda {
namespace {

constexpr char kWhat[] = "draft forests on the device";

// Twice what is asked for, so that it seldom grows.
template <class Buffer>
absl::Status Grow(size_t bytes, Buffer* buffer) {
  if (buffer->size() >= bytes) return absl::OkStatus();
  COPPICE_ASSIGN_OR_RETURN(*buffer, Buffer::Allocate(2 * bytes, kWhat));
  return absl::OkStatus();
}

}  // namespace

absl::Status ForestSteps::Begin(const ForestPlan& plan) {
  if (plan.levels.empty() || plan.levels.size() > kMostLevels) {
    return absl::InvalidArgumentError(absl::StrCat("forests of ", plan.levels.size(),
                                                   " levels, the device grows 1 to ", kMostLevels));
  }
  plan_ = &plan;
  const size_t forests = plan.forests.size();
  COPPICE_RETURN_IF_ERROR(Grow(forests * sizeof(ForestState), &states_));
  COPPICE_RETURN_IF_ERROR(Grow(forests * sizeof(ForestState), &host_));
  return Grow(forests * sizeof(LevelScratch), &scratch_);
}

absl::StatusOr<ForestSteps::Level> ForestSteps::Upload(int level, Pass* pass, CudaOps* ops,
                                                       DeviceStream* stream) {
  const StepPlan& step = plan_->levels[level];
  OfLevel& of = levels_[level];
  const StepShape shape = PaddedShape(step.rows(), static_cast<int64_t>(step.needs.size()));
  ops->Begin(step, shape);
  pass->Body(ops);
  std::vector<DeviceOp> body = ops->Take();
  pass->Head(ops);
  std::vector<DeviceOp> head = ops->Take();
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
  LevelTasks tasks(*plan_, level, of.list_plan, static_cast<ForestState*>(states_.data()),
                   static_cast<LevelScratch*>(scratch_.data()));
  COPPICE_RETURN_IF_ERROR(of.upload.Upload(step, shape, ops->work(), &of.lists, stream, &tasks));
  if (level > 0) body.insert(body.begin(), PlaceLevelsOp());
  head.push_back(ChooseLevelsOp());
  Level out;
  out.body = {of.upload.step(), of.upload.work(), {}, std::move(body)};
  if (level > 0) out.body.levels = of.upload.levels();
  out.head = {of.upload.step(), {}, of.upload.lists(), std::move(head), of.upload.levels()};
  out.head.step.rows = 0;  // the head uses needs alone
  return out;
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
