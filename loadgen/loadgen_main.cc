#include "loadgen/loadgen_main.h"

#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "loadgen/arrivals.h"
#include "loadgen/client.h"
#include "loadgen/dataset.h"
#include "loadgen/report.h"

namespace coppice::loadgen {
namespace {

using Json = nlohmann::json;

constexpr int kDefaultWarmupConcurrency = 8;
constexpr double kReadyRetryS = 0.2;

int Fail(int status, const absl::Status& error) {
  std::fprintf(stderr, "coppice-loadgen: %s\n", std::string(error.message()).c_str());
  return status;
}

// Waits until the server answers. Returns the model that the flags name, else the first of
// /v1/models.
absl::StatusOr<std::string> WaitForModel(const LoadgenOptions& options) {
  if (!options.model.empty() && options.ready_timeout_s == 0) return options.model;
  const absl::Time deadline = absl::Now() + absl::Seconds(options.ready_timeout_s);
  absl::StatusOr<std::string> body;
  while (true) {
    body = HttpGet(options.base_url, "/v1/models", std::min(options.request_timeout_s, 10.0));
    if (body.ok() || absl::Now() >= deadline) break;
    std::this_thread::sleep_for(std::chrono::duration<double>(kReadyRetryS));
  }
  if (!options.model.empty() && body.ok()) return options.model;
  if (!body.ok()) return body.status();
  const Json json = Json::parse(*body, nullptr, /*allow_exceptions=*/false);
  if (json.is_object() && json.contains("data") && json["data"].is_array() &&
      !json["data"].empty() && json["data"][0].is_object()) {
    const Json id = json["data"][0].value("id", Json());
    if (id.is_string()) return id.get<std::string>();
  }
  return absl::UnavailableError(absl::StrCat(
      options.base_url_text, "/v1/models: expected a list with a model, give --model"));
}

absl::StatusOr<std::vector<Prompt>> ReadPrompts(const LoadgenOptions& options) {
  if (options.dataset_name == "random") {
    return RandomDataset(options.num_prompts, options.input_len, options.seed);
  }
  COPPICE_ASSIGN_OR_RETURN(std::vector<Prompt> prompts, ReadCustomDataset(options.dataset_path));
  const size_t rows = prompts.size();
  if (rows < static_cast<size_t>(options.num_prompts)) {
    std::fprintf(stderr, "coppice-loadgen: %zu prompts in %s are repeated to %d\n", rows,
                 options.dataset_path.c_str(), options.num_prompts);
  }
  for (const Prompt& prompt : prompts) {
    if (!options.chat() && !prompt.messages.is_null()) {
      return absl::InvalidArgumentError(
          absl::StrCat(options.dataset_path, ": messages need --endpoint=/v1/chat/completions"));
    }
    if (options.chat() && prompt.messages.is_null() && !prompt.text.is_string()) {
      return absl::InvalidArgumentError(
          absl::StrCat(options.dataset_path, ": token ids need /v1/completions"));
    }
  }
  prompts.resize(options.num_prompts);
  for (size_t i = rows; i < prompts.size(); ++i) prompts[i] = prompts[i % rows];
  return prompts;
}

std::vector<Json> MakeBodies(const LoadgenOptions& options, const std::vector<Prompt>& prompts) {
  const BodySettings settings = {.chat = options.chat(),
                                 .model = options.model,
                                 .output_len = options.output_len,
                                 .seed = options.seed,
                                 .fields = options.body_fields};
  std::vector<Json> bodies;
  for (size_t k = 0; k < prompts.size(); ++k) {
    bodies.push_back(RequestBody(prompts[k], static_cast<int>(k), settings));
  }
  return bodies;
}

// One line that is rewritten on a terminal, a line every few seconds elsewhere.
class ProgressLine {
 public:
  explicit ProgressLine(const char* what) : what_(what), terminal_(isatty(STDERR_FILENO) != 0) {}

  void Show(const LoadProgress& p) {
    const bool last = p.done == p.total;
    if (!terminal_ && !last && p.elapsed_s < next_s_) return;
    next_s_ = p.elapsed_s + 5;
    std::fprintf(stderr, "%scoppice-loadgen: %s %d/%d done, %d running, %d failed, %.1f tok/s%s",
                 terminal_ ? "\r" : "", what_, p.done, p.total, p.running, p.failed,
                 p.elapsed_s > 0 ? static_cast<double>(p.output_tokens) / p.elapsed_s : 0.0,
                 terminal_ && !last ? "  " : "\n");
    std::fflush(stderr);
  }

 private:
  const char* what_;
  bool terminal_;
  double next_s_ = 0;
};

LoadPlan MakePlan(const LoadgenOptions& options, const std::vector<Json>& bodies) {
  LoadPlan plan;
  plan.url = options.base_url;
  plan.endpoint = options.endpoint;
  plan.timeout_s = options.request_timeout_s;
  plan.max_concurrency = options.max_concurrency;
  for (const Json& body : bodies) plan.bodies.push_back(body.dump());
  return plan;
}

absl::Status WarmUp(const LoadgenOptions& options, const std::vector<Json>& bodies) {
  if (options.num_warmups == 0) return absl::OkStatus();
  std::vector<Json> warmups;
  for (int i = 0; i < options.num_warmups; ++i) warmups.push_back(bodies[i % bodies.size()]);
  LoadPlan plan = MakePlan(options, warmups);
  if (plan.max_concurrency == 0) plan.max_concurrency = kDefaultWarmupConcurrency;
  ProgressLine line("warm-up");
  return RunLoad(plan, [&](const LoadProgress& p) { line.Show(p); }).status();
}

absl::StatusOr<std::vector<RequestRecord>> Run(const LoadgenOptions& options,
                                               const std::vector<Json>& bodies) {
  LoadPlan plan = MakePlan(options, bodies);
  if (!std::isinf(options.request_rate)) {
    plan.arrivals_s = ArrivalTimes(static_cast<int>(bodies.size()), options.request_rate,
                                   options.burstiness, options.seed);
  }
  ProgressLine line("run");
  COPPICE_ASSIGN_OR_RETURN(std::vector<RequestRecord> records,
                           RunLoad(plan, [&](const LoadProgress& p) { line.Show(p); }));
  for (size_t k = 0; k < records.size(); ++k) {
    const Json n = bodies[k].value("n", Json());
    if (n.is_number_integer()) records[k].choices = n.get<int>();
    const Json prompt = bodies[k].value("prompt", Json());
    if (!records[k].tokens_from_usage && prompt.is_array()) {
      records[k].prompt_tokens = static_cast<int64_t>(prompt.size());
    }
  }
  return records;
}

// A metadata key must not hide a key of the result.
absl::Status CheckMetadata(const LoadgenOptions& options) {
  RunSettings settings;
  const Json result = ResultJson(RunReport(), settings, {}, /*detailed=*/true);
  for (const std::string& pair : options.metadata) {
    const std::string key = pair.substr(0, pair.find('='));
    if (result.contains(key) || key == "status_counts") {
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
    const std::string concurrency =
        options.max_concurrency > 0 ? absl::StrCat("-concurrency", options.max_concurrency) : "";
    name = absl::StrCat("coppice-", settings.request_rate, "qps", concurrency, "-",
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

int RunLoadgen(LoadgenOptions options, const std::string& command_line) {
  const absl::Status metadata = CheckMetadata(options);
  if (!metadata.ok()) return Fail(2, metadata);
  const auto prompts = ReadPrompts(options);
  if (!prompts.ok()) return Fail(2, prompts.status());
  const auto model = WaitForModel(options);
  if (!model.ok()) return Fail(1, model.status());
  options.model = *model;
  const std::vector<Json> bodies = MakeBodies(options, *prompts);
  const absl::Status warm = WarmUp(options, bodies);
  if (!warm.ok()) return Fail(1, warm);
  const RunSettings settings = {
      .model = options.model,
      .base_url = options.base_url_text,
      .endpoint = options.endpoint,
      .command_line = command_line,
      .date = absl::FormatTime("%Y%m%d-%H%M%S", absl::Now(), absl::LocalTimeZone()),
      .request_rate = options.request_rate,
      .burstiness = options.burstiness,
      .max_concurrency = options.max_concurrency,
      .max_send_lag_ms = options.max_send_lag_ms,
      .metadata = options.metadata};
  const auto records = Run(options, bodies);
  if (!records.ok()) return Fail(1, records.status());
  const RunReport report = MakeReport(*records, settings);
  std::fputs(ReportTable(report, settings).c_str(), stdout);
  if (options.save_result) {
    const absl::Status saved = SaveResult(
        options, settings, ResultJson(report, settings, *records, options.save_detailed));
    if (!saved.ok()) return Fail(1, saved);
  }
  if (!report.valid) return 3;
  const double failed_percent = 100.0 * report.failed / static_cast<double>(records->size());
  return failed_percent > options.max_failed_percent ? 1 : 0;
}

}  // namespace coppice::loadgen
