#include "loadgen/loadgen_main.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "loadgen/client.h"
#include "loadgen/report.h"
#include "loadgen/request_source.h"
#include "loadgen/server_info.h"
#include "loadgen/workload.h"

namespace coppice::loadgen {
namespace {

using Json = nlohmann::json;

constexpr int kDefaultWarmupConcurrency = 8;
constexpr uint64_t kWarmupSeed = uint64_t{1} << 40;

int Fail(int status, const absl::Status& error) {
  std::fprintf(stderr, "coppice-loadgen: %s\n", std::string(error.message()).c_str());
  return status;
}

// One line that is rewritten on a terminal, a line every few seconds elsewhere.
class ProgressLine {
 public:
  explicit ProgressLine(const char* what) : what_(what), terminal_(isatty(STDERR_FILENO) != 0) {}

  void Show(const LoadProgress& p) {
    const bool last = p.running == 0 && p.done > 0;
    if (!terminal_ && !last && p.elapsed_s < next_s_) return;
    next_s_ = p.elapsed_s + 5;
    const std::string total = p.total > 0 ? absl::StrCat("/", p.total) : "";
    std::fprintf(stderr,
                 "%scoppice-loadgen: %s %" PRId64 "%s done, %" PRId64 " running, %" PRId64
                 " failed, %.1f tok/s%s",
                 terminal_ ? "\r" : "", what_, p.done, total.c_str(), p.running, p.failed,
                 p.elapsed_s > 0 ? static_cast<double>(p.output_tokens) / p.elapsed_s : 0.0,
                 terminal_ && !last ? "  " : "\n");
    std::fflush(stderr);
  }

 private:
  const char* what_;
  bool terminal_;
  double next_s_ = 0;
};

LoadPlan MakePlan(const LoadgenOptions& options, const RequestSource& source) {
  LoadPlan plan;
  plan.servers = options.servers;
  plan.policy = options.endpoint_policy;
  plan.endpoint = options.endpoint;
  plan.source = &source;
  plan.timeout_s = options.request_timeout_s;
  plan.max_concurrency = options.max_concurrency;
  plan.seed = options.seed;
  return plan;
}

BodySettings MakeBodySettings(const LoadgenOptions& options, const ModelInfo& model,
                              uint64_t seed) {
  return {.chat = options.chat(),
          .model = model.name,
          .output_len = options.output_len,
          .seed = seed,
          .fields = options.body_fields};
}

// First a number of requests, then requests for a time. Their seeds differ from those of the run,
// so that random prompts of the run are new to the server.
absl::Status WarmUp(const LoadgenOptions& options, const ModelInfo& model,
                    const std::vector<Prompt>& prompts) {
  const RequestSource source(prompts, MakeBodySettings(options, model, options.seed + kWarmupSeed));
  LoadPlan plan = MakePlan(options, source);
  if (plan.max_concurrency == 0) plan.max_concurrency = kDefaultWarmupConcurrency;
  ProgressLine line("warm-up");
  const auto show = [&](const LoadProgress& p) { line.Show(p); };
  if (options.num_warmups > 0) {
    plan.conversations = options.num_warmups;
    COPPICE_RETURN_IF_ERROR(RunLoad(plan, show).status());
  }
  if (options.warmup_s == 0) return absl::OkStatus();
  plan.conversations = LoadPlan::kEndless;
  plan.duration_s = options.warmup_s;
  return RunLoad(plan, show).status();
}

absl::StatusOr<LoadResult> Run(const LoadgenOptions& options, const ModelInfo& model,
                               const Workload& work) {
  const RequestSource source(work.prompts, MakeBodySettings(options, model, options.seed));
  LoadPlan plan = MakePlan(options, source);
  plan.request_id_prefix = options.request_id_prefix;
  plan.conversations = work.conversations;
  plan.arrivals_s = work.arrivals_s;
  plan.duration_s = options.benchmark_s;
  plan.grace_s = options.grace_s;
  plan.cancel_percent = options.cancel_percent;
  plan.cancel_delay_s = options.cancel_delay_s;
  plan.keep_texts = options.save_texts;
  ProgressLine line("run");
  return RunLoad(plan, [&](const LoadProgress& p) { line.Show(p); });
}

RunSettings MakeSettings(const LoadgenOptions& options, const ModelInfo& model,
                         const Workload& work, const std::string& command_line) {
  RunSettings settings = {
      .model = model.name,
      .endpoint = options.endpoint,
      .command_line = command_line,
      .date = absl::FormatTime("%Y%m%d-%H%M%S", absl::Now(), absl::LocalTimeZone()),
      .server_version = ServerVersion(options),
      .open_loop = options.open_loop(),
      .burstiness = options.arrivals.burstiness,
      .max_concurrency = options.max_concurrency,
      .max_send_lag_ms = options.max_send_lag_ms,
      .objectives = options.objectives,
      .dropped_rows = work.dropped_rows,
      .empty_rows = work.empty_rows,
      .metadata = options.metadata};
  for (const BaseUrl& url : options.servers.urls) settings.urls.push_back(url.Text());
  if (!std::isinf(options.arrivals.rate)) settings.request_rate = options.arrivals.rate;
  return settings;
}

RunReport MakeWholeReport(const LoadResult& result, const RunSettings& settings,
                          const ServerCounters& before, const ServerCounters& after) {
  RunReport report = MakeReport(result.records, settings);
  AddCounters(before, after, &report);
  report.bytes = result.bytes;
  if (result.wall_s > 0) report.cpu_percent = 100 * result.cpu_s / result.wall_s;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  report.peak_memory_bytes = int64_t{usage.ru_maxrss} << 10;
  return report;
}

// A metadata key must not hide a key of the result.
absl::Status CheckMetadata(const LoadgenOptions& options) {
  RunSettings settings;
  const Json result = ResultJson(RunReport(), settings, {}, Detail::kArraysAndTexts);
  for (const std::string& pair : options.metadata) {
    const std::string key = pair.substr(0, pair.find('='));
    if (result.contains(key)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--metadata: ", key, " is a key of the result"));
    }
  }
  return absl::OkStatus();
}

absl::Status SaveResult(const LoadgenOptions& options, const RunSettings& settings,
                        const Json& result) {
  std::string name = options.result_filename;
  if (name.empty()) {
    const std::string rate = settings.request_rate ? absl::StrCat(*settings.request_rate) : "inf";
    const std::string concurrency =
        options.max_concurrency > 0 ? absl::StrCat("-concurrency", options.max_concurrency) : "";
    name = absl::StrCat("coppice-", rate, "qps", concurrency, "-",
                        absl::StrReplaceAll(settings.model, {{"/", "_"}}), "-", settings.date,
                        ".json");
  }
  const std::filesystem::path path = std::filesystem::path(options.result_dir) / name;
  std::error_code error;
  std::filesystem::create_directories(options.result_dir, error);
  std::ofstream file(path);
  file << result.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
  file.close();
  if (!file) return absl::UnavailableError(absl::StrCat(path.string(), ": cannot write"));
  std::fprintf(stderr, "coppice-loadgen: wrote %s\n", path.c_str());
  return absl::OkStatus();
}

}  // namespace

int RunLoadgen(const LoadgenOptions& options, const std::string& command_line) {
  const absl::Status metadata = CheckMetadata(options);
  if (!metadata.ok()) return Fail(2, metadata);
  auto prompts = ReadPrompts(options);
  if (!prompts.ok()) return Fail(2, prompts.status());
  const auto model = WaitForModel(options);
  if (!model.ok()) return Fail(1, model.status());
  auto work = MakeWorkload(options, *std::move(prompts), *model);
  if (!work.ok()) return Fail(2, work.status());
  if (options.sized() && options.text_form) {
    const absl::Status fitted = FitTexts(options, *model, &work->prompts);
    if (!fitted.ok()) return Fail(1, fitted);
  }
  const absl::Status warm = WarmUp(options, *model, work->prompts);
  if (!warm.ok()) return Fail(1, warm);
  const RunSettings settings = MakeSettings(options, *model, *work, command_line);
  const ServerCounters before = FetchCounters(options);
  const auto result = Run(options, *model, *work);
  if (!result.ok()) return Fail(1, result.status());
  const RunReport report = MakeWholeReport(*result, settings, before, FetchCounters(options));
  std::fputs(ReportTable(report, settings).c_str(), stdout);
  if (options.save_result) {
    const Detail detail = options.save_texts      ? Detail::kArraysAndTexts
                          : options.save_detailed ? Detail::kArrays
                                                  : Detail::kSummary;
    const absl::Status saved =
        SaveResult(options, settings, ResultJson(report, settings, result->records, detail));
    if (!saved.ok()) return Fail(1, saved);
  }
  if (!report.valid) return 3;
  const double failed_percent =
      100.0 * report.failed / std::max<double>(1, static_cast<double>(result->records.size()));
  return failed_percent > options.max_failed_percent ? 1 : 0;
}

}  // namespace coppice::loadgen
