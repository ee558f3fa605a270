#include <nlohmann/json.hpp>

#include "base/program.h"
#include "loadgen/report.h"

namespace coppice::loadgen {
namespace {

using Json = nlohmann::json;

void AddStatistics(const std::string& name, const SampleStatistics& s, Json* json) {
  const std::pair<const char*, double> fields[] = {{"mean", s.mean}, {"median", s.median},
                                                   {"std", s.std},   {"p90", s.p90},
                                                   {"p95", s.p95},   {"p99", s.p99}};
  for (const auto& [kind, value] : fields) {
    (*json)[std::string(kind) + "_" + name + "_ms"] = s.count > 0 ? Json(value) : Json();
  }
}

// null if the denominator is 0.
Json Ratio(double numerator, double denominator) {
  return denominator > 0 ? Json(numerator / denominator) : Json();
}

void AddSpeculation(const RunReport& report, Json* json) {
  const SpeculationUsage& s = report.speculation;
  const bool any = report.speculation_source != nullptr, usage = report.speculation_reports > 0;
  const int64_t drafts = s.rounds - s.plain_rounds;
  const auto count = [&](int64_t value) { return any ? Json(value) : Json(); };
  (*json)["spec_decode_num_drafts"] = count(drafts);
  (*json)["spec_decode_draft_tokens"] = count(s.drafted_nodes);
  (*json)["spec_decode_accepted_tokens"] = count(s.accepted_nodes);
  (*json)["spec_decode_plain_rounds"] = usage ? Json(s.plain_rounds) : Json();
  (*json)["spec_decode_source"] = any ? Json(report.speculation_source) : Json();
  (*json)["spec_decode_acceptance_rate"] = Ratio(100.0 * s.accepted_nodes, s.drafted_nodes);
  (*json)["spec_decode_acceptance_length"] = Ratio(drafts + s.accepted_nodes, drafts);
  Json rates = Json::array();
  for (const int64_t accepted : s.accepted_by_layer) rates.push_back(Ratio(accepted, drafts));
  (*json)["spec_decode_per_position_acceptance_rates"] = rates;
  (*json)["block_efficiency"] = Ratio(s.layers, s.target_passes);
  (*json)["accepted_width"] = s.accepted_width ? Json(*s.accepted_width) : Json();
}

Json Endpoints(const RunReport& report, const RunSettings& settings) {
  Json endpoints = Json::array();
  for (size_t i = 0; i < report.endpoints.size(); ++i) {
    const EndpointReport& place = report.endpoints[i];
    endpoints.push_back({{"url", settings.urls[i] + settings.endpoint},
                         {"requests", place.requests},
                         {"completed", place.completed},
                         {"failed", place.failed},
                         {"output_tokens", place.output_tokens}});
  }
  return endpoints;
}

void AddDetails(const std::vector<RequestRecord>& records, bool texts, Json* json) {
  for (const char* key : {"input_lens", "output_lens", "ttfts", "itls", "latencies", "start_times",
                          "queue_times", "errors"}) {
    (*json)[key] = Json::array();
  }
  if (texts) (*json)["generated_texts"] = Json::array();
  for (const RequestRecord& r : records) {
    (*json)["input_lens"].push_back(r.prompt_tokens);
    (*json)["output_lens"].push_back(r.output_tokens);
    (*json)["ttfts"].push_back(r.text_times_s.empty() ? Json()
                                                      : Json(r.text_times_s[0] - r.sent_s));
    Json gaps = Json::array();
    for (size_t i = 1; i < r.text_times_s.size(); ++i) {
      gaps.push_back(r.text_times_s[i] - r.text_times_s[i - 1]);
    }
    (*json)["itls"].push_back(std::move(gaps));
    (*json)["latencies"].push_back(r.end_s - r.sent_s);
    (*json)["start_times"].push_back(r.sent_s);
    (*json)["queue_times"].push_back(r.sent_s - r.intended_s);
    (*json)["errors"].push_back(r.error);
    if (texts) (*json)["generated_texts"].push_back(r.text);
  }
}

}  // namespace

Json ResultJson(const RunReport& report, const RunSettings& settings,
                const std::vector<RequestRecord>& records, Detail detail) {
  // A sum over a part of the requests would look like one over all.
  const bool all_measured =
      report.energy_source != nullptr &&
      (report.energy_reports == 0 || report.energy_reports == report.completed);
  Json json = {
      {"schema_version", 1},
      {"date", settings.date},
      {"backend", "openai"},
      {"label", nullptr},
      {"model_id", settings.model},
      {"num_prompts", records.size()},
      {"request_rate", settings.request_rate ? Json(*settings.request_rate)
                       : settings.open_loop  ? Json()
                                             : Json("inf")},
      {"burstiness", settings.burstiness},
      {"max_concurrency", settings.max_concurrency > 0 ? Json(settings.max_concurrency) : Json()},
      {"duration", report.duration_s},
      {"completed", report.completed},
      {"failed", report.failed},
      {"timed_out", report.timed_out},
      {"cancelled", report.cancelled},
      {"unfinished", report.unfinished},
      {"dropped_rows", settings.dropped_rows},
      {"empty_rows", settings.empty_rows},
      {"valid", report.valid},
      {"total_input_tokens", report.input_tokens},
      {"total_output_tokens", report.output_tokens},
      {"request_throughput", report.request_throughput},
      {"request_goodput", report.request_goodput ? Json(*report.request_goodput) : Json()},
      {"good_share", report.good_share ? Json(*report.good_share) : Json()},
      {"output_throughput", report.output_throughput},
      {"total_token_throughput", report.total_token_throughput},
      {"max_output_tokens_per_s", report.peak_output_throughput},
      {"max_concurrent_requests", report.peak_concurrent},
      {"token_count_source", report.tokens_from_usage ? "usage" : "events"},
      {"energy_joules", all_measured ? Json(report.energy_joules) : Json()},
      {"joules_per_token",
       all_measured ? Ratio(report.energy_joules, report.energy_tokens) : Json()},
      {"energy_reports", report.energy_reports},
      {"energy_source", report.energy_source ? Json(report.energy_source) : Json()},
      {"endpoints", Endpoints(report, settings)},
      {"server_version", settings.server_version ? Json(*settings.server_version) : Json()},
      {"client",
       {{"cpu_percent", report.cpu_percent},
        {"peak_memory_bytes", report.peak_memory_bytes},
        {"bytes_sent", report.bytes.sent},
        {"bytes_received", report.bytes.received}}},
      {"loadgen_version", kVersion},
      {"command_line", settings.command_line}};
  AddStatistics("ttft", report.ttft_ms, &json);
  AddStatistics("tpot", report.tpot_ms, &json);
  AddStatistics("itl", report.itl_ms, &json);
  AddStatistics("e2el", report.e2el_ms, &json);
  AddStatistics("client_queue_time", report.client_queue_ms, &json);
  AddStatistics("ttft_including_client_queue", report.ttft_queued_ms, &json);
  AddStatistics("e2el_including_client_queue", report.e2el_queued_ms, &json);
  const SampleStatistics& lag = report.send_lag_ms;
  json["send_lag_ms"] =
      lag.count > 0 ? Json{{"p50", lag.median}, {"p99", lag.p99}, {"max", lag.max}} : Json();
  json["status_counts"] = Json::object();
  for (const auto& [status, count] : report.status_counts) {
    json["status_counts"][std::to_string(status)] = count;
  }
  AddSpeculation(report, &json);
  for (const std::string& pair : settings.metadata) {
    const size_t equals = pair.find('=');
    json[pair.substr(0, equals)] = pair.substr(equals + 1);
  }
  if (detail != Detail::kSummary) AddDetails(records, detail == Detail::kArraysAndTexts, &json);
  return json;
}

}  // namespace coppice::loadgen
