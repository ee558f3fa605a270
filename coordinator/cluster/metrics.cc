#include "coordinator/cluster/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <map>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/program.h"
#include "coordinator/api/endpoints.h"
#include "decoding/method.h"

namespace coppice::coordinator {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;
using Buckets = Histogram::BucketBoundaries;
using Labels = std::map<std::string, std::string>;

Buckets OneTwoFive(double low, double high) {
  Buckets buckets;
  for (double decade = low; decade <= high * 1.0001; decade *= 10) {
    for (const double step : {1.0, 2.0, 5.0}) {
      if (decade * step <= high * 1.0001) buckets.push_back(decade * step);
    }
  }
  return buckets;
}
Buckets Times() { return OneTwoFive(0.001, 1000); }
Buckets TokenCounts() { return OneTwoFive(1, 100000); }
Buckets Counts() { return {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64}; }
Buckets Joules() { return OneTwoFive(0.01, 100000); }
Buckets Shares() { return {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0}; }

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
                                     "rate_limited",
                                     "draining",
                                     "no_replica",
                                     "no_chat_template"};
constexpr const char* kFallbacks[] = {"late", "dead", "refused", "mismatch", "no_node"};

}  // namespace

struct Metrics::Impl {
  prometheus::Registry registry;
  std::string model_name;
  // By name, so all metrics share one lookup of a series.
  std::map<std::string, Family<Counter>*> counters;
  std::map<std::string, Family<Gauge>*> gauges;
  std::map<std::string, std::pair<Family<Histogram>*, Buckets>> histograms;
  std::map<std::string, std::map<std::string, double>> seen;  // node -> counter key -> last value
  struct Energy {
    Counter* series = nullptr;  // while it is measured
    double joules = 0;          // its value, kept while there is no series
    double last = 0;            // what the node said last
  };
  std::map<std::pair<std::string, std::string>, Energy> energy;  // node, source

  void DeclareCounter(const std::string& name, const std::string& help) {
    counters[name] =
        &prometheus::BuildCounter().Name("coppice_" + name).Help(help).Register(registry);
  }
  void DeclareGauge(const std::string& name, const std::string& help) {
    gauges[name] = &prometheus::BuildGauge().Name("coppice_" + name).Help(help).Register(registry);
  }
  void DeclareHistogram(const std::string& name, const std::string& help, Buckets buckets) {
    histograms[name] = {
        &prometheus::BuildHistogram().Name("coppice_" + name).Help(help).Register(registry),
        std::move(buckets)};
  }
  Counter& counter(const std::string& name, const Labels& labels) {
    return counters.at(name)->Add(labels);
  }
  Gauge& gauge(const std::string& name, const Labels& labels) {
    return gauges.at(name)->Add(labels);
  }
  Histogram& histogram(const std::string& name, const Labels& labels) {
    const auto& [family, buckets] = histograms.at(name);
    return family->Add(labels, buckets);
  }
  Labels Model(Labels labels = {}) const {
    labels["model_name"] = model_name;
    return labels;
  }
  // Adds the increase of a node's counter, which starts at 0 with the node, to one of the cluster.
  void Follow(const std::string& node, const std::string& name, const Labels& labels,
              double value) {
    std::string key = name;
    for (const auto& [label, text] : labels) absl::StrAppend(&key, "|", label, "=", text);
    double& last = seen[node][key];
    counter(name, labels).Increment(value >= last ? value - last : value);
    last = value;
  }

  // The series exists while the node measures, and never falls.
  void FollowEnergy(const Node& node);

  void Declare();
  void CreateKnownSeries();
  void Speculation(const Request::Sequence& sequence);
};

void Metrics::Impl::FollowEnergy(const Node& node) {
  const proto::NodeStatus& status = node.status;
  const bool measured = status.has_energy_joules() && node.state != NodeState::kLost;
  Family<Counter>* family = counters.at("energy_joules_total");
  for (auto& [key, entry] : energy) {
    const bool over = !measured || key.second != status.energy_source();
    if (key.first != node.id || !over || entry.series == nullptr) continue;
    family->Remove(std::exchange(entry.series, nullptr));
  }
  if (!measured) return;
  Energy& entry = energy[{node.id, status.energy_source()}];
  const Labels labels = {{"node", node.id}, {"source", status.energy_source()}};
  if (entry.series == nullptr) {
    entry.series = &family->Add(labels);
    entry.series->Increment(entry.joules);
  }
  const double now = status.energy_joules();
  entry.series->Increment(now >= entry.last ? now - entry.last : now);  // less: a new process
  entry.last = now;
  entry.joules = entry.series->Value();
}

void Metrics::Impl::Declare() {
  DeclareGauge("num_requests_running", "Sequences that a replica is decoding.");
  DeclareGauge("num_requests_waiting",
               "Requests that wait; replica=\"\" is the coordinator's queue.");
  DeclareCounter("request_success_total", "Requests that ended, by how.");
  DeclareCounter("request_refused_total", "Requests refused at admission, by error code.");
  DeclareCounter("prompt_tokens_total", "Prompt tokens of requests that were answered.");
  DeclareCounter("generation_tokens_total", "Tokens of returned choices.");
  DeclareCounter("beam_tokens_total", "Tokens of all beams, returned or not.");
  DeclareCounter("failovers_total", "Sequences replayed because their replica was lost.");
  DeclareCounter("cancelled_requests_total", "Requests whose client went away.");
  DeclareCounter("bad_updates_total", "Progress and heartbeats of a node that were refused.");
  DeclareHistogram("time_to_first_token_seconds", "From arrival to the first decided token.",
                   Times());
  DeclareHistogram("inter_token_latency_seconds", "Between two updates of a sequence with tokens.",
                   Times());
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
  DeclareHistogram("draft_round_seconds", "Time of draft nodes, per request.", Times());
  DeclareHistogram("draft_wait_seconds", "Time that sequences waited for drafts, per request.",
                   Times());
  DeclareHistogram("verify_seconds", "Time of target passes and verdicts, per request.", Times());
  DeclareGauge("kv_cache_usage_perc", "Share of KV blocks in use, 0 to 1.");
  DeclareGauge("kv_blocks", "KV blocks by state.");
  DeclareCounter("num_preemptions_total", "Always 0: admission reserves, nothing is preempted.");
  DeclareCounter("prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.");
  DeclareCounter("prefix_cache_hits_total", "Prompt tokens found in the prefix cache.");
  DeclareCounter("spec_decode_num_drafts_total", "Forests verified.");
  DeclareCounter("spec_decode_num_draft_tokens_total", "Draft nodes verified.");
  DeclareCounter("spec_decode_num_accepted_tokens_total", "Draft nodes accepted.");
  DeclareCounter("spec_decode_num_accepted_tokens_per_pos_total",
                 "Draft nodes accepted, by layer of the forest.");
  DeclareCounter("spec_decode_layers_total", "Layers decided by target passes after prefill.");
  DeclareCounter("spec_decode_target_passes_total", "Target passes after prefill.");
  DeclareHistogram("spec_decode_layers_per_pass", "Layers per target pass of a sequence.",
                   Counts());
  DeclareHistogram("spec_decode_accepted_width", "Mean accepted width of a sequence.", Counts());
  DeclareHistogram("spec_decode_overlap_ratio", "Mean overlap of draft and target of a sequence.",
                   Shares());
  DeclareCounter("draft_fallbacks_total", "Rounds that went on without a draft, by reason.");
  DeclareCounter("wire_bytes_total", "Bytes on the wire, by channel.");
  DeclareCounter("energy_joules_total",
                 "Energy of what a node computes on, idle or not; absent when not measured.");
  DeclareHistogram("request_energy_joules",
                   "Energy of a request; absent when a part of it was not measured.", Joules());
  DeclareGauge("replica_up", "1 while the replica is alive.");
  DeclareGauge("draft_node_up", "1 while the draft node is alive.");
  DeclareGauge("node_last_progress_seconds",
               "Seconds since the node's last progress in a step; near 0 without work.");
  DeclareGauge("node_longest_standstill_seconds",
               "The longest time without progress that the node had while it had work.");
  DeclareGauge("build_info", "Always 1.");
  DeclareGauge("model_info", "Always 1.");
  DeclareCounter("http_requests_total", "HTTP answers, by handler, method and status class.");
  DeclareHistogram("http_request_duration_seconds",
                   "From the first byte of a request to its answer's end.", Times());
  DeclareGauge("http_connections", "Open HTTP connections.");
}

void Metrics::Impl::CreateKnownSeries() {
  for (const char* reason : {"stop", "length", "abort", "error", "timeout"}) {
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
    const Labels labels = {
        {"handler", endpoint.handler}, {"method", endpoint.method}, {"status", "2xx"}};
    counter("http_requests_total", labels);
    histogram("http_request_duration_seconds", labels);
  }
  gauge("http_connections", {});
  gauge("num_requests_waiting", Model({{"replica", ""}}));
  gauge("build_info", {{"version", kVersion}, {"commit", ""}, {"backend", "coordinator"}}).Set(1);
}

Metrics::Metrics(const std::string& model_name) : impl_(std::make_unique<Impl>()) {
  impl_->model_name = model_name;
  impl_->Declare();
  impl_->CreateKnownSeries();
}

Metrics::~Metrics() = default;

void Metrics::Impl::Speculation(const Request::Sequence& sequence) {
  const DecodingStats& stats = *sequence.stats;
  const Labels labels = {{"replica", sequence.replica}, {"method", stats.method}};
  counter("spec_decode_num_drafts_total", labels).Increment(stats.drafted_rounds());
  counter("spec_decode_num_draft_tokens_total", labels).Increment(stats.drafted_nodes);
  counter("spec_decode_num_accepted_tokens_total", labels).Increment(stats.accepted_nodes);
  counter("spec_decode_layers_total", labels).Increment(stats.layers);
  counter("spec_decode_target_passes_total", labels).Increment(stats.target_passes);
  for (size_t layer = 0; layer < stats.accepted_by_layer.size(); ++layer) {
    Labels at = labels;
    at["position"] = std::to_string(layer);
    counter("spec_decode_num_accepted_tokens_per_pos_total", at)
        .Increment(stats.accepted_by_layer[layer]);
  }
  const auto observe = [&](const char* name, std::optional<double> mean) {
    if (mean) histogram(name, labels).Observe(*mean);
  };
  observe("spec_decode_layers_per_pass", stats.layers_per_pass());
  observe("spec_decode_accepted_width", stats.accepted_width());
  observe("spec_decode_overlap_ratio", stats.overlap());
}

void Metrics::RequestEnded(const Request& request, const std::string& finished_reason,
                           double now_s) {
  const Labels model = impl_->Model();
  impl_->counter("request_success_total", impl_->Model({{"finished_reason", finished_reason}}))
      .Increment();
  const double arrival_s = request.origin().arrival_s, first_s = request.first_token_s();
  impl_->histogram("e2e_request_latency_seconds", model).Observe(now_s - arrival_s);
  if (first_s >= 0)
    impl_->histogram("time_to_first_token_seconds", model).Observe(first_s - arrival_s);
  if (request.error() || request.usage().prompt_tokens == 0) return;  // without an answer

  const Usage& usage = request.usage();
  const DecodingStats& decoding = usage.decoding;
  impl_->counter("prompt_tokens_total", model).Increment(usage.prompt_tokens);
  impl_->counter("generation_tokens_total", model).Increment(usage.completion_tokens);
  impl_->counter("beam_tokens_total", model).Increment(decoding.beam_tokens);
  const auto observe = [&](const char* name, double value) {
    impl_->histogram(name, model).Observe(value);
  };
  observe("request_queue_time_seconds", decoding.queue_ms / 1e3);
  observe("request_prefill_time_seconds", decoding.prefill_ms / 1e3);
  observe("request_decode_time_seconds", now_s - first_s);
  const double later_tokens =
      static_cast<double>(usage.completion_tokens) / request.generate().n - 1;
  if (later_tokens > 0)
    observe("request_time_per_output_token_seconds", (now_s - first_s) / later_tokens);
  observe("request_prompt_tokens", usage.prompt_tokens);
  observe("request_generation_tokens", usage.completion_tokens);
  observe("request_params_max_tokens", request.generate().max_tokens());
  observe("request_params_n", request.generate().n);
  observe("request_params_beam_width", request.generate().params.beam_width);
  observe("draft_round_seconds", decoding.draft_ms / 1e3);
  observe("draft_wait_seconds", decoding.draft_wait_ms / 1e3);
  observe("verify_seconds", decoding.verify_ms / 1e3);
  if (usage.energy_joules) observe("request_energy_joules", *usage.energy_joules);
  for (const Request::Sequence& sequence : request.sequences()) {
    if (sequence.stats) impl_->Speculation(sequence);
  }
}

void Metrics::RequestRefused(const std::string& code) {
  impl_->counter("request_refused_total", impl_->Model({{"code", code}})).Increment();
}

void Metrics::Failover() { impl_->counter("failovers_total", impl_->Model()).Increment(); }
void Metrics::Cancelled() {
  impl_->counter("cancelled_requests_total", impl_->Model()).Increment();
}
void Metrics::BadUpdate(const std::string& node) {
  impl_->counter("bad_updates_total", {{"replica", node}}).Increment();
}
void Metrics::InterToken(double seconds) {
  impl_->histogram("inter_token_latency_seconds", impl_->Model()).Observe(seconds);
}

void Metrics::NodeStatus(const Node& node) {
  const proto::NodeStatus& status = node.status;
  const proto::NodeCounters& counters = status.counters();
  const Labels kv = {{node.worker() ? "replica" : "draft_node", node.id}};
  const auto blocks = [&](const char* state, int64_t count) {
    Labels labels = kv;
    labels["state"] = state;
    impl_->gauge("kv_blocks", labels).Set(static_cast<double>(count));
  };
  blocks("used", status.kv_blocks_used());
  blocks("cached", status.kv_blocks_cached());
  blocks("free", status.kv_blocks_total() - status.kv_blocks_used() - status.kv_blocks_cached());
  impl_->gauge("kv_cache_usage_perc", kv)
      .Set(status.kv_blocks_total() > 0
               ? static_cast<double>(status.kv_blocks_used()) / status.kv_blocks_total()
               : 0);
  impl_->gauge("node_last_progress_seconds", {{"id", node.id}}).Set(status.still_s());
  impl_->gauge("node_longest_standstill_seconds", {{"id", node.id}}).Set(status.longest_still_s());
  impl_->FollowEnergy(node);
  if (!node.worker()) return;
  const Labels replica = {{"replica", node.id}};
  impl_->gauge("num_requests_running", impl_->Model(replica)).Set(status.running());
  impl_->gauge("num_requests_waiting", impl_->Model(replica)).Set(status.waiting());
  impl_->Follow(node.id, "prefix_cache_queries_total", replica, counters.prefix_cache_queries());
  impl_->Follow(node.id, "prefix_cache_hits_total", replica, counters.prefix_cache_hits());
  impl_->Follow(node.id, "wire_bytes_total", {{"channel", "plan"}}, counters.plan_bytes());
  impl_->Follow(node.id, "wire_bytes_total", {{"channel", "draft"}}, counters.draft_bytes());
  for (const auto& [reason, count] : counters.draft_fallbacks()) {
    impl_->Follow(node.id, "draft_fallbacks_total", {{"replica", node.id}, {"reason", reason}},
                  count);
  }
}

void Metrics::NodeUp(const Node& node, bool up) {
  impl_->gauge(node.worker() ? "replica_up" : "draft_node_up", {{"id", node.id}}).Set(up ? 1 : 0);
  if (!up) {
    impl_->FollowEnergy(node);
    impl_->seen.erase(node.id);
    return;
  }
  if (!node.worker()) return;
  impl_->counter("bad_updates_total", {{"replica", node.id}});
  impl_->counter("num_preemptions_total", {{"replica", node.id}});
  const proto::Register& info = node.registration;
  impl_
      ->gauge("model_info", {{"model_name", impl_->model_name},
                             {"dtype", info.model().dtype()},
                             {"ranks", std::to_string(info.ranks_size())}})
      .Set(1);
  for (const char* reason : kFallbacks) {
    impl_->counter("draft_fallbacks_total", {{"replica", node.id}, {"reason", reason}});
  }
  for (const decoding::MethodRow& row : decoding::Methods()) {
    const Labels labels = {{"replica", node.id}, {"method", std::string(row.name)}};
    for (const char* name : {"spec_decode_num_drafts_total", "spec_decode_num_draft_tokens_total",
                             "spec_decode_num_accepted_tokens_total", "spec_decode_layers_total",
                             "spec_decode_target_passes_total"}) {
      impl_->counter(name, labels);
    }
  }
}

void Metrics::SetWaiting(int requests) {
  impl_->gauge("num_requests_waiting", impl_->Model({{"replica", ""}})).Set(requests);
}

void Metrics::Http(const std::string& handler, const std::string& method, int status,
                   double seconds) {
  const bool known = method == "GET" || method == "POST" || method == "DELETE";
  const Labels labels = {{"handler", handler},
                         {"method", known ? method : "other"},
                         {"status", status == 0 ? "aborted" : absl::StrCat(status / 100, "xx")}};
  impl_->counter("http_requests_total", labels).Increment();
  impl_->histogram("http_request_duration_seconds", labels).Observe(seconds);
}

void Metrics::SetConnections(int open) { impl_->gauge("http_connections", {}).Set(open); }

std::string Metrics::Text() const {
  return prometheus::TextSerializer().Serialize(impl_->registry.Collect());
}

}  // namespace coppice::coordinator
