#include "loadgen/options.h"

#include <algorithm>
#include <limits>

#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/status.h"

ABSL_FLAG(std::string, base_url, "http://127.0.0.1:8000", "the server, http://host[:port][/path]");
ABSL_FLAG(std::string, endpoint, "/v1/completions", "/v1/completions or /v1/chat/completions");
ABSL_FLAG(std::string, model, "", "model name; default: the first of /v1/models");
ABSL_FLAG(std::string, dataset_name, "random", "random token ids, or custom: a file of JSON lines");
ABSL_FLAG(
    std::string, dataset_path, "",
    "custom: JSON lines {prompt, output_tokens?, seed?, body?}, repeated if there are too few");
ABSL_FLAG(int32_t, num_prompts, 1000, "requests to send");
ABSL_FLAG(int32_t, num_warmups, 0, "requests sent before the run and not counted");
ABSL_FLAG(int32_t, input_len, 128, "random: prompt tokens");
ABSL_FLAG(int32_t, output_len, 128, "max_tokens where the dataset gives none");
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
ABSL_FLAG(bool, ignore_eos, false, "generate to max_tokens (always so with random)");
ABSL_FLAG(std::string, extra_body, "", "JSON object of further fields of every body");
ABSL_FLAG(double, request_rate, std::numeric_limits<double>::infinity(),
          "requests per second; inf: as soon as max-concurrency has room");
ABSL_FLAG(double, burstiness, 1,
          "shape of the gamma-distributed gaps between arrivals; 1 = Poisson");
ABSL_FLAG(int32_t, max_concurrency, 0, "requests at a time, at most; 0 = no limit");
ABSL_FLAG(double, request_timeout_seconds, 600, "seconds that a request may take, from sending");
ABSL_FLAG(double, ready_check_timeout_sec, 0, "seconds to wait for the server's first answer");
ABSL_FLAG(double, max_failed, 1,
          "percent of requests that may fail; above it the exit status is 1");
ABSL_FLAG(double, max_send_lag, 10,
          "p99 send lag in ms above which the client was too slow and the run is invalid");
ABSL_FLAG(bool, save_result, false, "write the result as JSON");
ABSL_FLAG(bool, save_detailed, false, "with save-result: also the arrays of every request");
ABSL_FLAG(std::string, result_dir, ".", "folder for the result");
ABSL_FLAG(std::string, result_filename, "", "default: made from rate, model and date");
ABSL_FLAG(std::vector<std::string>, metadata, {}, "K=V,K=V: further keys of the result");

namespace coppice::loadgen {
namespace {

using Json = nlohmann::json;

absl::Status Refuse(absl::string_view flag, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, ": ", expected));
}

absl::Status AddFields(Json* fields) {
  const auto add = [&](const char* name, const auto& value) {
    if (value.has_value()) (*fields)[name] = *value;
  };
  add("temperature", absl::GetFlag(FLAGS_temperature));
  add("top_p", absl::GetFlag(FLAGS_top_p));
  add("top_k", absl::GetFlag(FLAGS_top_k));
  add("min_p", absl::GetFlag(FLAGS_min_p));
  add("logprobs", absl::GetFlag(FLAGS_logprobs));
  add("beam_width", absl::GetFlag(FLAGS_beam_width));
  add("n", absl::GetFlag(FLAGS_n));
  if (absl::GetFlag(FLAGS_use_beam_search)) (*fields)["use_beam_search"] = true;
  const bool random = absl::GetFlag(FLAGS_dataset_name) == "random";
  if (absl::GetFlag(FLAGS_ignore_eos) || random) (*fields)["ignore_eos"] = true;
  const std::string method = absl::GetFlag(FLAGS_method);
  if (!method.empty()) (*fields)["speculative"] = {{"method", method}};
  const std::string extra = absl::GetFlag(FLAGS_extra_body);
  if (extra.empty()) return absl::OkStatus();
  const Json json = Json::parse(extra, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Refuse("extra_body", "expected a JSON object");
  if (json.contains("stream")) return Refuse("extra_body", "stream is always true");
  fields->merge_patch(json);  // into `speculative` too
  return absl::OkStatus();
}

absl::Status Check(const LoadgenOptions& o) {
  if (!o.chat() && o.endpoint != "/v1/completions") {
    return Refuse("endpoint", "expected /v1/completions or /v1/chat/completions");
  }
  if (o.dataset_name == "custom" && o.dataset_path.empty()) {
    return Refuse("dataset_path", "expected a file with --dataset_name=custom");
  }
  if (o.dataset_name == "random" && !o.dataset_path.empty()) {
    return Refuse("dataset_path", "has no effect with --dataset_name=random");
  }
  if (o.dataset_name != "custom" && o.dataset_name != "random") {
    return Refuse("dataset_name", "expected random or custom");
  }
  if (o.dataset_name == "random" && o.chat()) {
    return Refuse("dataset_name", "random token ids need /v1/completions");
  }
  if (o.num_prompts < 1) return Refuse("num_prompts", "expected at least 1");
  if (o.num_warmups < 0) return Refuse("num_warmups", "expected at least 0");
  if (o.input_len < 1) return Refuse("input_len", "expected at least 1");
  if (o.output_len < 1) return Refuse("output_len", "expected at least 1");
  if (!(o.request_rate > 0)) return Refuse("request_rate", "expected more than 0, or inf");
  if (!(o.burstiness > 0)) return Refuse("burstiness", "expected more than 0");
  if (o.max_concurrency < 0) return Refuse("max_concurrency", "expected at least 0");
  if (!(o.request_timeout_s > 0)) return Refuse("request_timeout_seconds", "expected more than 0");
  if (!(o.ready_timeout_s >= 0)) return Refuse("ready_check_timeout_sec", "expected at least 0");
  if (!(o.max_failed_percent >= 0)) return Refuse("max_failed", "expected at least 0 percent");
  if (!(o.max_send_lag_ms > 0)) return Refuse("max_send_lag", "expected more than 0 ms");
  if (o.save_detailed && !o.save_result) {
    return Refuse("save_detailed", "has no effect without --save_result");
  }
  for (const std::string& pair : o.metadata) {
    const size_t equals = pair.find('=');
    if (equals == std::string::npos || equals == 0) return Refuse("metadata", "expected K=V");
  }
  return absl::OkStatus();
}

}  // namespace

bool LoadgenOptions::chat() const { return endpoint == "/v1/chat/completions"; }

std::vector<std::string> NormalizeFlagNames(const std::vector<std::string>& arguments) {
  std::vector<std::string> result = arguments;
  for (std::string& argument : result) {
    if (!absl::StartsWith(argument, "--")) continue;
    const size_t end = std::min(argument.find('='), argument.size());
    std::replace(argument.begin() + 2, argument.begin() + static_cast<ptrdiff_t>(end), '-', '_');
  }
  return result;
}

ProgramUsage FlagUsage() {
  return {
      "Sends prompts to an OpenAI-compatible server and measures the streams.",
      {{"Server", {"base_url", "endpoint", "model", "ready_check_timeout_sec"}},
       {"Prompts",
        {"dataset_name", "dataset_path", "num_prompts", "num_warmups", "input_len", "output_len",
         "seed"}},
       {"Fields of every request",
        {"temperature", "top_p", "top_k", "min_p", "logprobs", "use_beam_search", "beam_width", "n",
         "method", "ignore_eos", "extra_body"}},
       {"Arrivals", {"request_rate", "burstiness", "max_concurrency"}},
       {"Limits", {"request_timeout_seconds", "max_failed", "max_send_lag"}},
       {"Result", {"save_result", "save_detailed", "result_dir", "result_filename", "metadata"}}},
      /*dashes=*/true};
}

absl::StatusOr<LoadgenOptions> ReadOptions() {
  LoadgenOptions o;
  o.base_url_text = absl::GetFlag(FLAGS_base_url);
  COPPICE_ASSIGN_OR_RETURN(o.base_url, ParseBaseUrl(o.base_url_text));
  o.endpoint = absl::GetFlag(FLAGS_endpoint);
  o.model = absl::GetFlag(FLAGS_model);
  o.dataset_name = absl::GetFlag(FLAGS_dataset_name);
  o.dataset_path = absl::GetFlag(FLAGS_dataset_path);
  o.num_prompts = absl::GetFlag(FLAGS_num_prompts);
  o.num_warmups = absl::GetFlag(FLAGS_num_warmups);
  o.input_len = absl::GetFlag(FLAGS_input_len);
  o.output_len = absl::GetFlag(FLAGS_output_len);
  o.seed = absl::GetFlag(FLAGS_seed);
  COPPICE_RETURN_IF_ERROR(AddFields(&o.body_fields));
  o.request_rate = absl::GetFlag(FLAGS_request_rate);
  o.burstiness = absl::GetFlag(FLAGS_burstiness);
  o.max_concurrency = absl::GetFlag(FLAGS_max_concurrency);
  o.request_timeout_s = absl::GetFlag(FLAGS_request_timeout_seconds);
  o.ready_timeout_s = absl::GetFlag(FLAGS_ready_check_timeout_sec);
  o.max_failed_percent = absl::GetFlag(FLAGS_max_failed);
  o.max_send_lag_ms = absl::GetFlag(FLAGS_max_send_lag);
  o.save_result = absl::GetFlag(FLAGS_save_result);
  o.save_detailed = absl::GetFlag(FLAGS_save_detailed);
  o.result_dir = absl::GetFlag(FLAGS_result_dir);
  o.result_filename = absl::GetFlag(FLAGS_result_filename);
  o.metadata = absl::GetFlag(FLAGS_metadata);
  COPPICE_RETURN_IF_ERROR(Check(o));
  return o;
}

}  // namespace coppice::loadgen
