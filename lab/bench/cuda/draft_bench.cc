// Draft models whose forests the device grows, and rounds of decoding with drafts: the forests,
// then the step of the target that verifies them, against plain steps.
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "lab/bench/cuda/bench_parts.h"
#include "lab/bench/cuda/device_step.h"
#include "lab/bench/cuda/draft_plan.h"
#include "lab/bench/cuda/forest_plan.h"
#include "lab/bench/cuda/host_timer.h"
#include "lab/bench/cuda/llama_model.h"
#include "lab/bench/cuda/llama_shape.h"
#include "lab/bench/cuda/targets.h"
#include "plan/plan_check.h"

namespace coppice::bench {
namespace {

constexpr int kContext = kContexts[0], kMostRows = kRoundShapes[0].rows();

// Room that every plan below needs.
struct Room {
  int max_rows;
  int64_t blocks;
};

Room DraftRoom() {
  const DraftShape most = {kManyRequests, kContext};
  return {kManyRequests * most.width, DraftForests(most).blocks};
}
Room TargetRoom() {
  return {kManyRequests * kMostRows, ForestPlan(kManyRequests, kContext, kMostRows).blocks};
}

absl::StatusOr<std::unique_ptr<LlamaModel>> MakeModel(const ModelShape& shape, const Room& room,
                                                      const Report& report, DeviceTimer* timer) {
  return LlamaModel::Create({room.max_rows, room.blocks, /*filled=*/true, /*overlap=*/true,
                             /*exact=*/false, report.tuning_cache(), shape},
                            timer->stream());
}

absl::Status Check(const StepPlan& plan, const Room& room, const ModelShape& shape) {
  return CheckPlan(
      plan, {room.max_rows, shape.vocabulary, kMaxPositions, room.blocks, /*needs_before=*/0});
}

absl::Status CheckForests(const coppice::ForestPlan& plan, const ModelShape& shape) {
  for (const StepPlan& level : plan.levels)
    COPPICE_RETURN_IF_ERROR(Check(level, DraftRoom(), shape));
  return absl::OkStatus();
}

// What a pass of few rows reads.
double PassBytes(const ModelShape& shape, int rows) {
  return static_cast<double>(shape.weight_bytes()) +
         static_cast<double>(shape.kv_token_bytes()) * (kContext + rows);
}

absl::Status BenchOneDraft(const ModelShape& shape, Report* report, DeviceTimer* timer) {
  const DraftShape forest = {1, kContext};
  const BenchForests bench = DraftForests(forest);
  COPPICE_RETURN_IF_ERROR(CheckForests(bench.plan, shape));
  const StepPlan& pass_plan = bench.plan.levels.back();
  const BenchCase pass = {
      "draft", absl::StrCat(shape.name, ", pass of ", pass_plan.rows(), " rows at ", kContext),
      PassBytes(shape, pass_plan.rows())};
  const BenchCase levels = {"draft",
                            absl::StrCat(shape.name, ", forest of ", forest.depth, " passes"),
                            forest.depth * pass.bytes};
  if (!report->Wants(pass)) {
    report->Wants(levels);
    return absl::OkStatus();
  }
  COPPICE_ASSIGN_OR_RETURN(const auto draft, MakeModel(shape, DraftRoom(), *report, timer));
  COPPICE_ASSIGN_OR_RETURN(const StepTiming timing,
                           TimeSteps(pass_plan, /*graphs=*/true, draft.get()));
  report->Add(pass, timing.step);
  COPPICE_ASSIGN_OR_RETURN(
      const std::unique_ptr<DeviceStep> step,
      DeviceStep::Create(&pass_plan, draft.get(), report->tuning_cache(), timer));
  COPPICE_ASSIGN_OR_RETURN(const Timing device, step->Time());
  report->Add({"draft", absl::StrCat(pass.name, ", of it the device"), pass.bytes}, device);
  COPPICE_ASSIGN_OR_RETURN(const Timing grown, TimeForests(bench.plan, draft.get()));
  report->Add(levels, grown);
  return absl::OkStatus();
}

struct TargetStep {
  StepPlan plan;
  double bytes;  // weights once, and every request's context
};

absl::StatusOr<TargetStep> StepOf(int requests, int context, int rows, const Room& room) {
  TargetStep step;
  step.plan = ForestPlan(requests, context, rows).plan;
  NeedDraws(kBeams, &step.plan);
  step.bytes = static_cast<double>(kTarget.weight_bytes()) +
               static_cast<double>(kTarget.kv_token_bytes()) * requests * (context + rows);
  COPPICE_RETURN_IF_ERROR(Check(step.plan, room, kTarget));
  return step;
}

absl::Status BenchTarget(const std::string& name, const TargetStep& step, LlamaModel* target,
                         Report* report) {
  const BenchCase timed = {"round", name, step.bytes};
  if (!report->Wants(timed)) return absl::OkStatus();
  COPPICE_ASSIGN_OR_RETURN(const StepTiming timing, TimeSteps(step.plan, /*graphs=*/true, target));
  report->Add(timed, timing.step);
  return absl::OkStatus();
}

absl::Status BenchPlain(int requests, LlamaModel* target, Report* report) {
  COPPICE_ASSIGN_OR_RETURN(const TargetStep step, StepOf(requests, kContext, kRoots, TargetRoom()));
  return BenchTarget(absl::StrCat(requests, " x plain"), step, target, report);
}

// Steps of kMostRequests without drafts, and with drafts as if those took no time.
absl::Status BenchMostRequests(int context, Report* report, DeviceTimer* timer) {
  const int rows = kNarrowShape.rows();
  const Room room = {kMostRequests * rows, ForestPlan(kMostRequests, context, rows).blocks};
  COPPICE_ASSIGN_OR_RETURN(const TargetStep plain, StepOf(kMostRequests, context, kRoots, room));
  COPPICE_ASSIGN_OR_RETURN(const TargetStep verify, StepOf(kMostRequests, context, rows, room));
  const std::string at = absl::StrCat(" at ", context);
  std::unique_ptr<LlamaModel> target;
  if (!report->listing()) {
    absl::StatusOr<std::unique_ptr<LlamaModel>> made = MakeModel(kTarget, room, *report, timer);
    if (absl::IsResourceExhausted(made.status())) {
      absl::PrintF("round: not measured with %d requests%s: %s\n", kMostRequests, at,
                   made.status().message());
      return absl::OkStatus();
    }
    COPPICE_RETURN_IF_ERROR(made.status());
    target = *std::move(made);
  }
  const std::string name = absl::StrCat(kMostRequests, " x ");
  COPPICE_RETURN_IF_ERROR(
      BenchTarget(absl::StrCat(name, "plain", at), plain, target.get(), report));
  return BenchTarget(absl::StrCat(name, rows, " rows", at), verify, target.get(), report);
}

absl::Status BenchRound(int requests, const RoundShape& round, const ModelShape& shape,
                        LlamaModel* draft, LlamaModel* target, Report* report) {
  COPPICE_ASSIGN_OR_RETURN(const TargetStep step,
                           StepOf(requests, kContext, round.rows(), TargetRoom()));
  DraftShape forest = {requests, kContext};
  forest.roots = kRoots;
  forest.width = round.width;
  forest.depth = round.depth;
  const BenchForests forests = DraftForests(forest);
  COPPICE_RETURN_IF_ERROR(CheckForests(forests.plan, shape));
  const BenchCase timed = {
      "round", absl::StrCat(requests, " x ", round.rows(), " rows, drafted by ", shape.name),
      step.bytes + forest.depth * PassBytes(shape, 0)};
  if (!report->Wants(timed)) return absl::OkStatus();
  COPPICE_ASSIGN_OR_RETURN(const Timing timing, TimeRounds(forests.plan, draft, step.plan, target));
  report->Add(timed, timing);
  return absl::OkStatus();
}

absl::Status BenchDraftedRounds(Report* report, DeviceTimer* timer) {
  std::unique_ptr<LlamaModel> target;
  if (!report->listing()) {
    COPPICE_ASSIGN_OR_RETURN(target, MakeModel(kTarget, TargetRoom(), *report, timer));
  }
  for (const int requests : {1, kManyRequests})
    COPPICE_RETURN_IF_ERROR(BenchPlain(requests, target.get(), report));
  for (int d = 0; d < kDraftsOfTarget; ++d) {
    std::unique_ptr<LlamaModel> draft;
    if (!report->listing()) {
      COPPICE_ASSIGN_OR_RETURN(draft, MakeModel(kDrafts[d], DraftRoom(), *report, timer));
    }
    for (const int requests : {1, kManyRequests}) {
      for (const RoundShape& round : kRoundShapes) {
        COPPICE_RETURN_IF_ERROR(
            BenchRound(requests, round, kDrafts[d], draft.get(), target.get(), report));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status BenchDrafts(Report* report, DeviceTimer* timer) {
  for (const ModelShape& shape : kDrafts)
    COPPICE_RETURN_IF_ERROR(BenchOneDraft(shape, report, timer));
  return absl::OkStatus();
}

absl::Status BenchRounds(Report* report, DeviceTimer* timer) {
  COPPICE_RETURN_IF_ERROR(BenchDraftedRounds(report, timer));
  for (const int context : kContexts)
    COPPICE_RETURN_IF_ERROR(BenchMostRequests(context, report, timer));
  return absl::OkStatus();
}

}  // namespace coppice::bench
