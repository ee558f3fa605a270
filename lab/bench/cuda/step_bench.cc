// The decoder as it serves: plan, ops, lists in host memory; by graphs, and op by op; by the clock
// of the host, and the device's part of that time.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "lab/bench/cuda/bench_parts.h"
#include "lab/bench/cuda/device_step.h"
#include "lab/bench/cuda/forest_plan.h"
#include "lab/bench/cuda/host_timer.h"
#include "lab/bench/cuda/llama_model.h"
#include "lab/bench/cuda/llama_shape.h"
#include "plan/plan_check.h"

namespace coppice::bench {
namespace {

constexpr int kMostRows = 64, kContext = kContexts[0], kForestRows = 34;
constexpr int64_t kBlocks = 2048;

// The device's part of a step, and which ops take it. host_us: the step by the clock of the host.
absl::Status BenchDevice(const BenchCase& whole, const StepPlan& plan, double host_us,
                         LlamaModel* llama, Report* report, DeviceTimer* timer) {
  COPPICE_ASSIGN_OR_RETURN(const std::unique_ptr<DeviceStep> step,
                           DeviceStep::Create(&plan, llama, report->tuning_cache(), timer));
  COPPICE_ASSIGN_OR_RETURN(const Timing device, step->Time());
  report->Add({"step", absl::StrCat(whole.name, ", of it the device"), whole.bytes}, device);
  report->Add({"step", absl::StrCat(whole.name, ", of it the host alone"), 0},
              {host_us - device.us, /*spread=*/0});
  report->AddCount({"step", absl::StrCat(whole.name, ", launches op by op"), 0}, step->launches());
  COPPICE_ASSIGN_OR_RETURN(const std::vector<DeviceStep::OfKind> profile, step->Profile());
  for (const DeviceStep::OfKind& kind : profile) {
    report->Add({"step", absl::StrCat(whole.name, ": ", kind.ops, " x ", kind.name), kind.bytes},
                kind.timing);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status BenchTune(Report* report, DeviceTimer* timer) {
  const double bytes = static_cast<double>(kTarget.weight_bytes());
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

// How steps are run. Exact steps, and those beside which they are timed, are of 32 rows: as many as
// a row tile holds.
struct StepKind {
  const char* part;
  const char* suffix;
  bool overlap = true, exact = false;
  int forest_rows = kForestRows;
};

absl::Status BenchSteps(const StepKind& kind, Report* report, DeviceTimer* timer) {
  std::unique_ptr<LlamaModel> llama;
  for (const int rows : {1, kind.forest_rows}) {
    const double bytes =
        static_cast<double>(kTarget.weight_bytes()) +
        static_cast<double>(kTarget.kv_token_bytes()) * (rows == 1 ? kContext : kContext + rows);
    StepPlan plan = (rows == 1 ? PlainPlan(kContext) : ForestPlan(1, kContext, rows)).plan;
    NeedEveryRow(&plan);
    COPPICE_RETURN_IF_ERROR(
        CheckPlan(plan, {kMostRows, kVocabulary, kMaxPositions, kBlocks, /*needs_before=*/0}));
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
    double host_us = 0;
    for (const bool graphs : {true, false}) {
      COPPICE_ASSIGN_OR_RETURN(const StepTiming timing, TimeSteps(plan, graphs, llama.get()));
      BenchCase timed = whole;
      if (!graphs) absl::StrAppend(&timed.name, ", op by op");
      report->Add(timed, timing.step);
      report->Add({kind.part, absl::StrCat(timed.name, ", of it Submit"), 0}, timing.submit);
      if (graphs) host_us = timing.step.us;
    }
    if (*kind.suffix != '\0') continue;
    COPPICE_RETURN_IF_ERROR(BenchDevice(whole, plan, host_us, llama.get(), report, timer));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status BenchStep(Report* report, DeviceTimer* timer) {
  COPPICE_RETURN_IF_ERROR(BenchSteps({.part = "step", .suffix = ""}, report, timer));
  if (timer != nullptr && !timer->facts().overlaps_launches) return absl::OkStatus();
  return BenchSteps({.part = "step", .suffix = ", launches do not overlap", .overlap = false},
                    report, timer);
}

// What exact mode costs: the same steps without and with it.
absl::Status BenchExact(Report* report, DeviceTimer* timer) {
  COPPICE_RETURN_IF_ERROR(
      BenchSteps({.part = "exact", .suffix = ", not exact", .forest_rows = 32}, report, timer));
  return BenchSteps({.part = "exact", .suffix = ", exact", .exact = true, .forest_rows = 32},
                    report, timer);
}

}  // namespace coppice::bench
