#include "coordinator/cluster/metric_families.h"

#include <set>
#include <string>
#include <utility>

#include "base/program.h"
#include "coordinator/api/endpoints.h"
#include "plan/histogram_buckets.h"

namespace coppice::coordinator {
namespace {

using Buckets = prometheus::Histogram::BucketBoundaries;

Buckets OneTwoFive(double low, double high) {
  Buckets buckets;
  for (double decade = low; decade <= high * 1.0001; decade *= 10) {
    for (const double step : {1.0, 2.0, 5.0}) {
      if (decade * step <= high * 1.0001) buckets.push_back(decade * step);
    }
  }
  return buckets;
}
Buckets Times() { return StepTimeBounds(); }
Buckets TokenCounts() { return OneTwoFive(1, 100000); }
Buckets Counts() { return {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256, 512, 1024}; }
Buckets Forests() { return StepRowBounds(); }
Buckets Joules() { return OneTwoFive(0.01, 100000); }
Buckets Shares() { return {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0}; }

// Whether a label has the id of a node.
bool IsOfNodes(const std::string& label) {
  return label == "id" || label == "replica" || label == "draft_node" || label == "node";
}

constexpr const char* kRefusals[] = {"invalid_json",
                                     "missing_field",
                                     "invalid_type",
                                     "invalid_value",
                                     "unknown_field",
                                     "unsupported_field",
                                     "unsupported_combination",
                                     "conflicting_fields",
                                     "context_length_exceeded",
                                     "kv_capacity_exceeded",
                                     "invalid_header",
                                     "model_not_found",
                                     "queue_full",
                                     "queue_timeout",
                                     "rate_limited",
                                     "draining",
                                     "no_replica",
                                     "no_chat_template"};

constexpr char kPrefix[] = "coppice_";

// Metrics with the name and meaning of a metric of vLLM, which has the prefix "vllm:" there (its
// v1/metrics/loggers.py and v1/spec_decode/metrics.py; counters as Prometheus shows them). Marked =
// in docs/api.md 5.
const std::set<std::string>& VllmNames() {
  static const std::set<std::string> names = {"num_requests_running",
                                              "num_requests_waiting",
                                              "request_success_total",
                                              "prompt_tokens_total",
                                              "generation_tokens_total",
                                              "time_to_first_token_seconds",
                                              "inter_token_latency_seconds",
                                              "request_time_per_output_token_seconds",
                                              "e2e_request_latency_seconds",
                                              "request_queue_time_seconds",
                                              "request_prefill_time_seconds",
                                              "request_decode_time_seconds",
                                              "request_prompt_tokens",
                                              "request_generation_tokens",
                                              "request_params_max_tokens",
                                              "request_params_n",
                                              "kv_cache_usage_perc",
                                              "num_preemptions_total",
                                              "prefix_cache_queries_total",
                                              "prefix_cache_hits_total",
                                              "spec_decode_num_drafts_total",
                                              "spec_decode_num_draft_tokens_total",
                                              "spec_decode_num_accepted_tokens_total",
                                              "spec_decode_num_accepted_tokens_per_pos_total"};
  return names;
}
}  // namespace

MetricFamilies::MetricFamilies(const std::string& model_name, bool vllm_names)
    : model_name_(model_name), vllm_names_(vllm_names) {
  Declare();
  DeclareDecoding();
  CreateKnownSeries();
}

void MetricFamilies::DeclareCounter(const std::string& name, const std::string& help) {
  counters_[name] = &prometheus::BuildCounter().Name(kPrefix + name).Help(help).Register(registry_);
}

void MetricFamilies::DeclareGauge(const std::string& name, const std::string& help) {
  gauges_[name] = &prometheus::BuildGauge().Name(kPrefix + name).Help(help).Register(registry_);
}

void MetricFamilies::DeclareHistogram(const std::string& name, const std::string& help,
                                      Buckets buckets) {
  histograms_[name] = {
      &prometheus::BuildHistogram().Name(kPrefix + name).Help(help).Register(registry_),
      std::move(buckets)};
}

void MetricFamilies::Declare() {
  DeclareGauge("num_requests_running", "Sequences that a replica is decoding.");
  DeclareGauge("num_requests_waiting",
               "Requests that wait; replica=\"\" is the coordinator's queue.");
  DeclareGauge("queue_oldest_seconds", "How long the oldest waiting request has waited; 0: none.");
  DeclareGauge("queue_estimated_wait_seconds",
               "How long a request of a new client would wait, estimated from what was served.");
  DeclareGauge("draining", "1 while the node, or id=\"\" the server, takes no new work.");
  DeclareCounter("request_success_total", "Requests that ended, by how.");
  DeclareCounter("request_refused_total", "Requests refused at admission, by error code.");
  DeclareCounter("request_fields_ignored_total",
                 "Fields of requests that were ignored, by name; \"other\": unknown ones.");
  DeclareCounter("prompt_tokens_total", "Tokens of prompts that have been computed.");
  DeclareCounter("generation_tokens_total", "Tokens that replicas have reported.");
  DeclareCounter("beam_tokens_total", "Tokens of all beams, returned or not.");
  DeclareCounter("failovers_total", "Sequences replayed because their replica was lost.");
  DeclareCounter("cancelled_requests_total", "Requests whose client went away.");
  DeclareCounter("invalid_updates_total", "Progress and heartbeats of a node that were refused.");
  DeclareHistogram("time_to_first_token_seconds", "From arrival to the first decided token.",
                   Times());
  DeclareHistogram("inter_token_latency_seconds",
                   "Between two updates of a streamed sequence with tokens.", Times());
  DeclareHistogram("request_time_per_output_token_seconds",
                   "Decode time over tokens after the first.", Times());
  DeclareHistogram("e2e_request_latency_seconds", "From arrival to the end.", Times());
  DeclareHistogram("request_queue_time_seconds", "Waiting in the coordinator and the replica.",
                   Times());
  DeclareHistogram("request_prefill_time_seconds", "Prefill of the prompt.", Times());
  DeclareHistogram("request_decode_time_seconds", "From the first token to the end.", Times());
  DeclareHistogram("request_prompt_tokens", "Prompt tokens of a request.", TokenCounts());
  DeclareHistogram("request_generation_tokens", "Tokens of the returned choices of a request.",
                   TokenCounts());
  DeclareHistogram("request_params_max_tokens", "max_tokens of requests.", TokenCounts());
  DeclareHistogram("request_params_n", "n of requests.", Counts());
  DeclareHistogram("request_params_beam_width", "Beam width of requests.", Counts());
}

// Metrics of decoding, of nodes and of HTTP.
void MetricFamilies::DeclareDecoding() {
  DeclareHistogram("draft_round_seconds", "Time of draft nodes, per request.", Times());
  DeclareHistogram("draft_wait_seconds", "Time that sequences waited for drafts, per request.",
                   Times());
  DeclareHistogram("verify_seconds", "Time of target passes and verdicts, per request.", Times());
  DeclareGauge("kv_cache_usage_perc", "Share of KV blocks in use, 0 to 1.");
  DeclareGauge("kv_blocks", "KV blocks by state.");
  DeclareGauge("kv_blocks_reserved",
               "KV blocks that the sequences of a replica are expected to need.");
  DeclareGauge("step_rows", "Mean rows of a step since the replica's previous heartbeat.");
  DeclareGauge("step_rows_limit", "The most rows that a step may have (--max_rows).");
  DeclareCounter("num_preemptions_total",
                 "Sequences whose KV was taken away for others; they are computed again.");
  DeclareCounter("prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.");
  DeclareCounter("prefix_cache_hits_total", "Prompt tokens found in the prefix cache.");
  DeclareCounter("spec_decode_num_drafts_total", "Forests verified.");
  DeclareCounter("spec_decode_num_draft_tokens_total", "Draft nodes verified.");
  DeclareCounter("spec_decode_num_accepted_tokens_total", "Draft nodes accepted.");
  DeclareCounter("spec_decode_num_accepted_tokens_per_pos_total",
                 "Draft nodes accepted, by layer of the forest.");
  DeclareCounter("spec_decode_layers_total", "Layers decided by target passes after prefill.");
  DeclareCounter("spec_decode_target_passes_total", "Target passes after prefill.");
  DeclareHistogram("spec_decode_block_efficiency", "Layers per target pass of a sequence.",
                   Counts());
  DeclareHistogram("spec_decode_accepted_width", "Mean accepted width of a sequence.", Counts());
  DeclareHistogram("spec_decode_forest_nodes", "Mean nodes of the forests of a sequence.",
                   Forests());
  DeclareHistogram("spec_decode_overlap_ratio", "Mean overlap of draft and target of a sequence.",
                   Shares());
  DeclareCounter("rounds_without_draft_total", "Rounds that went on without a draft, by reason.");
  DeclareCounter("suffix_draft_tokens_total",
                 "Nodes of drafts that were found in texts, by where they were found.");
  DeclareCounter("suffix_accepted_tokens_total", "Those of them that the target took.");
  DeclareGauge("suffix_index_bytes", "Memory of the indexes of the texts of running sequences.");
  DeclareCounter("draft_moves_total",
                 "Sessions that moved to another draft node or were opened again, by reason.");
  DeclareGauge("draft_sessions", "Sessions of the replica on a draft node.");
  DeclareGauge("draft_reply_seconds",
               "Mean time from a request for a draft until the replica saw it, by draft node.");
  DeclareCounter("drafts_dropped_total", "Drafts that came for nobody, by reason.");
  DeclareCounter(
      "draft_state_bytes_total",
      "Bytes of hidden states sent to drafts that take them, a part of wire_bytes_total.");
  DeclareHistogram("iteration_tokens", "Rows of a step: of prompts, beams and drafts.", Forests());
  DeclareHistogram("step_seconds", "Time of a step's pass, by what it has rows of.", Times());
  DeclareCounter("bytes_read_total", "Bytes of weights and KV that passes had to read.");
  DeclareCounter("wire_bytes_total", "Bytes between processes, by channel.");
  DeclareCounter("energy_joules_total",
                 "Energy of what a node computes on, idle or not; absent when not measured.");
  DeclareHistogram("request_energy_joules",
                   "Energy of a request; absent when a part of it was not measured.", Joules());
  DeclareGauge("replica_up", "1 while the replica is alive.");
  DeclareGauge("draft_node_up", "1 while the draft node is alive.");
  DeclareGauge("node_last_progress_seconds",
               "Seconds since the node's last progress in a step; near 0 without work.");
  DeclareGauge("node_longest_stall_seconds",
               "The longest time without progress that the node had while it had work.");
  DeclareGauge("build_info", "Always 1.");
  DeclareGauge("model_info", "Always 1.");
  DeclareCounter("http_requests_total", "HTTP answers, by handler, method and status class.");
  DeclareHistogram("http_request_duration_seconds",
                   "From the first byte of a request to its answer's end.", Times());
  DeclareGauge("http_connections", "Open HTTP connections.");
}

void MetricFamilies::CreateKnownSeries() {
  for (const char* reason : {"stop", "length", "tool_calls", "abort", "error", "timeout"}) {
    counter("request_success_total", Model({{"finished_reason", reason}}));
  }
  for (const char* code : kRefusals) counter("request_refused_total", Model({{"code", code}}));
  for (const char* name : {"prompt_tokens_total", "generation_tokens_total", "beam_tokens_total",
                           "failovers_total", "cancelled_requests_total"}) {
    counter(name, Model());
  }
  for (const char* name :
       {"time_to_first_token_seconds", "inter_token_latency_seconds",
        "request_time_per_output_token_seconds", "e2e_request_latency_seconds",
        "request_queue_time_seconds", "request_prefill_time_seconds", "request_decode_time_seconds",
        "request_prompt_tokens", "request_generation_tokens", "request_params_max_tokens",
        "request_params_n", "request_params_beam_width", "draft_round_seconds",
        "draft_wait_seconds", "verify_seconds"}) {
    histogram(name, Model());
  }
  for (const Endpoint& endpoint : Endpoints()) {
    counter("http_requests_total",
            {{"handler", endpoint.handler}, {"method", endpoint.method}, {"status", "2xx"}});
  }
  for (const char* role : {"target", "draft"}) {
    for (const char* kind : {"weights", "kv"})
      counter("bytes_read_total", {{"role", role}, {"kind", kind}});
  }
  for (const char* channel : {"plan", "draft", "control", "collective"})
    counter("wire_bytes_total", {{"channel", channel}});
  gauge("http_connections", {});
  gauge("num_requests_waiting", Model({{"replica", ""}}));
  gauge("queue_oldest_seconds", Model());
  gauge("queue_estimated_wait_seconds", Model());
  gauge("draining", {{"id", ""}});
  gauge("build_info", {{"version", kVersion}, {"commit", ""}, {"backend", "coordinator"}}).Set(1);
}

void MetricFamilies::RemoveNode(const std::string& id) {
  const auto remove = [&id](auto* family, const auto& series_of) {
    for (const prometheus::MetricFamily& collected : family->Collect()) {
      for (const prometheus::ClientMetric& metric : collected.metric) {
        Labels labels;
        bool of_node = false;
        for (const prometheus::ClientMetric::Label& label : metric.label) {
          labels[label.name] = label.value;
          of_node |= label.value == id && IsOfNodes(label.name);
        }
        if (of_node) family->Remove(&series_of(labels));
      }
    }
  };
  for (const auto& [name, family] : counters_)
    remove(
        family, [&](const Labels& labels) -> auto& { return family->Add(labels); });
  for (const auto& [name, family] : gauges_)
    remove(
        family, [&](const Labels& labels) -> auto& { return family->Add(labels); });
  for (const auto& [name, entry] : histograms_) {
    const auto& [family, buckets] = entry;
    remove(
        family, [&](const Labels& labels) -> auto& { return family->Add(labels, buckets); });
  }
}

std::vector<prometheus::MetricFamily> MetricFamilies::Collect() const {
  std::vector<prometheus::MetricFamily> families = registry_.Collect();
  if (!vllm_names_) return families;
  const size_t own = families.size();
  for (size_t i = 0; i < own; ++i) {
    const std::string name = families[i].name.substr(sizeof(kPrefix) - 1);
    if (VllmNames().count(name) == 0) continue;
    prometheus::MetricFamily copy = families[i];
    copy.name = "vllm:" + name;
    families.push_back(std::move(copy));
  }
  return families;
}

}  // namespace coppice::coordinator
