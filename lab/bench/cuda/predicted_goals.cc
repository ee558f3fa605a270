#include "lab/bench/cuda/predicted_goals.h"

#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "lab/bench/cuda/draft_plan.h"
#include "lab/bench/cuda/forest_plan.h"
#include "lab/bench/cuda/host_timer.h"
#include "lab/bench/cuda/llama_shape.h"
#include "lab/bench/cuda/targets.h"

namespace coppice::bench {
namespace {

constexpr int kMaxRows = kManyRequests * 34;

std::string RoundName(int requests, const RoundShape& round) {
  return absl::StrCat("round, ", requests, " x ", round.rows(), " rows");
}

class GoalPredictor {
 public:
  GoalPredictor(const DeviceModel& device, kernels::cuda::DeviceStream* stream)
      : device_(device), stream_(stream) {
    low_.bandwidth = device.optimistic.bandwidth;
    high_.bandwidth = device.pessimistic.bandwidth;
  }

  absl::Status Target() {
    const int64_t blocks = ForestPlan(kManyRequests, kContexts[1], 32).blocks;
    COPPICE_ASSIGN_OR_RETURN(const auto target, Model(kTarget, blocks));
    const std::string at = absl::StrCat(" at ", kContexts[0]);
    StepPlan plain = PlainPlan(kContexts[0]).plan;
    StepPlan verify = ForestPlan(1, kContexts[0], 34).plan;
    NeedEveryRow(&plain);
    NeedEveryRow(&verify);
    COPPICE_RETURN_IF_ERROR(Step(absl::StrCat("step, plain, 1 rows", at), plain, target.get()));
    COPPICE_RETURN_IF_ERROR(Step(absl::StrCat("step, forest, 34 rows", at), verify, target.get()));
    for (const StepPlan* plan : {&plain, &verify}) {
      COPPICE_ASSIGN_OR_RETURN(const StepTiming host,
                               TimeSteps(*plan, /*graphs=*/true, target.get()));
      std::printf(
          "Submit of %d rows: %.0f us of this machine's processor, the runtime's calls simulated\n",
          plan->rows(), host.submit.us);
    }
    for (const int requests : {1, kManyRequests}) {
      StepPlan rows = ForestPlan(requests, kContexts[0], kRoots).plan;
      NeedDraws(kBeams, &rows);
      COPPICE_RETURN_IF_ERROR(
          Step(absl::StrCat("round, ", requests, " x plain"), rows, target.get()));
      for (const RoundShape& round : kRoundShapes) {
        StepPlan forest = ForestPlan(requests, kContexts[0], round.rows()).plan;
        NeedDraws(kBeams, &forest);
        COPPICE_RETURN_IF_ERROR(Step(RoundName(requests, round), forest, target.get()));
      }
    }
    StepPlan deep = ForestPlan(kManyRequests, kContexts[1], 32).plan;
    NeedEveryRow(&deep);
    COPPICE_ASSIGN_OR_RETURN(const PredictedStep step, PredictStep(deep, device_, target.get()));
    const double kv_bytes = static_cast<double>(kTarget.kv_token_bytes()) / kTarget.layers *
                            kManyRequests * (kContexts[1] + 32);
    const auto layer = [](double ms, double gap_us) { return ms / kTarget.layers + gap_us / 1e3; };
    Set(absl::StrCat("attention, 8 x 32 rows over ", kContexts[1], " tokens, one layer"),
        {layer(step.attention.low, device_.optimistic.gap_us),
         layer(step.attention.high, device_.pessimistic.gap_us)},
        kv_bytes);
    return absl::OkStatus();
  }

  absl::Status Draft(const ModelShape& shape, bool of_target) {
    const int64_t blocks = DraftForests({kManyRequests, kContexts[0]}).blocks;
    COPPICE_ASSIGN_OR_RETURN(const auto draft, Model(shape, blocks));
    const BenchForests one = DraftForests({1, kContexts[0]});
    COPPICE_RETURN_IF_ERROR(Step(absl::StrCat("draft, ", shape.name, ", pass of 7 rows at ",
                                              kContexts[0], ", of it the device"),
                                 one.plan.levels.back(), draft.get()));
    for (const int requests : {1, kManyRequests}) {
      for (const RoundShape& round : kRoundShapes) {
        if (!of_target) continue;
        DraftShape forest = {requests, kContexts[0]};
        forest.roots = kRoots;
        forest.width = round.width;
        forest.depth = round.depth;
        const BenchForests forests = DraftForests(forest);
        COPPICE_ASSIGN_OR_RETURN(const PredictedStep grown,
                                 PredictForests(forests.plan, device_, draft.get()));
        absl::PrintF("forests of %d x %d levels of %d nodes, %s: %d launches, %s ms\n", requests,
                     forest.depth, forest.width, shape.name, grown.launches,
                     Text(grown.total_ms()));
        const std::string verify = RoundName(requests, round);
        Set(absl::StrCat(verify, ", drafted by ", shape.name), grown.total_ms() + ms_[verify]);
      }
    }
    return absl::OkStatus();
  }

  void Print() const {
    std::printf(
        "\nUnder optimistic, then pessimistic assumptions:\n\n| goal | bound | predicted "
        "|\n|---|---|---|\n");
    const std::vector<Goal> low = GoalsOf(low_), high = GoalsOf(high_);
    for (size_t i = 0; i < low.size(); ++i) {
      const Goal& goal = low[i];
      std::string predicted = "not predicted";
      if (goal.value.has_value() && high[i].value.has_value())
        predicted = absl::StrFormat("%.2f to %.2f %s", *goal.value, *high[i].value, goal.unit);
      absl::PrintF("| %s | %s %.4g %s | %s |\n", goal.what, goal.at_least ? "at least" : "at most",
                   goal.bound, goal.unit, predicted);
    }
  }

 private:
  absl::StatusOr<std::unique_ptr<LlamaModel>> Model(const ModelShape& shape, int64_t blocks) {
    LlamaOptions options;
    options.max_rows = kMaxRows;
    options.blocks = blocks;
    options.shape = shape;
    return LlamaModel::Create(options, stream_);
  }
  absl::Status Step(const std::string& name, const StepPlan& plan, LlamaModel* llama) {
    COPPICE_ASSIGN_OR_RETURN(const PredictedStep step, PredictStep(plan, device_, llama));
    // A round is timed by the host, all else on the device.
    const bool round = absl::StartsWith(name, "round");
    Set(name, round ? step.total_ms() : step.device_ms());
    absl::PrintF("%s: %d launches, kernels %s ms, on the device %s ms\n", name, step.launches,
                 Text(step.kernels_ms(), 3), Text(step.device_ms(), 3));
    return absl::OkStatus();
  }
  void Set(const std::string& name, const Interval& ms, double bytes = 0) {
    ms_[name] = ms;
    low_.cases[name] = {ms.low * 1e3, bytes};
    high_.cases[name] = {ms.high * 1e3, bytes};
  }

  const DeviceModel device_;
  kernels::cuda::DeviceStream* const stream_;
  Measured low_, high_;  // predicted, in fact
  std::map<std::string, Interval> ms_;
};

}  // namespace

absl::Status PredictGoals(const DeviceModel& device, kernels::cuda::DeviceStream* stream) {
  GoalPredictor predictor(device, stream);
  COPPICE_RETURN_IF_ERROR(predictor.Target());
  for (int d = 0; const ModelShape& shape : kDrafts)
    COPPICE_RETURN_IF_ERROR(predictor.Draft(shape, d++ < kDraftsOfTarget));
  predictor.Print();
  return absl::OkStatus();
}

}  // namespace coppice::bench
