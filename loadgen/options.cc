#include "loadgen/options.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>

#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/types/optional.h"
#include "base/status.h"
#include "loadgen/option_rules.h"

ABSL_FLAG(std::string, base_url, "http://127.0.0.1:8000",
          "a server, http[s]://host[:port][/path]; may be repeated");
ABSL_FLAG(std::string, endpoint_policy, "round_robin",
          "the server of the next request: round_robin, or least_inflight: fewest running");
ABSL_FLAG(std::string, endpoint, "/v1/completions", "/v1/completions or /v1/chat/completions");
ABSL_FLAG(std::string, model, "", "model name; default: the first of /v1/models");
ABSL_FLAG(std::string, header, "", "K=V, a header of every request; may be repeated");
ABSL_FLAG(std::string, api_key_file, "",
          "file whose first word is the key; default: the variable OPENAI_API_KEY, if set");
ABSL_FLAG(bool, insecure, false, "https: accept any certificate");
ABSL_FLAG(std::string, request_id_prefix, "",
          "send X-Request-Id: this and the request's number; default: no such header");
ABSL_FLAG(std::string, dataset_name, "random",
          "random; custom: JSON lines {prompt or messages, output_tokens?, seed?, body?}; "
          "spec_bench: question.jsonl; azure, burstgpt: CSV files of times and lengths");
ABSL_FLAG(std::string, dataset_path, "", "file of every dataset but random");
ABSL_FLAG(std::string, turns, "first",
          "spec_bench: first turn of each question, or all: each next turn after its answer");
ABSL_FLAG(int32_t, num_prompts, 0,
          "prompts to send, repeated if the file has fewer; 0: 1000 with random, every row of a "
          "file, and with benchmark-duration as many as there is time for");
ABSL_FLAG(int32_t, num_warmups, 0, "requests sent before the run and not counted");
ABSL_FLAG(double, warmup_duration, 0, "seconds of requests before the run that are not counted");
ABSL_FLAG(int32_t, input_len, 128, "random: prompt tokens");
ABSL_FLAG(int32_t, output_len, 128, "max_tokens where the dataset gives none");
ABSL_FLAG(std::string, prompt_form, "ids",
          "prompts of random and of traces: token ids, or text of as many tokens by /tokenize "
          "(always so with chat)");
ABSL_FLAG(uint64_t, seed, 0,
          "seed of arrivals and random prompts; request k is sent with seed + k");
ABSL_FLAG(absl::optional<double>, temperature, absl::nullopt, "sampling field, absent by default");
ABSL_FLAG(absl::optional<double>, top_p, absl::nullopt, "sampling field, absent by default");
ABSL_FLAG(absl::optional<int32_t>, top_k, absl::nullopt, "sampling field, absent by default");
ABSL_FLAG(absl::optional<double>, min_p, absl::nullopt, "sampling field, absent by default");
ABSL_FLAG(absl::optional<int32_t>, logprobs, absl::nullopt, "log-probabilities to ask for");
ABSL_FLAG(bool, use_beam_search, false, "send use_beam_search: true");
ABSL_FLAG(absl::optional<int32_t>, beam_width, absl::nullopt, "beams");
ABSL_FLAG(absl::optional<int32_t>, n, absl::nullopt, "choices for each request");
ABSL_FLAG(std::string, method, "",
          "speculative.method; use extra-body for further fields of speculative");
ABSL_FLAG(bool, ignore_eos, false, "generate to max_tokens (always so with random and traces)");
ABSL_FLAG(std::string, extra_body, "", "JSON object of further fields of every body");
ABSL_FLAG(double, request_rate, std::numeric_limits<double>::infinity(),
          "requests per second; inf: as soon as max-concurrency has room");
ABSL_FLAG(double, burstiness, 1,
          "shape of the gamma-distributed gaps between arrivals; 1 = Poisson");
ABSL_FLAG(std::string, ramp_up_strategy, "",
          "linear or exponential: the rate goes from ramp-up-start-rps to ramp-up-end-rps");
ABSL_FLAG(double, ramp_up_start_rps, 0, "requests per second of the first request");
ABSL_FLAG(double, ramp_up_end_rps, 0, "requests per second of the last request");
ABSL_FLAG(bool, self_timed, true,
          "azure, burstgpt: send at the times of the trace; false: as request-rate says");
ABSL_FLAG(double, trace_speed, 1, "times of the trace are divided by this");
ABSL_FLAG(std::string, trace_window, "",
          "START,SECONDS: only these rows, in seconds after the trace's first");
ABSL_FLAG(int32_t, max_concurrency, 0, "requests at a time, at most; 0 = no limit");
ABSL_FLAG(double, benchmark_duration, 0,
          "seconds after which no request is sent; 0: until every prompt has been sent");
ABSL_FLAG(double, benchmark_grace_period, 30,
          "seconds that requests may go on after benchmark-duration, or inf");
ABSL_FLAG(double, request_timeout_seconds, 600, "seconds that a request may take, from sending");
ABSL_FLAG(double, request_cancellation_rate, 0,
          "percent of the requests whose connection is closed after a delay, if they still run");
ABSL_FLAG(double, request_cancellation_delay, 0, "that delay in seconds, from sending");
ABSL_FLAG(double, ready_check_timeout_sec, 0, "seconds to wait for the server's first answer");
ABSL_FLAG(double, max_failed, 1,
          "percent of requests that may fail; above it the exit status is 1");
ABSL_FLAG(double, max_send_lag, 10,
          "p99 send lag in ms above which the client was too slow and the run is invalid");
ABSL_FLAG(std::string, goodput, "",
          "ttft:MS tpot:MS e2el:MS: bounds that a request must keep to count for goodput");
ABSL_FLAG(bool, save_result, false, "write the result as JSON");
ABSL_FLAG(bool, save_detailed, false, "with save-result: also the arrays of every request");
ABSL_FLAG(bool, save_texts, false, "with save-detailed: also the answers' texts");
ABSL_FLAG(std::string, result_dir, ".", "folder for the result");
ABSL_FLAG(std::string, result_filename, "", "default: made from rate, model and date");
ABSL_FLAG(std::string, metadata, "", "K=V, a further key of the result; may be repeated");

namespace coppice::loadgen {
namespace {

using Json = nlohmann::json;

// sized: prompts without a natural end.
absl::Status AddFields(bool sized, bool chat, Json* fields) {
  const auto add = [&](const char* name, const auto& value) {
    if (value.has_value()) (*fields)[name] = *value;
  };
  add("temperature", absl::GetFlag(FLAGS_temperature));
  add("top_p", absl::GetFlag(FLAGS_top_p));
  add("top_k", absl::GetFlag(FLAGS_top_k));
  add("min_p", absl::GetFlag(FLAGS_min_p));
  if (chat && absl::GetFlag(FLAGS_logprobs).has_value()) (*fields)["logprobs"] = true;
  add(chat ? "top_logprobs" : "logprobs", absl::GetFlag(FLAGS_logprobs));
  add("beam_width", absl::GetFlag(FLAGS_beam_width));
  add("n", absl::GetFlag(FLAGS_n));
  if (absl::GetFlag(FLAGS_use_beam_search)) (*fields)["use_beam_search"] = true;
  if (absl::GetFlag(FLAGS_ignore_eos) || sized) (*fields)["ignore_eos"] = true;
  const std::string method = absl::GetFlag(FLAGS_method);
  if (!method.empty()) (*fields)["speculative"] = {{"method", method}};
  const std::string extra = absl::GetFlag(FLAGS_extra_body);
  if (extra.empty()) return absl::OkStatus();
  const Json json = Json::parse(extra, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return RefuseFlag("extra_body", "expected a JSON object");
  if (json.contains("stream")) return RefuseFlag("extra_body", "stream is always true");
  fields->merge_patch(json);  // into `speculative` too
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

absl::Status ReadHeaders(Servers* servers) {
  for (const absl::string_view line :
       absl::StrSplit(absl::GetFlag(FLAGS_header), '\n', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> pair = absl::StrSplit(line, absl::MaxSplits('=', 1));
    servers->headers.push_back(pair);
  }
  std::string key;
  const std::string path = absl::GetFlag(FLAGS_api_key_file);
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

absl::Status ReadServers(LoadgenOptions* o) {
  for (const absl::string_view text :
       absl::StrSplit(absl::GetFlag(FLAGS_base_url), absl::ByAnyChar("\n,"), absl::SkipEmpty())) {
    COPPICE_ASSIGN_OR_RETURN(BaseUrl url, ParseBaseUrl(std::string(text)));
    o->servers.urls.push_back(std::move(url));
  }
  const std::string policy = absl::GetFlag(FLAGS_endpoint_policy);
  if (policy == "least_inflight") {
    o->endpoint_policy = EndpointPolicy::kLeastInFlight;
  } else if (policy != "round_robin") {
    return RefuseFlag("endpoint_policy", "expected round_robin or least_inflight");
  }
  o->servers.insecure = absl::GetFlag(FLAGS_insecure);
  o->request_id_prefix = absl::GetFlag(FLAGS_request_id_prefix);
  o->endpoint = absl::GetFlag(FLAGS_endpoint);
  o->model = absl::GetFlag(FLAGS_model);
  return ReadHeaders(&o->servers);
}

absl::Status ReadDataset(LoadgenOptions* o) {
  o->dataset_name = absl::GetFlag(FLAGS_dataset_name);
  o->dataset_path = absl::GetFlag(FLAGS_dataset_path);
  const std::string turns = absl::GetFlag(FLAGS_turns);
  if (turns != "first" && turns != "all") return RefuseFlag("turns", "expected first or all");
  o->all_turns = turns == "all";
  o->num_prompts = absl::GetFlag(FLAGS_num_prompts);
  o->input_len = absl::GetFlag(FLAGS_input_len);
  o->output_len = absl::GetFlag(FLAGS_output_len);
  const std::string form = absl::GetFlag(FLAGS_prompt_form);
  if (form != "ids" && form != "text") return RefuseFlag("prompt_form", "expected ids or text");
  o->text_form = form == "text" || o->chat();
  o->seed = absl::GetFlag(FLAGS_seed);
  return AddFields(o->sized(), o->chat(), &o->body_fields);
}

absl::Status ReadTimes(LoadgenOptions* o) {
  o->arrivals.rate = absl::GetFlag(FLAGS_request_rate);
  o->arrivals.burstiness = absl::GetFlag(FLAGS_burstiness);
  const std::string ramp = absl::GetFlag(FLAGS_ramp_up_strategy);
  if (ramp != "" && ramp != "linear" && ramp != "exponential")
    return RefuseFlag("ramp_up_strategy", "expected linear or exponential");
  if (!ramp.empty()) o->arrivals.ramp = ramp == "linear" ? Ramp::kLinear : Ramp::kExponential;
  o->arrivals.ramp_start = absl::GetFlag(FLAGS_ramp_up_start_rps);
  o->arrivals.ramp_end = absl::GetFlag(FLAGS_ramp_up_end_rps);
  o->self_timed = absl::GetFlag(FLAGS_self_timed);
  o->trace_speed = absl::GetFlag(FLAGS_trace_speed);
  const std::string window = absl::GetFlag(FLAGS_trace_window);
  const std::pair<std::string, std::string> parts = absl::StrSplit(window, absl::MaxSplits(',', 1));
  if (!window.empty() && !(absl::SimpleAtod(parts.first, &o->window_start_s) &&
                           absl::SimpleAtod(parts.second, &o->window_s) && o->window_start_s >= 0 &&
                           o->window_s > 0)) {
    return RefuseFlag("trace_window", "expected START,SECONDS");
  }
  o->max_concurrency = absl::GetFlag(FLAGS_max_concurrency);
  o->num_warmups = absl::GetFlag(FLAGS_num_warmups);
  o->warmup_s = absl::GetFlag(FLAGS_warmup_duration);
  o->benchmark_s = o->arrivals.duration_s = absl::GetFlag(FLAGS_benchmark_duration);
  o->grace_s = absl::GetFlag(FLAGS_benchmark_grace_period);
  return absl::OkStatus();
}

absl::Status ReadLimits(LoadgenOptions* o) {
  o->request_timeout_s = absl::GetFlag(FLAGS_request_timeout_seconds);
  o->ready_timeout_s = absl::GetFlag(FLAGS_ready_check_timeout_sec);
  o->cancel_percent = absl::GetFlag(FLAGS_request_cancellation_rate);
  o->cancel_delay_s = absl::GetFlag(FLAGS_request_cancellation_delay);
  o->max_failed_percent = absl::GetFlag(FLAGS_max_failed);
  o->max_send_lag_ms = absl::GetFlag(FLAGS_max_send_lag);
  const auto objectives = ParseObjectives(absl::GetFlag(FLAGS_goodput));
  if (!objectives.ok()) return RefuseFlag("goodput", objectives.status().message());
  o->objectives = *objectives;
  o->save_result = absl::GetFlag(FLAGS_save_result);
  o->save_detailed = absl::GetFlag(FLAGS_save_detailed);
  o->save_texts = absl::GetFlag(FLAGS_save_texts);
  o->result_dir = absl::GetFlag(FLAGS_result_dir);
  o->result_filename = absl::GetFlag(FLAGS_result_filename);
  o->metadata = absl::StrSplit(absl::GetFlag(FLAGS_metadata), '\n', absl::SkipEmpty());
  return absl::OkStatus();
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

ProgramUsage FlagUsage() {
  return {"Sends prompts to OpenAI-compatible servers and measures the streams.",
          {{"Servers",
            {"base_url", "endpoint_policy", "endpoint", "model", "header", "api_key_file",
             "insecure", "request_id_prefix", "ready_check_timeout_sec"}},
           {"Prompts",
            {"dataset_name", "dataset_path", "turns", "num_prompts", "input_len", "output_len",
             "prompt_form", "seed"}},
           {"Fields of every request",
            {"temperature", "top_p", "top_k", "min_p", "logprobs", "use_beam_search", "beam_width",
             "n", "method", "ignore_eos", "extra_body"}},
           {"Arrivals",
            {"request_rate", "burstiness", "max_concurrency", "ramp_up_strategy",
             "ramp_up_start_rps", "ramp_up_end_rps", "self_timed", "trace_speed", "trace_window"}},
           {"Duration",
            {"num_warmups", "warmup_duration", "benchmark_duration", "benchmark_grace_period"}},
           {"Limits",
            {"request_timeout_seconds", "request_cancellation_rate", "request_cancellation_delay",
             "max_failed", "max_send_lag", "goodput"}},
           {"Result",
            {"save_result", "save_detailed", "save_texts", "result_dir", "result_filename",
             "metadata"}}},
          /*dashes=*/true};
}

absl::StatusOr<LoadgenOptions> ReadOptions() {
  LoadgenOptions o;
  COPPICE_RETURN_IF_ERROR(ReadServers(&o));
  COPPICE_RETURN_IF_ERROR(ReadDataset(&o));
  COPPICE_RETURN_IF_ERROR(ReadTimes(&o));
  COPPICE_RETURN_IF_ERROR(ReadLimits(&o));
  COPPICE_RETURN_IF_ERROR(CheckOptions(o));
  return o;
}

}  // namespace coppice::loadgen
