// The decoder as it serves: plan, ops, logits in host memory, by the clock of the host.
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "bench/cuda/bench_parts.h"
#include "bench/cuda/forest_plan.h"
#include "bench/cuda/llama_model.h"
#include "bench/cuda/llama_shape.h"
#include "model/plan_check.h"

namespace coppice::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostRows = 64, kContext = kContexts[0], kForestRows = 34;
constexpr int64_t kBlocks = 2048;

double Us(Clock::duration time) { return std::chrono::duration<double, std::micro>(time).count(); }

// Median of whole steps and of Submit alone.
absl::Status TimeSteps(const StepPlan& plan, LlamaModel* llama, Timing* step, Timing* submit) {
  constexpr int kWarmUps = 3;
  std::vector<double> step_us, submit_us;
  for (int run = -kWarmUps; run < kRuns; ++run) {
    const Clock::time_point begin = Clock::now();
    COPPICE_RETURN_IF_ERROR(llama->backend()->Submit(plan, llama->decoder()));
    const Clock::time_point submitted = Clock::now();
    COPPICE_RETURN_IF_ERROR(llama->backend()->Wait().status());
    if (run < 0) continue;
    step_us.push_back(Us(Clock::now() - begin));
    submit_us.push_back(Us(submitted - begin));
  }
  *step = Summarize(std::move(step_us));
  *submit = Summarize(std::move(submit_us));
  return absl::OkStatus();
}

absl::Status BenchSteps(bool overlap, Report* report, DeviceTimer* timer) {
  std::unique_ptr<LlamaModel> llama;
  for (const int rows : {1, kForestRows}) {
    const double bytes =
        static_cast<double>(kLayers * kLayerWeightBytes + kHeadBytes) +
        static_cast<double>(kLayers * kKvTokenBytes) * (rows == 1 ? kContext : kContext + rows);
    StepPlan plan = (rows == 1 ? PlainPlan(kContext) : ForestPlan(1, kContext, rows)).plan;
    NeedEveryRow(&plan);
    COPPICE_RETURN_IF_ERROR(model::CheckPlan(
        plan, {kMostRows, kVocabulary, kMaxPositions, kBlocks, /*needs_before=*/0}));
    const BenchCase whole = {"step",
                             absl::StrCat(rows == 1 ? "plain, " : "forest, ", rows, " rows at ",
                                          kContext, overlap ? ", launches overlap" : ""),
                             bytes};
    if (!report->Wants(whole)) continue;
    if (llama == nullptr) {
      COPPICE_ASSIGN_OR_RETURN(
          llama,
          LlamaModel::Create({kMostRows, kBlocks, /*filled=*/true, overlap}, timer->stream()));
    }
    Timing whole_time, submit_time;
    COPPICE_RETURN_IF_ERROR(TimeSteps(plan, llama.get(), &whole_time, &submit_time));
    report->Add(whole, whole_time);
    report->Add({"step", absl::StrCat(whole.name, ", of it Submit"), 0}, submit_time);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status BenchStep(Report* report, DeviceTimer* timer) {
  COPPICE_RETURN_IF_ERROR(BenchSteps(/*overlap=*/false, report, timer));
  if (timer != nullptr && !timer->facts().overlaps_launches) return absl::OkStatus();
  return BenchSteps(/*overlap=*/true, report, timer);
}

}  // namespace coppice::bench
