// What a step of Llama-3.1-8B would take if every kernel reached the ceilings that are assumed: the
// real planner and backend enqueue it on the simulated device, which counts launches, bytes and
// operations and computes nothing. A prediction, not a measurement. Its usage is kUsage.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "bench/cuda/forest_plan.h"
#include "bench/cuda/llama_model.h"
#include "bench/cuda/llama_shape.h"
#include "kernels/cuda/device_check.h"
#include "kernels/cuda/fake/fake_device.h"
#include "model/plan_check.h"

namespace coppice::bench {
namespace {

namespace fake = kernels::cuda::fake;

constexpr char kUsage[] =
    "coppice-predict-cuda [--bandwidth=BYTES_PER_SECOND] [--flops=PER_SECOND] [--gap_us=US]\n"
    "                     [--layers_per_step=N] [--requests=1,8,64] [--rows=1,32,34] [--exact]\n"
    "                     [--skinny] [--details]\n"
    "Prints a table of predicted steps. --gap_us: idle device between two launches. --rows: of "
    "the\n"
    "forest of each request; 1 is a plain step. --layers_per_step: what a step with a forest "
    "gains.\n"
    "--exact: in exact mode. --skinny: products of at most 64 rows by the skinny kernel, as where\n"
    "tuning has found it the fastest. --details: the counts of each kernel. Defaults: one H200.\n";

struct Ceilings {
  double bandwidth = 4.3e12, flops = 7.9e14, gap_us = 1.3;
};

struct Options {
  Ceilings ceilings;
  double layers_per_step = 3.1;
  std::vector<int> requests = {1, 8, 64}, rows = {1, 32, 34};
  bool skinny = false, details = false, exact = false;
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
  int requests, context, rows;
};

BenchPlan PlanOf(const Case& c) {
  BenchPlan plan = ForestPlan(c.requests, c.context, c.rows);
  NeedEveryRow(&plan.plan);
  return plan;
}

// The least time of so much work: memory or arithmetic, whichever takes longer.
double FloorMs(const fake::Totals& totals, const Ceilings& ceilings) {
  const double memory = static_cast<double>(totals.bytes) / ceilings.bandwidth;
  return 1e3 * std::max(memory, static_cast<double>(totals.flops) / ceilings.flops);
}

struct Step {
  double products_ms = 0, attention_ms = 0, other_ms = 0, attention_gb = 0;
  int64_t launches = 0, undeclared = 0, bytes_up = 0, bytes_down = 0;
};

// All launches of one name do the same in a step, so that the floor of their sum is the sum of floors.
Step Predict(const std::map<std::string, fake::Totals>& totals, const Ceilings& ceilings) {
  Step step;
  for (const auto& [name, of] : totals) {
    if (name == "copy to device") step.bytes_up += of.bytes;
    if (name == "copy to host") step.bytes_down += of.bytes;
    if (name == "undeclared") step.undeclared += of.launches;
    if (absl::StrContains(name, "copy")) continue;
    step.launches += of.launches;
    const double ms = FloorMs(of, ceilings);
    if (absl::StartsWith(name, "product") || name == "row product" || name == "skinny product") {
      step.products_ms += ms;
    } else if (absl::StartsWith(name, "attention")) {
      step.attention_ms += ms;
      step.attention_gb += static_cast<double>(of.bytes) / 1e9;
    } else {
      step.other_ms += ms;
    }
  }
  return step;
}

void PrintHead(const Ceilings& c) {
  std::printf(
      "Predicted for %.2f TB/s, %.0f TFLOP/s and %.1f us between launches; nothing is measured.\n\n"
      "| B | context | rows each | launches | attention GB | GEMM ms | attention ms | other ms | "
      "step ms | with gaps | layers/s | to host MB |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|\n",
      c.bandwidth / 1e12, c.flops / 1e12, c.gap_us);
}

void PrintStep(const Case& c, const Step& step, const Options& options) {
  const double floor_ms = step.products_ms + step.attention_ms + step.other_ms;
  const double ms = floor_ms + static_cast<double>(step.launches) * options.ceilings.gap_us / 1e3;
  const double layers = c.rows == 1 ? 1 : options.layers_per_step;
  std::printf("| %d | %d | %d | %d | %.3g | %.2f | %.2f | %.2f | %.2f | %.2f | %.0f | %.3g |\n",
              c.requests, c.context, c.rows, static_cast<int>(step.launches), step.attention_gb,
              step.products_ms, step.attention_ms, step.other_ms, floor_ms, ms,
              1e3 * c.requests * layers / ms, static_cast<double>(step.bytes_down) / 1e6);
}

absl::Status RunCase(const Case& c, const Options& options, LlamaModel* llama) {
  const BenchPlan bench = PlanOf(c);
  COPPICE_RETURN_IF_ERROR(model::CheckPlan(
      bench.plan,
      {bench.plan.rows(), kVocabulary, kMaxPositions, bench.blocks, /*needs_before=*/0}));
  for (int run = 0; run < 2; ++run) {  // the first may make room
    fake::ClearTotals();
    COPPICE_RETURN_IF_ERROR(llama->backend()->Submit(bench.plan, llama->decoder()));
    COPPICE_RETURN_IF_ERROR(llama->backend()->Wait().status());
  }
  const std::map<std::string, fake::Totals> totals = fake::TotalsByName();
  const Step step = Predict(totals, options.ceilings);
  PrintStep(c, step, options);
  for (const auto& [name, of] : totals) {
    if (!options.details) break;
    std::printf("    %-24s %5d launches %15.0f bytes %18.0f flops %9.3f ms\n", name.c_str(),
                static_cast<int>(of.launches), static_cast<double>(of.bytes),
                static_cast<double>(of.flops), FloorMs(of, options.ceilings));
  }
  if (step.undeclared == 0) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(step.undeclared, " launches of kernels that declare no cost"));
}

absl::Status RunAll(const Options& options) {
  fake::DeviceSettings device;
  device.memory = size_t{141} << 30;
  device.multiprocessors = 132;
  device.count_only = true;
  // With a folder the model is tuned, and the skinny kernel wins.
  device.work_us = 1;
  device.product_us = [](const fake::FakeProduct&) { return 1e3; };
  fake::Configure(device);
  const TuningFolder folder(options.skinny);
  COPPICE_RETURN_IF_ERROR(kernels::cuda::UseDevice().status());
  COPPICE_ASSIGN_OR_RETURN(kernels::cuda::DeviceStream stream,
                           kernels::cuda::DeviceStream::Create("the model"));
  std::vector<Case> cases;
  for (const int requests : options.requests) {
    for (const int context : kContexts) {
      for (const int rows : options.rows) cases.push_back({requests, context, rows});
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
  if (argument == "--exact") return options->exact = true;
  if (argument == "--skinny") return options->skinny = true;
  if (absl::ConsumePrefix(&argument, "--bandwidth=")) return positive(&options->ceilings.bandwidth);
  if (absl::ConsumePrefix(&argument, "--flops=")) return positive(&options->ceilings.flops);
  if (absl::ConsumePrefix(&argument, "--gap_us=")) return positive(&options->ceilings.gap_us);
  if (absl::ConsumePrefix(&argument, "--layers_per_step="))
    return positive(&options->layers_per_step);
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
