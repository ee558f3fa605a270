#include "loadgen/workload.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "loadgen/client.h"
#include "loadgen/dataset.h"
#include "loadgen/http_fetch.h"
#include "loadgen/text_fitter.h"
#include "loadgen/trace.h"

namespace coppice::loadgen {
namespace {

using Json = nlohmann::json;

constexpr int kDefaultRandomPrompts = 1000;

absl::Status CheckPrompts(const LoadgenOptions& options, const std::vector<Prompt>& prompts) {
  const auto refuse = [&](const char* why) {
    return absl::InvalidArgumentError(absl::StrCat(options.dataset_path, ": ", why));
  };
  for (const Prompt& prompt : prompts) {
    if (!options.chat() && !prompt.messages.is_null())
      return refuse("messages need --endpoint=/v1/chat/completions");
    if (options.chat() && prompt.text.is_array()) return refuse("token ids need /v1/completions");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Prompt>> ReadTraceRows(const LoadgenOptions& options) {
  COPPICE_ASSIGN_OR_RETURN(Trace trace, options.dataset_name == "azure"
                                            ? ReadAzureTrace(options.dataset_path)
                                            : ReadBurstGptTrace(options.dataset_path));
  return std::move(trace.prompts);
}

// Rows of a trace at the times of the trace.
absl::Status TakeTraceTimes(const LoadgenOptions& options, std::vector<Prompt> rows,
                            Workload* work) {
  for (Prompt& row : rows) {
    if (options.benchmark_s > 0 && row.at_s >= options.benchmark_s) break;
    if (options.num_prompts > 0 && work->arrivals_s.size() == options.num_prompts) break;
    work->arrivals_s.push_back(row.at_s);
    work->prompts.push_back(std::move(row));
  }
  work->conversations = static_cast<int64_t>(work->prompts.size());
  if (work->prompts.empty())
    return absl::InvalidArgumentError("no row of the trace is left to send");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Prompt>> ReadPrompts(const LoadgenOptions& options) {
  if (options.trace()) return ReadTraceRows(options);
  if (options.dataset_name == "random") {
    Prompt prompt;
    prompt.input_len = options.input_len;
    const int count = options.num_prompts > 0 ? options.num_prompts : kDefaultRandomPrompts;
    return std::vector<Prompt>(count, prompt);
  }
  COPPICE_ASSIGN_OR_RETURN(std::vector<Prompt> prompts,
                           options.dataset_name == "custom"
                               ? ReadCustomDataset(options.dataset_path)
                               : ReadSpecBench(options.dataset_path, options.all_turns));
  COPPICE_RETURN_IF_ERROR(CheckPrompts(options, prompts));
  if (prompts.size() < static_cast<size_t>(options.num_prompts)) {
    std::fprintf(stderr, "coppice-loadgen: %zu prompts in %s are repeated to %d\n", prompts.size(),
                 options.dataset_path.c_str(), options.num_prompts);
  }
  return TakePrompts(std::move(prompts), options.num_prompts);
}

absl::StatusOr<Workload> MakeWorkload(const LoadgenOptions& options, std::vector<Prompt> prompts,
                                      const ModelInfo& model) {
  Workload work;
  if (options.trace()) {
    Trace trace;
    trace.prompts = std::move(prompts);
    trace = CutTrace(std::move(trace), options.window_start_s, options.window_s,
                     options.trace_speed, model.max_model_len);
    work.dropped_rows = trace.too_long_rows;
    work.empty_rows = trace.empty_rows;
    if (options.trace_times()) {
      COPPICE_RETURN_IF_ERROR(TakeTraceTimes(options, std::move(trace.prompts), &work));
      return work;
    }
    prompts = TakePrompts(std::move(trace.prompts), options.num_prompts);
    if (prompts.empty()) return absl::InvalidArgumentError("no row of the trace is left to send");
  }
  work.prompts = std::move(prompts);
  const bool endless = options.benchmark_s > 0 && options.num_prompts == 0;
  work.conversations = endless ? LoadPlan::kEndless : static_cast<int64_t>(work.prompts.size());
  if (!options.open_loop()) return work;
  const int count = endless ? 0 : static_cast<int>(work.prompts.size());
  work.arrivals_s = ArrivalTimes(count, options.arrivals, options.seed);
  work.conversations = static_cast<int64_t>(work.arrivals_s.size());
  if (work.arrivals_s.empty())
    return absl::InvalidArgumentError("--benchmark_duration: no request falls into it");
  return work;
}

absl::Status FitTexts(const LoadgenOptions& options, const ModelInfo& model,
                      std::vector<Prompt>* prompts) {
  const CountTokens count = [&](const std::string& text) -> absl::StatusOr<int> {
    Json body = {{"model", model.name}};
    if (options.chat()) {
      body["messages"] = Json::array({{{"role", "user"}, {"content", text}}});
    } else {
      body["prompt"] = text;
    }
    COPPICE_ASSIGN_OR_RETURN(
        const std::string answer,
        HttpFetch(options.servers, 0, "/tokenize", body.dump(), options.request_timeout_s));
    const Json json = Json::parse(answer, nullptr, /*allow_exceptions=*/false);
    const Json tokens = json.is_object() ? json.value("count", Json()) : Json();
    if (!tokens.is_number_integer())
      return absl::UnavailableError("/tokenize: expected an answer with count");
    return tokens.get<int>();
  };
  for (size_t i = 0; i < prompts->size(); ++i) {
    Prompt& prompt = (*prompts)[i];
    if (prompt.input_len == 0) continue;
    COPPICE_ASSIGN_OR_RETURN(prompt.text, FitText(prompt.input_len, options.seed + i, count));
    prompt.input_len = 0;
  }
  return absl::OkStatus();
}

}  // namespace coppice::loadgen
