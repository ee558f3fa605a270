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
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "kernels/cuda/runtime/device_check.h"
#include "lab/bench/cuda/device_model.h"
#include "lab/bench/cuda/forest_plan.h"
#include "lab/bench/cuda/llama_model.h"
#include "lab/bench/cuda/llama_shape.h"
#include "lab/bench/cuda/predicted_goals.h"
#include "lab/bench/cuda/predicted_step.h"
#include "lab/bench/cuda/predicted_table.h"
#include "lab/bench/cuda/predicted_wide.h"
#include "plan/plan_check.h"

namespace coppice::bench {
namespace {

constexpr char kUsage[] =
    "coppice-predict-cuda [--device=h100|h200] [--requests=1,8,64] [--rows=1,32,34] [--exact]\n"
    "                     [--common=TOKENS] [--layers_per_step=N] [--tuned] [--no_overlap]\n"
    "                     [--details] [ASSUMPTION ...]\n"
    "coppice-predict-cuda --goals|--table|--wide [--device=h100|h200] [ASSUMPTION ...]\n"
    "Prints predicted steps, as intervals from optimistic to pessimistic assumptions.\n"
    "--rows: of the forest of each request; 1 is a plain step. --layers_per_step: what a step\n"
    "with a forest gains. --common: tokens of the contexts that all requests share. --exact: in\n"
    "exact mode. --tuned: products of at most 64 rows as the predicted times choose them, by\n"
    "cuBLASLt or by the skinny kernel. --no_overlap: launches wait. --details: the counts of\n"
    "each kernel and what limits it. Instead of the steps:\n"
    "--goals: what is predicted of each goal. --table: gains of several drafts over plain\n"
    "steps, by requests and context, and what limits them. --wide: steps of 64 to 512 beams of\n"
    "one request. ASSUMPTION sets one for both ends: --bandwidth=BYTES_PER_SECOND,\n"
    "--flops=PER_SECOND, --gap_us=, --overlapped_gap_us=, --handoff_us=, --load_us=, --host_us=.\n"
    "Default: h100.\n";

struct Options {
  DeviceModel device = DeviceNamed("h100").value();
  std::vector<std::pair<double Ceilings::*, double>> assumptions;
  double layers_per_step = 3.1;
  std::vector<int> requests = {1, 8, 64}, rows = {1, 32, 34};
  int common = 0;
  bool tuned = false, no_overlap = false, details = false, exact = false;
  bool goals = false, table = false, wide = false;
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

void PrintHead(const DeviceModel& device) {
  std::printf(
      "Predicted for %s, from optimistic to pessimistic assumptions; nothing is measured.\n\n"
      "| B | context | rows each | launches | attention GB | GEMM ms | attention ms | lists ms | "
      "other ms | gaps ms | copies ms | host ms | step ms | layers/s | limits |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
      device.name.c_str());
}

void PrintStep(const Case& c, const PredictedStep& step, const Options& options) {
  const double layers = 1e3 * c.requests * (c.rows == 1 ? 1 : options.layers_per_step);
  const Interval ms = step.total_ms();
  absl::PrintF(
      "| %d | %d | %d | %d | %.3g | %s | %s | %s | %s | %s | %s | %s | %s | %.0f-%.0f | %s |\n",
      c.requests, c.context, c.rows, step.launches, static_cast<double>(step.kv_bytes) / 1e9,
      Text(step.products), Text(step.attention), Text(step.lists), Text(step.other),
      Text(step.gaps), Text(step.copies), Text(step.host), Text(ms), layers / ms.high,
      layers / ms.low, step.Largest(2));
}

absl::Status RunCase(const Case& c, const Options& options, LlamaModel* llama) {
  const BenchPlan bench = PlanOf(c);
  COPPICE_RETURN_IF_ERROR(CheckPlan(bench.plan, {bench.plan.rows(), kVocabulary, kMaxPositions,
                                                 bench.blocks, /*needs_before=*/0}));
  COPPICE_ASSIGN_OR_RETURN(const PredictedStep step,
                           PredictStep(bench.plan, options.device, llama));
  PrintStep(c, step, options);
  if (options.details) PrintKernels(step);
  return absl::OkStatus();
}

absl::Status RunAll(const Options& options) {
  UseCountingDevice(options.device);
  const TuningFolder folder(options.tuned || options.table);
  COPPICE_RETURN_IF_ERROR(kernels::cuda::UseDevice().status());
  COPPICE_ASSIGN_OR_RETURN(kernels::cuda::DeviceStream stream,
                           kernels::cuda::DeviceStream::Create("the model"));
  if (options.goals) return PredictGoals(options.device, &stream);
  if (options.wide) return PredictWide(options.device, options.details, &stream);
  if (options.table)
    return PredictTable(options.device, {!options.no_overlap, options.details, folder.path()},
                        &stream);
  std::vector<Case> cases;
  for (const int requests : options.requests) {
    for (const int context : kContexts) {
      for (const int rows : options.rows)
        cases.push_back({requests, context, rows, options.common});
    }
  }
  LlamaOptions most;
  most.exact = options.exact;
  most.overlap_launches = !options.no_overlap;
  most.tuning_cache = folder.path();
  for (const Case& c : cases) {
    const BenchPlan bench = PlanOf(c);
    most.max_rows = std::max(most.max_rows, bench.plan.rows());
    most.blocks = std::max(most.blocks, bench.blocks);
  }
  COPPICE_ASSIGN_OR_RETURN(const std::unique_ptr<LlamaModel> llama,
                           LlamaModel::Create(most, &stream));
  PrintHead(options.device);
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

// An assumption about the device, for both ends.
bool ParseAssumption(absl::string_view argument, Options* options) {
  static constexpr std::pair<const char*, double Ceilings::*> kAssumptions[] = {
      {"--bandwidth=", &Ceilings::bandwidth},
      {"--flops=", &Ceilings::flops},
      {"--gap_us=", &Ceilings::gap_us},
      {"--overlapped_gap_us=", &Ceilings::overlapped_gap_us},
      {"--handoff_us=", &Ceilings::handoff_us},
      {"--load_us=", &Ceilings::load_us},
      {"--host_us=", &Ceilings::host_us},
  };
  for (const auto& [name, member] : kAssumptions) {
    if (!absl::ConsumePrefix(&argument, name)) continue;
    double value = 0;
    if (!absl::SimpleAtod(argument, &value) || !(value > 0)) return false;
    options->assumptions.emplace_back(member, value);
    return true;
  }
  return false;
}

bool ParseFlag(absl::string_view argument, Options* options) {
  static constexpr std::pair<const char*, bool Options::*> kSwitches[] = {
      {"--details", &Options::details},       {"--goals", &Options::goals},
      {"--table", &Options::table},           {"--wide", &Options::wide},
      {"--exact", &Options::exact},           {"--tuned", &Options::tuned},
      {"--no_overlap", &Options::no_overlap},
  };
  for (const auto& [name, member] : kSwitches) {
    if (argument == name) return options->*member = true;
  }
  if (absl::ConsumePrefix(&argument, "--device=")) {
    absl::StatusOr<DeviceModel> device = DeviceNamed(std::string(argument));
    if (device.ok()) options->device = *std::move(device);
    return device.ok();
  }
  if (absl::ConsumePrefix(&argument, "--layers_per_step="))
    return absl::SimpleAtod(argument, &options->layers_per_step) && options->layers_per_step > 0;
  if (absl::ConsumePrefix(&argument, "--common="))
    return absl::SimpleAtoi(argument, &options->common) && options->common >= 0;
  if (absl::ConsumePrefix(&argument, "--requests="))
    return ParseCounts(argument, &options->requests);
  if (absl::ConsumePrefix(&argument, "--rows=")) return ParseCounts(argument, &options->rows);
  return ParseAssumption(argument, options);
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
  for (const auto& [member, value] : options.assumptions)
    options.device.optimistic.*member = options.device.pessimistic.*member = value;
  const absl::Status status = RunAll(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "coppice-predict-cuda: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace
}  // namespace coppice::bench

int main(int argc, char** argv) { return coppice::bench::Main(argc, argv); }
