// What steps of Llama-3.1-8B would take, and what follows for the goals (predicted_step.h). Its
// usage is kUsage.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "kernels/cuda/runtime/device_check.h"
#include "lab/bench/cuda/forest_plan.h"
#include "lab/bench/cuda/llama_model.h"
#include "lab/bench/cuda/llama_shape.h"
#include "lab/bench/cuda/predicted_goals.h"
#include "lab/bench/cuda/predicted_step.h"
#include "lab/bench/cuda/predicted_wide.h"
#include "plan/plan_check.h"

namespace coppice::bench {
namespace {

constexpr char kUsage[] =
    "coppice-predict-cuda [--bandwidth=BYTES_PER_SECOND] [--flops=PER_SECOND] [--gap_us=US]\n"
    "                     [--layers_per_step=N] [--requests=1,8,64] [--rows=1,32,34] [--exact]\n"
    "                     [--common=TOKENS] [--skinny] [--details]\n"
    "coppice-predict-cuda --goals|--wide [--bandwidth=...] [--flops=...] [--gap_us=...]\n"
    "Prints a table of predicted steps. --gap_us: idle device between two launches. --rows: of "
    "the\n"
    "forest of each request; 1 is a plain step. --layers_per_step: what a step with a forest "
    "gains.\n"
    "--common: tokens of the contexts that all requests share.\n"
    "--exact: in exact mode. --skinny: products of at most 64 rows by the skinny kernel, as where\n"
    "tuning has found it the fastest. --details: the counts of each kernel. --goals: instead of "
    "the\n"
    "table, what is predicted of each goal. --wide: steps of 64 to 512 beams of one request.\n"
    "Defaults: one H200.\n";

struct Options {
  Ceilings ceilings;
  double layers_per_step = 3.1;
  std::vector<int> requests = {1, 8, 64}, rows = {1, 32, 34};
  int common = 0;
  bool skinny = false, details = false, exact = false, goals = false, wide = false;
};

// A folder for what is tuned, gone with the run; empty when nothing is to be tuned.
class TuningFolder {
 public:
  explicit TuningFolder(bool wanted) {
    std::string name = (std::filesystem::temp_directory_path() / "coppice-predict-XXXXXX").string();
    if (wanted && mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~TuningFolder() {
    std::error_code error;
    if (!path_.empty()) std::filesystem::remove_all(path_, error);
  }
  TuningFolder(const TuningFolder&) = delete;
  TuningFolder& operator=(const TuningFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct Case {
  int requests, context, rows, common;
};

BenchPlan PlanOf(const Case& c) {
  BenchPlan plan = ForestPlan(c.requests, c.context, c.rows, c.common);
  NeedEveryRow(&plan.plan);
  return plan;
}

void PrintHead(const Ceilings& c) {
  std::printf(
      "Predicted for %.2f TB/s, %.0f TFLOP/s and %.1f us between launches; nothing is measured.\n\n"
      "| B | context | rows each | launches | attention GB | GEMM ms | attention ms | other ms | "
      "step ms | with gaps | layers/s | to host MB |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|\n",
      c.bandwidth / 1e12, c.flops / 1e12, c.gap_us);
}

void PrintStep(const Case& c, const PredictedStep& step, const Options& options) {
  const double ms = step.with_gaps_ms(options.ceilings);
  const double layers = c.rows == 1 ? 1 : options.layers_per_step;
  std::printf("| %d | %d | %d | %d | %.3g | %.2f | %.2f | %.2f | %.2f | %.2f | %.0f | %.3g |\n",
              c.requests, c.context, c.rows, static_cast<int>(step.launches), step.attention_gb,
              step.products_ms, step.attention_ms, step.other_ms, step.floor_ms(), ms,
              1e3 * c.requests * layers / ms, static_cast<double>(step.bytes_down) / 1e6);
}

absl::Status RunCase(const Case& c, const Options& options, LlamaModel* llama) {
  const BenchPlan bench = PlanOf(c);
  COPPICE_RETURN_IF_ERROR(CheckPlan(bench.plan, {bench.plan.rows(), kVocabulary, kMaxPositions,
                                                 bench.blocks, /*needs_before=*/0}));
  COPPICE_ASSIGN_OR_RETURN(const PredictedStep step,
                           PredictStep(bench.plan, options.ceilings, llama));
  PrintStep(c, step, options);
  for (const auto& [name, of] : step.totals) {
    if (!options.details) break;
    std::printf("    %-24s %5d launches %15.0f bytes %18.0f flops %9.3f ms\n", name.c_str(),
                static_cast<int>(of.launches), static_cast<double>(of.bytes),
                static_cast<double>(of.flops), FloorMs(of, options.ceilings));
  }
  return absl::OkStatus();
}

absl::Status RunAll(const Options& options) {
  UseCountingDevice();
  const TuningFolder folder(options.skinny);
  COPPICE_RETURN_IF_ERROR(kernels::cuda::UseDevice().status());
  COPPICE_ASSIGN_OR_RETURN(kernels::cuda::DeviceStream stream,
                           kernels::cuda::DeviceStream::Create("the model"));
  if (options.goals) return PredictGoals(options.ceilings, &stream);
  if (options.wide) return PredictWide(options.ceilings, options.details, &stream);
  std::vector<Case> cases;
  for (const int requests : options.requests) {
    for (const int context : kContexts) {
      for (const int rows : options.rows)
        cases.push_back({requests, context, rows, options.common});
    }
  }
  LlamaOptions most;
  most.exact = options.exact;
  most.tuning_cache = folder.path();
  for (const Case& c : cases) {
    const BenchPlan bench = PlanOf(c);
    most.max_rows = std::max(most.max_rows, bench.plan.rows());
    most.blocks = std::max(most.blocks, bench.blocks);
  }
  COPPICE_ASSIGN_OR_RETURN(const std::unique_ptr<LlamaModel> llama,
                           LlamaModel::Create(most, &stream));
  PrintHead(options.ceilings);
  for (const Case& c : cases) COPPICE_RETURN_IF_ERROR(RunCase(c, options, llama.get()));
  return absl::OkStatus();
}

bool ParseCounts(absl::string_view text, std::vector<int>* out) {
  out->clear();
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    int value = 0;
    if (!absl::SimpleAtoi(part, &value) || value < 1 || value > 64) return false;
    out->push_back(value);
  }
  return true;
}

bool ParseFlag(absl::string_view argument, Options* options) {
  const auto positive = [&](double* value) {
    return absl::SimpleAtod(argument, value) && *value > 0;
  };
  if (argument == "--details") return options->details = true;
  if (argument == "--goals") return options->goals = true;
  if (argument == "--wide") return options->wide = true;
  if (argument == "--exact") return options->exact = true;
  if (argument == "--skinny") return options->skinny = true;
  if (absl::ConsumePrefix(&argument, "--bandwidth=")) return positive(&options->ceilings.bandwidth);
  if (absl::ConsumePrefix(&argument, "--flops=")) return positive(&options->ceilings.flops);
  if (absl::ConsumePrefix(&argument, "--gap_us=")) return positive(&options->ceilings.gap_us);
  if (absl::ConsumePrefix(&argument, "--layers_per_step="))
    return positive(&options->layers_per_step);
  if (absl::ConsumePrefix(&argument, "--common="))
    return absl::SimpleAtoi(argument, &options->common) && options->common >= 0;
  if (absl::ConsumePrefix(&argument, "--requests="))
    return ParseCounts(argument, &options->requests);
  if (absl::ConsumePrefix(&argument, "--rows=")) return ParseCounts(argument, &options->rows);
  return false;
}

int Main(int argc, char** argv) {
  spdlog::set_level(spdlog::level::warn);
  Options options;
  for (int i = 1; i < argc; ++i) {
    if (std::string(argv[i]) == "--help") {
      std::fputs(kUsage, stdout);
      return 0;
    }
    if (ParseFlag(argv[i], &options)) continue;
    std::fprintf(stderr, "coppice-predict-cuda: unknown argument '%s'\n%s", argv[i], kUsage);
    return 2;
  }
  const absl::Status status = RunAll(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "coppice-predict-cuda: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace
}  // namespace coppice::bench

int main(int argc, char** argv) { return coppice::bench::Main(argc, argv); }
