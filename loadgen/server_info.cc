#include "loadgen/server_info.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "loadgen/http_fetch.h"

namespace coppice::loadgen {
namespace {

using Json = nlohmann::json;

constexpr double kReadyRetryS = 0.2, kAnswerS = 30;
constexpr char kPerPosition[] = "spec_decode_num_accepted_tokens_per_pos";

double Gain(const ServerCounters& before, const ServerCounters& after, const std::string& name) {
  const auto then = before.totals.find(name), now = after.totals.find(name);
  if (now == after.totals.end()) return 0;
  const double gain = now->second - (then == before.totals.end() ? 0 : then->second);
  return std::max(0.0, gain);  // a server that was restarted counts from 0
}

// The value of a label in {a="b",...}; "" if it is not there.
std::string Label(absl::string_view labels, absl::string_view name) {
  const size_t at = labels.find(absl::StrCat(name, "=\""));
  if (at == absl::string_view::npos) return "";
  const size_t start = at + name.size() + 2;
  return std::string(labels.substr(start, labels.find('"', start) - start));
}

// name{labels} value [time]
void AddLine(absl::string_view line, ServerCounters* counters) {
  const size_t brace = line.find('{');
  const size_t end = brace == absl::string_view::npos ? line.find(' ') : line.rfind('}');
  if (end == absl::string_view::npos) return;
  const std::vector<absl::string_view> values =
      absl::StrSplit(line.substr(end + 1), ' ', absl::SkipEmpty());
  double value = 0;
  if (values.empty() || !absl::SimpleAtod(values[0], &value) || !std::isfinite(value)) return;
  const std::string name(absl::StripSuffix(line.substr(0, std::min(brace, end)), "_total"));
  counters->totals[name] += value;
  int position = 0;
  if (name == kPerPosition && absl::SimpleAtoi(Label(line.substr(0, end), "position"), &position))
    counters->accepted_by_position[position] += value;
}

}  // namespace

absl::StatusOr<ModelInfo> WaitForModel(const LoadgenOptions& options) {
  ModelInfo info;
  info.name = options.model;
  if (!options.model.empty() && options.ready_timeout_s == 0 && !options.trace()) return info;
  const absl::Time deadline = absl::Now() + absl::Seconds(options.ready_timeout_s);
  Json first;
  for (size_t i = 0; i < options.servers.urls.size(); ++i) {
    absl::StatusOr<std::string> body;
    while (true) {
      body = HttpFetch(options.servers, i, "/v1/models", "",
                       std::min(options.request_timeout_s, kAnswerS));
      if (body.ok() || absl::Now() >= deadline) break;
      std::this_thread::sleep_for(std::chrono::duration<double>(kReadyRetryS));
    }
    if (!body.ok()) return body.status();
    if (i == 0) first = Json::parse(*body, nullptr, /*allow_exceptions=*/false);
  }
  const Json data = first.is_object() ? first.value("data", Json()) : Json();
  for (const Json& model : data.is_array() ? data : Json::array()) {
    const Json id = model.is_object() ? model.value("id", Json()) : Json();
    if (!id.is_string()) continue;
    if (info.name.empty()) info.name = id.get<std::string>();
    if (info.name != id) continue;
    const Json length = model.value("max_model_len", Json());
    if (length.is_number_integer()) info.max_model_len = length.get<int>();
    return info;
  }
  if (!info.name.empty()) return info;
  return absl::UnavailableError(absl::StrCat(options.servers.urls[0].Text(),
                                             "/v1/models: expected a list with a model, give "
                                             "--model"));
}

std::optional<std::string> ServerVersion(const LoadgenOptions& options) {
  const auto body = HttpFetch(options.servers, 0, "/version", "", kAnswerS);
  if (!body.ok()) return std::nullopt;
  const Json json = Json::parse(*body, nullptr, /*allow_exceptions=*/false);
  const Json version = json.is_object() ? json.value("version", Json()) : Json();
  if (!version.is_string()) return std::nullopt;
  return version.get<std::string>();
}

ServerCounters ParseCounters(const std::string& metrics) {
  // A server may show the same metrics under two prefixes: the first that it has is enough.
  for (const absl::string_view prefix : {"coppice_", "vllm:", "llamacpp:"}) {
    ServerCounters counters;
    for (absl::string_view line : absl::StrSplit(metrics, '\n')) {
      if (absl::ConsumePrefix(&line, prefix)) AddLine(line, &counters);
    }
    if (!counters.totals.empty()) return counters;
  }
  return {};
}

ServerCounters FetchCounters(const LoadgenOptions& options) {
  ServerCounters sum;
  for (size_t i = 0; i < options.servers.urls.size(); ++i) {
    const auto body = HttpFetch(options.servers, i, "/metrics", "", kAnswerS);
    if (!body.ok()) continue;
    const ServerCounters counters = ParseCounters(*body);
    for (const auto& [name, value] : counters.totals) sum.totals[name] += value;
    for (const auto& [position, value] : counters.accepted_by_position)
      sum.accepted_by_position[position] += value;
  }
  return sum;
}

std::optional<SpeculationUsage> SpeculationBetween(const ServerCounters& before,
                                                   const ServerCounters& after) {
  const auto gain = [&](const char* name) {
    return static_cast<int64_t>(std::llround(Gain(before, after, name)));
  };
  SpeculationUsage usage;
  usage.rounds = gain("spec_decode_num_drafts");
  if (usage.rounds == 0) return std::nullopt;
  usage.drafted_nodes = gain("spec_decode_num_draft_tokens");
  usage.accepted_nodes = gain("spec_decode_num_accepted_tokens");
  usage.target_passes = gain("spec_decode_target_passes");
  usage.layers = gain("spec_decode_layers");
  for (const auto& [position, value] : after.accepted_by_position) {
    if (position < 0 || position > 4096) continue;
    const auto then = before.accepted_by_position.find(position);
    const double old = then == before.accepted_by_position.end() ? 0 : then->second;
    if (usage.accepted_by_layer.size() <= static_cast<size_t>(position))
      usage.accepted_by_layer.resize(position + 1);
    usage.accepted_by_layer[position] = std::max<int64_t>(0, std::llround(value - old));
  }
  const double widths = Gain(before, after, "spec_decode_accepted_width_count");
  if (widths > 0)
    usage.accepted_width = Gain(before, after, "spec_decode_accepted_width_sum") / widths;
  return usage;
}

std::optional<double> EnergyBetween(const ServerCounters& before, const ServerCounters& after) {
  if (after.totals.count("energy_joules") == 0) return std::nullopt;
  return Gain(before, after, "energy_joules");
}

}  // namespace coppice::loadgen
