#include "lab/bench/cuda/predicted_goals.h"

#include <cstdio>
#include <memory>
#include <string>

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
  GoalPredictor(const Ceilings& ceilings, kernels::cuda::DeviceStream* stream)
      : ceilings_(ceilings), stream_(stream) {
    measured_.bandwidth = ceilings.bandwidth;
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
    COPPICE_ASSIGN_OR_RETURN(const PredictedStep step, PredictStep(deep, ceilings_, target.get()));
    const double kv_bytes = static_cast<double>(kTarget.kv_token_bytes()) / kTarget.layers *
                            kManyRequests * (kContexts[1] + 32);
    measured_
        .cases[absl::StrCat("attention, 8 x 32 rows over ", kContexts[1], " tokens, one layer")] = {
        step.attention_ms * 1e3 / kTarget.layers + ceilings_.gap_us, kv_bytes};
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
                                 PredictForests(forests.plan, ceilings_, draft.get()));
        const double us = grown.with_gaps_ms(ceilings_) * 1e3;
        std::printf("forests of %d x %d levels of %d nodes, %s: %d launches, %.0f us with gaps\n",
                    requests, forest.depth, forest.width, shape.name,
                    static_cast<int>(grown.launches), us);
        const std::string verify = RoundName(requests, round);
        measured_.cases[absl::StrCat(verify, ", drafted by ", shape.name)] = {
            us + measured_.cases[verify].us, 0};
      }
    }
    return absl::OkStatus();
  }

  void Print() const {
    std::printf("\n| goal | bound | predicted |\n|---|---|---|\n");
    for (const Goal& goal : GoalsOf(measured_)) {
      absl::PrintF("| %s | %s %.4g %s | %s |\n", goal.what, goal.at_least ? "at least" : "at most",
                   goal.bound, goal.unit,
                   goal.value.has_value() ? absl::StrFormat("%.2f %s", *goal.value, goal.unit)
                                          : "not predicted");
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
    COPPICE_ASSIGN_OR_RETURN(const PredictedStep step, PredictStep(plan, ceilings_, llama));
    measured_.cases[name] = {step.with_gaps_ms(ceilings_) * 1e3, 0};
    std::printf("%s: %d launches, %.0f us, %.0f us with gaps\n", name.c_str(),
                static_cast<int>(step.launches), step.floor_ms() * 1e3,
                step.with_gaps_ms(ceilings_) * 1e3);
    return absl::OkStatus();
  }

  const Ceilings ceilings_;
  kernels::cuda::DeviceStream* const stream_;
  Measured measured_;  // predicted, in fact
};

}  // namespace

absl::Status PredictGoals(const Ceilings& ceilings, kernels::cuda::DeviceStream* stream) {
  GoalPredictor predictor(ceilings, stream);
  COPPICE_RETURN_IF_ERROR(predictor.Target());
  for (int d = 0; const ModelShape& shape : kDrafts)
    COPPICE_RETURN_IF_ERROR(predictor.Draft(shape, d++ < kDraftsOfTarget));
  predictor.Print();
  return absl::OkStatus();
}

}  // namespace coppice::bench
