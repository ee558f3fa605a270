// The decoder as it serves: plan, ops, logits in host memory; by graphs, and op by op; by the clock of the
// host.
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "bench/cuda/bench_parts.h"
#include "bench/cuda/forest_plan.h"
#include "bench/cuda/llama_model.h"
#include "bench/cuda/llama_shape.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device_op.h"
#include "kernels/cuda/row_bucket.h"
#include "kernels/cuda/step_upload.h"
#include "model/plan_check.h"

namespace coppice::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostRows = 64, kContext = kContexts[0], kForestRows = 34;
constexpr int64_t kBlocks = 2048;

double Us(Clock::duration time) { return std::chrono::duration<double, std::micro>(time).count(); }

// Median of whole steps and of Submit alone.
absl::Status TimeSteps(const StepPlan& plan, bool graphs, LlamaModel* llama, Timing* step,
                       Timing* submit) {
  kernels::Backend* const backend = graphs ? llama->backend() : llama->op_by_op();
  constexpr int kWarmUps = 3;  // the second captures the graphs
  std::vector<double> step_us, submit_us;
  for (int run = -kWarmUps; run < kRuns; ++run) {
    const Clock::time_point begin = Clock::now();
    COPPICE_RETURN_IF_ERROR(backend->Submit(plan, llama->decoder()));
    const Clock::time_point submitted = Clock::now();
    COPPICE_RETURN_IF_ERROR(backend->Wait().status());
    if (run < 0) continue;
    step_us.push_back(Us(Clock::now() - begin));
    submit_us.push_back(Us(submitted - begin));
  }
  *step = Summarize(std::move(step_us));
  *submit = Summarize(std::move(submit_us));
  return absl::OkStatus();
}

// Kernels and products of a step.
absl::StatusOr<int64_t> CountLaunches(const StepPlan& plan, LlamaModel* llama, DeviceTimer* timer) {
  const kernels::cuda::StepShape shape =
      kernels::cuda::PaddedShape(plan.rows(), static_cast<int64_t>(plan.needs.size()));
  kernels::cuda::CudaOps ops(timer->facts());
  ops.Begin(plan, shape);
  llama->decoder()->Body(&ops);
  llama->decoder()->Head(&ops);
  kernels::cuda::StepUpload upload;
  COPPICE_RETURN_IF_ERROR(upload.Upload(plan, shape, ops.work(), nullptr, timer->stream()));
  COPPICE_RETURN_IF_ERROR(timer->stream()->Synchronize("the plan of a step"));
  return kernels::cuda::CountLaunches({upload.step(), upload.work(), {}, ops.Take()});
}

}  // namespace

absl::Status BenchTune(Report* report, DeviceTimer* timer) {
  const double bytes = static_cast<double>(kLayers * kLayerWeightBytes + kHeadBytes);
  if (!report->Wants({"tune", "products of a step, by rows", bytes})) return absl::OkStatus();
  LlamaOptions options = {kTunedRows, kBlocks, /*filled=*/true};
  options.tuning_cache = report->tuning_cache().empty() ? "auto" : report->tuning_cache();
  COPPICE_ASSIGN_OR_RETURN(const auto llama, LlamaModel::Create(options, timer->stream()));
  for (const kernels::RowCost& cost : llama->backend()->RowCosts()) {
    report->Add({"tune", absl::StrCat("products of a step, ", cost.rows, " rows"), bytes},
                {cost.seconds * 1e6, /*spread=*/0});
  }
  return absl::OkStatus();
}

namespace {

// How steps are run. Exact steps, and those beside which they are timed, are of 32 rows: as many as a
// row tile holds.
struct StepKind {
  const char* part;
  const char* suffix;
  bool overlap = false, exact = false;
  int forest_rows = kForestRows;
};

absl::Status BenchSteps(const StepKind& kind, Report* report, DeviceTimer* timer) {
  std::unique_ptr<LlamaModel> llama;
  for (const int rows : {1, kind.forest_rows}) {
    const double bytes =
        static_cast<double>(kLayers * kLayerWeightBytes + kHeadBytes) +
        static_cast<double>(kLayers * kKvTokenBytes) * (rows == 1 ? kContext : kContext + rows);
    StepPlan plan = (rows == 1 ? PlainPlan(kContext) : ForestPlan(1, kContext, rows)).plan;
    NeedEveryRow(&plan);
    COPPICE_RETURN_IF_ERROR(model::CheckPlan(
        plan, {kMostRows, kVocabulary, kMaxPositions, kBlocks, /*needs_before=*/0}));
    const BenchCase whole = {
        kind.part,
        absl::StrCat(rows == 1 ? "plain, " : "forest, ", rows, " rows at ", kContext, kind.suffix),
        bytes};
    if (!report->Wants(whole)) continue;
    if (llama == nullptr) {
      COPPICE_ASSIGN_OR_RETURN(
          llama, LlamaModel::Create({kMostRows, kBlocks, /*filled=*/true, kind.overlap, kind.exact,
                                     report->tuning_cache()},
                                    timer->stream()));
    }
    for (const bool graphs : {true, false}) {
      Timing whole_time, submit_time;
      COPPICE_RETURN_IF_ERROR(TimeSteps(plan, graphs, llama.get(), &whole_time, &submit_time));
      BenchCase timed = whole;
      if (!graphs) absl::StrAppend(&timed.name, ", op by op");
      report->Add(timed, whole_time);
      report->Add({kind.part, absl::StrCat(timed.name, ", of it Submit"), 0}, submit_time);
    }
    if (kind.overlap || kind.exact) continue;
    COPPICE_ASSIGN_OR_RETURN(const int64_t launches, CountLaunches(plan, llama.get(), timer));
    report->AddCount({kind.part, absl::StrCat(whole.name, ", launches op by op"), 0}, launches);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status BenchStep(Report* report, DeviceTimer* timer) {
  COPPICE_RETURN_IF_ERROR(BenchSteps({.part = "step", .suffix = ""}, report, timer));
  if (timer != nullptr && !timer->facts().overlaps_launches) return absl::OkStatus();
  return BenchSteps({.part = "step", .suffix = ", launches overlap", .overlap = true}, report,
                    timer);
}

// What exact mode costs: the same steps without and with it.
absl::Status BenchExact(Report* report, DeviceTimer* timer) {
  COPPICE_RETURN_IF_ERROR(
      BenchSteps({.part = "exact", .suffix = ", not exact", .forest_rows = 32}, report, timer));
  return BenchSteps({.part = "exact", .suffix = ", exact", .exact = true, .forest_rows = 32},
                    report, timer);
}

}  // namespace coppice::bench
