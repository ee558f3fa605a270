#include "loadgen/options.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "loadgen/option_rules.h"

namespace coppice::loadgen {
namespace {

using Json = nlohmann::json;

// sized: prompts without a natural end.
absl::Status AddFields(const LoadgenFlags& flags, bool sized, bool chat, Json* fields) {
  const auto add = [&](const char* name, const auto& value) {
    if (value.has_value()) (*fields)[name] = *value;
  };
  add("temperature", flags.temperature);
  add("top_p", flags.top_p);
  add("top_k", flags.top_k);
  add("min_p", flags.min_p);
  if (chat && flags.logprobs.has_value()) (*fields)["logprobs"] = true;
  add(chat ? "top_logprobs" : "logprobs", flags.logprobs);
  add("beam_width", flags.beam_width);
  add("n", flags.n);
  if (flags.use_beam_search) (*fields)["use_beam_search"] = true;
  if (flags.ignore_eos || sized) (*fields)["ignore_eos"] = true;
  const std::string method = flags.method;
  if (!method.empty()) (*fields)["speculative"] = {{"method", method}};
  const std::string extra = flags.extra_body;
  if (extra.empty()) return absl::OkStatus();
  const Json json = Json::parse(extra, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return RefuseFlag("extra_body", "expected a JSON object");
  if (json.contains("stream")) return RefuseFlag("extra_body", "stream is always true");
  fields->merge_patch(json);  // also merges the fields of `speculative`
  return absl::OkStatus();
}

// The first word that is not behind a #, so that a file of the coordinator's keys serves too.
absl::StatusOr<std::string> ReadApiKey(const std::string& path) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> words =
        absl::StrSplit(line.substr(0, line.find('#')), absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (!words.empty()) return words[0];
  }
  return RefuseFlag("api_key_file", absl::StrCat("no key in ", path));
}

absl::Status ReadHeaders(const LoadgenFlags& flags, Servers* servers) {
  for (const absl::string_view line : absl::StrSplit(flags.headers, '\n', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> pair = absl::StrSplit(line, absl::MaxSplits('=', 1));
    servers->headers.push_back(pair);
  }
  std::string key;
  const std::string path = flags.api_key_file;
  if (!path.empty()) {
    COPPICE_ASSIGN_OR_RETURN(key, ReadApiKey(path));
  } else if (const char* variable = std::getenv("OPENAI_API_KEY")) {
    const bool given =
        std::any_of(servers->headers.begin(), servers->headers.end(),
                    [](const auto& h) { return absl::EqualsIgnoreCase(h.first, "Authorization"); });
    if (!given) key = variable;
  }
  if (!key.empty()) servers->headers.emplace_back("Authorization", "Bearer " + key);
  return absl::OkStatus();
}

absl::Status ReadServers(const LoadgenFlags& flags, LoadgenOptions* o) {
  for (const absl::string_view text :
       absl::StrSplit(flags.base_urls, absl::ByAnyChar("\n,"), absl::SkipEmpty())) {
    COPPICE_ASSIGN_OR_RETURN(BaseUrl url, ParseBaseUrl(std::string(text)));
    o->servers.urls.push_back(std::move(url));
  }
  if (flags.endpoint_policy == "least_inflight")
    o->endpoint_policy = EndpointPolicy::kLeastInFlight;
  return ReadHeaders(flags, &o->servers);
}

absl::Status ReadDataset(const LoadgenFlags& flags, LoadgenOptions* o) {
  o->all_turns = flags.turns == "all";
  o->text_form = flags.prompt_form == "text" || o->chat();
  return AddFields(flags, o->sized(), o->chat(), &o->body_fields);
}

absl::Status ReadTimes(const LoadgenFlags& flags, LoadgenOptions* o) {
  const std::string& ramp = flags.ramp_up_strategy;
  if (!ramp.empty()) o->arrivals.ramp = ramp == "linear" ? Ramp::kLinear : Ramp::kExponential;
  const std::string window = flags.trace_window;
  const std::pair<std::string, std::string> parts = absl::StrSplit(window, absl::MaxSplits(',', 1));
  if (!window.empty() && !(absl::SimpleAtod(parts.first, &o->window_start_s) &&
                           absl::SimpleAtod(parts.second, &o->window_s) && o->window_start_s >= 0 &&
                           o->window_s > 0)) {
    return RefuseFlag("trace_window", "expected START,SECONDS");
  }
  o->arrivals.duration_s = o->benchmark_s;
  return absl::OkStatus();
}

absl::Status ReadLimits(const LoadgenFlags& flags, LoadgenOptions* o) {
  const auto objectives = ParseObjectives(flags.goodput);
  if (!objectives.ok()) return RefuseFlag("goodput", objectives.status().message());
  o->objectives = *objectives;
  o->metadata = absl::StrSplit(flags.metadata, '\n', absl::SkipEmpty());
  return absl::OkStatus();
}

FlagGroup ServerGroup(LoadgenFlags* flags) {
  LoadgenOptions* options = &flags->options;
  return {"Servers",
          {{.name = "base_url",
            .value = &flags->base_urls,
            .text = "a server, http[s]://host[:port][/path]; may be repeated"},
           {.name = "endpoint_policy",
            .value = &flags->endpoint_policy,
            .words = {"round_robin", "least_inflight"},
            .text = "the server of the next request; least_inflight is that with fewest running"},
           {.name = "endpoint",
            .value = &options->endpoint,
            .words = {"/v1/completions", "/v1/chat/completions"},
            .text = "path of the requests"},
           {.name = "model",
            .value = &options->model,
            .own_default = "the first of /v1/models",
            .text = "model name"},
           {.name = "header",
            .value = &flags->headers,
            .text = "K=V, a header of every request; may be repeated"},
           {.name = "api_key_file",
            .value = &flags->api_key_file,
            .own_default = "the variable OPENAI_API_KEY, if set",
            .text = "file whose first word is the key"},
           {.name = "insecure",
            .value = &options->servers.insecure,
            .text = "https: accept any certificate"},
           {.name = "request_id_prefix",
            .value = &options->request_id_prefix,
            .own_default = "no such header",
            .text = "send X-Request-Id: this and the request's number"},
           {.name = "ready_check_timeout_sec",
            .value = &options->ready_timeout_s,
            .range = {0},
            .text = "seconds to wait for the server's first answer"}}};
}

FlagGroup PromptGroup(LoadgenFlags* flags) {
  LoadgenOptions* options = &flags->options;
  return {
      "Prompts",
      {{.name = "dataset_name",
        .value = &options->dataset_name,
        .words = {"random", "custom", "spec_bench", "azure", "burstgpt"},
        .text = "custom is JSON lines {prompt or messages, output_tokens?, seed?, body?}; "
                "spec_bench is question.jsonl; azure and burstgpt are CSV files of times and "
                "lengths"},
       {.name = "dataset_path",
        .value = &options->dataset_path,
        .text = "file of every dataset but random"},
       {.name = "turns",
        .value = &flags->turns,
        .words = {"first", "all"},
        .text = "spec_bench: turns of each question; each next turn is sent after the answer"},
       {.name = "num_prompts",
        .value = &options->num_prompts,
        .range = {0},
        .text =
            "prompts to send, repeated if the file has fewer; 0: 1000 with random, every row of "
            "a file, and with benchmark-duration as many as fit its time"},
       {.name = "input_len",
        .value = &options->input_len,
        .range = {1},
        .text = "random: prompt tokens"},
       {.name = "output_len",
        .value = &options->output_len,
        .range = {1},
        .text = "max_tokens where the dataset gives none"},
       {.name = "prompt_form",
        .value = &flags->prompt_form,
        .words = {"ids", "text"},
        .text = "prompts of random and of traces: token ids, or text of the same number of tokens "
                "by /tokenize; chats are always text"},
       {.name = "seed",
        .value = &options->seed,
        .text = "seed of arrivals and random prompts; request k is sent with seed + k"}}};
}

FlagGroup FieldGroup(LoadgenFlags* flags) {
  return {"Fields of every request",
          {{.name = "temperature",
            .value = &flags->temperature,
            .text = "sampling field, absent by default"},
           {.name = "top_p", .value = &flags->top_p, .text = "sampling field, absent by default"},
           {.name = "top_k", .value = &flags->top_k, .text = "sampling field, absent by default"},
           {.name = "min_p", .value = &flags->min_p, .text = "sampling field, absent by default"},
           {.name = "logprobs", .value = &flags->logprobs, .text = "log-probabilities to ask for"},
           {.name = "use_beam_search",
            .value = &flags->use_beam_search,
            .text = "send use_beam_search: true"},
           {.name = "beam_width", .value = &flags->beam_width, .text = "beams"},
           {.name = "n", .value = &flags->n, .text = "choices for each request"},
           {.name = "method",
            .value = &flags->method,
            .text = "speculative.method; use extra-body for further fields of speculative"},
           {.name = "ignore_eos",
            .value = &flags->ignore_eos,
            .text = "generate to max_tokens (always so with random and traces)"},
           {.name = "extra_body",
            .value = &flags->extra_body,
            .text = "JSON object of further fields of every body"}}};
}

FlagGroup ArrivalGroup(LoadgenFlags* flags) {
  LoadgenOptions* options = &flags->options;
  ArrivalProcess* arrivals = &options->arrivals;
  return {"Arrivals",
          {{.name = "request_rate",
            .value = &arrivals->rate,
            .range = {.low = 0, .above = true},
            .text = "requests per second; inf: as soon as max-concurrency has room"},
           {.name = "burstiness",
            .value = &arrivals->burstiness,
            .range = {.low = 0, .above = true},
            .text = "shape of the gamma-distributed gaps between arrivals; 1 = Poisson"},
           {.name = "max_concurrency",
            .value = &options->max_concurrency,
            .range = {0},
            .text = "requests at a time, at most; 0 = no limit"},
           {.name = "ramp_up_strategy",
            .value = &flags->ramp_up_strategy,
            .words = {"", "linear", "exponential"},
            .text = "how the rate goes from ramp-up-start-rps to ramp-up-end-rps"},
           {.name = "ramp_up_start_rps",
            .value = &arrivals->ramp_start,
            .text = "requests per second of the first request"},
           {.name = "ramp_up_end_rps",
            .value = &arrivals->ramp_end,
            .text = "requests per second of the last request"},
           {.name = "self_timed",
            .value = &options->self_timed,
            .text = "azure, burstgpt: send at the times of the trace; false: at request-rate"},
           {.name = "trace_speed",
            .value = &options->trace_speed,
            .range = {.low = 0, .above = true},
            .text = "times of the trace are divided by this"},
           {.name = "trace_window",
            .value = &flags->trace_window,
            .text = "START,SECONDS: only these rows, in seconds after the trace's first"}}};
}

FlagGroup DurationGroup(LoadgenOptions* options) {
  return {"Duration",
          {{.name = "num_warmups",
            .value = &options->num_warmups,
            .range = {0},
            .text = "requests sent before the run and not counted"},
           {.name = "warmup_duration",
            .value = &options->warmup_s,
            .range = {0},
            .text = "seconds of requests before the run that are not counted"},
           {.name = "benchmark_duration",
            .value = &options->benchmark_s,
            .range = {0},
            .text = "seconds after which no request is sent; 0: until every prompt has been sent"},
           {.name = "benchmark_grace_period",
            .value = &options->grace_s,
            .range = {0},
            .text = "seconds that requests may go on after benchmark-duration, or inf"}}};
}

FlagGroup LimitGroup(LoadgenFlags* flags) {
  LoadgenOptions* options = &flags->options;
  return {
      "Limits",
      {{.name = "request_timeout_seconds",
        .value = &options->request_timeout_s,
        .range = {.low = 0, .above = true},
        .text = "seconds that a request may take, from sending"},
       {.name = "request_cancellation_rate",
        .value = &options->cancel_percent,
        .range = {0, 100},
        .text = "percent of the requests whose connection is closed after a delay, if they still "
                "run"},
       {.name = "request_cancellation_delay",
        .value = &options->cancel_delay_s,
        .range = {0},
        .text = "that delay in seconds, from sending"},
       {.name = "max_failed",
        .value = &options->max_failed_percent,
        .range = {0},
        .text = "percent of requests that may fail; above it the exit status is 1"},
       {.name = "max_send_lag",
        .value = &options->max_send_lag_ms,
        .range = {.low = 0, .above = true},
        .text = "p99 send lag in ms above which the client was too slow and the run is invalid"},
       {.name = "goodput",
        .value = &flags->goodput,
        .text = "ttft:MS tpot:MS e2el:MS: bounds that a request must keep to count for goodput"}}};
}

FlagGroup ResultGroup(LoadgenFlags* flags) {
  LoadgenOptions* options = &flags->options;
  return {
      "Result",
      {{.name = "save_result", .value = &options->save_result, .text = "write the result as JSON"},
       {.name = "save_detailed",
        .value = &options->save_detailed,
        .text = "with save-result: also the arrays of every request"},
       {.name = "save_texts",
        .value = &options->save_texts,
        .text = "with save-detailed: also the answers' texts"},
       {.name = "result_dir", .value = &options->result_dir, .text = "folder for the result"},
       {.name = "result_filename",
        .value = &options->result_filename,
        .own_default = "made from rate, model and date",
        .text = "file of the result"},
       {.name = "metadata",
        .value = &flags->metadata,
        .text = "K=V, a further key of the result; may be repeated"}}};
}

}  // namespace

bool LoadgenOptions::chat() const { return endpoint == "/v1/chat/completions"; }
bool LoadgenOptions::trace() const { return dataset_name == "azure" || dataset_name == "burstgpt"; }
bool LoadgenOptions::sized() const { return dataset_name == "random" || trace(); }
bool LoadgenOptions::trace_times() const { return trace() && self_timed; }
bool LoadgenOptions::open_loop() const {
  return trace_times() || arrivals.ramp != Ramp::kNone || !std::isinf(arrivals.rate);
}
std::string LoadgenOptions::endpoints() const {
  return absl::StrJoin(servers.urls, " ", [](std::string* out, const BaseUrl& url) {
    absl::StrAppend(out, url.Text());
  });
}

FlagTable LoadgenFlagTable(LoadgenFlags* flags) {
  return {.program = "coppice-loadgen",
          .about = "Sends prompts to OpenAI-compatible servers and measures the streams.",
          .groups = {ServerGroup(flags), PromptGroup(flags), FieldGroup(flags), ArrivalGroup(flags),
                     DurationGroup(&flags->options), LimitGroup(flags), ResultGroup(flags)},
          .dashes = true,
          .check = [flags](FlagFaults* faults) {
            auto options = ReadOptions(*flags);
            faults->Add(options.status());
            if (options.ok()) flags->options = *std::move(options);
          }};
}

absl::StatusOr<LoadgenOptions> ReadOptions(const LoadgenFlags& flags) {
  LoadgenOptions o = flags.options;
  COPPICE_RETURN_IF_ERROR(ReadServers(flags, &o));
  COPPICE_RETURN_IF_ERROR(ReadDataset(flags, &o));
  COPPICE_RETURN_IF_ERROR(ReadTimes(flags, &o));
  COPPICE_RETURN_IF_ERROR(ReadLimits(flags, &o));
  COPPICE_RETURN_IF_ERROR(CheckOptions(o));
  return o;
}

}  // namespace coppice::loadgen
