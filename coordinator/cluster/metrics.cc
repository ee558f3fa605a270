#include "coordinator/cluster/metrics.h"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/api/unserved_fields.h"
#include "coordinator/cluster/metric_families.h"
#include "coordinator/cluster/process_metrics.h"
#include "plan/histogram_buckets.h"

namespace coppice::coordinator {
namespace {

using prometheus::Counter;
using Labels = MetricFamilies::Labels;

constexpr const char* kStepKinds[] = {"prefill", "verify", "mixed"};
constexpr const char* kDroppedDrafts[] = {"no_session", "other_node", "other_round", "given_up"};
constexpr const char* kNoDraftReasons[] = {"late",    "dead",    "refused",  "mismatch",
                                           "no_node", "reading", "no_states"};
constexpr const char* kDraftMoves[] = {"slow", "late", "gone", "refused"};
constexpr const char* kSuffixSources[] = {"prompt", "answer", "corpus"};

// Distinguishes a process from a later one of the same name.
std::string ProcessOf(const proto::Register& registration) {
  std::string process = registration.draft_endpoint();
  for (const proto::RankInfo& rank : registration.ranks())
    absl::StrAppend(&process, "|", rank.host(), ":", rank.pid());
  return process;
}

}  // namespace

struct Metrics::Impl : MetricFamilies {
  using MetricFamilies::MetricFamilies;

  std::string model_name;
  // Series that every update of a sequence feeds: found once, since that takes as long as the rest.
  Counter& prompt_tokens = counter("prompt_tokens_total", Model());
  Counter& generation_tokens = counter("generation_tokens_total", Model());
  prometheus::Histogram& inter_token = histogram("inter_token_latency_seconds", Model());
  // The last values of the counters of a node's process. If the node returns with the same process,
  // counting continues from them.
  struct Seen {
    std::string process;
    std::map<std::string, double> last;  // last value of each series
  };
  std::map<std::string, Seen> seen;  // by node id
  struct Energy {
    Counter* series = nullptr;  // nullptr while it is not measured
    double joules = 0;          // its value, kept while there is no series
    double last = 0;            // last value that the node reported
  };
  std::map<std::pair<std::string, std::string>, Energy> energy;  // by node and source

  // The growth of a counter of the node since the last call. It starts at 0 with the process.
  double Growth(const Node& node, const std::string& key, double value);
  void Follow(const Node& node, const std::string& name, const Labels& labels, double value);
  // The same for a histogram. One that does not have these bounds is left out.
  void Follow(const Node& node, const std::string& name, const Labels& labels,
              const proto::Histogram& source, const std::vector<double>& bounds);
  // The series exists while the node measures, and never falls.
  void FollowEnergy(const Node& node);
  void Speculation(const Request::Sequence& sequence);
  // What draft nodes do for the replica.
  void DraftNodes(const Node& replica);
  std::set<std::pair<std::string, std::string>> used;  // replica and draft node, at the last call
  // Mean rows of the steps since the node's previous heartbeat.
  void StepRows(const Node& node);
};

double Metrics::Impl::Growth(const Node& node, const std::string& key, double value) {
  Seen& known = seen[node.id];
  std::string process = ProcessOf(node.registration);
  if (known.process != process) known = {std::move(process), {}};
  double& last = known.last[key];
  return value - std::exchange(last, value);
}

void Metrics::Impl::Follow(const Node& node, const std::string& name, const Labels& labels,
                           double value) {
  std::string key = name;
  for (const auto& [label, text] : labels) absl::StrAppend(&key, "|", label, "=", text);
  const double growth = Growth(node, key, value);
  counter(name, labels).Increment(growth >= 0 ? growth : value);
}

void Metrics::Impl::Follow(const Node& node, const std::string& name, const Labels& labels,
                           const proto::Histogram& source, const std::vector<double>& bounds) {
  if (source.counts_size() != static_cast<int>(bounds.size()) + 1) return;
  std::string key = name;
  for (const auto& [label, text] : labels) absl::StrAppend(&key, "|", label, "=", text);
  std::vector<double> growth;
  for (int i = 0; i < source.counts_size(); ++i)
    growth.push_back(std::max(0.0, Growth(node, absl::StrCat(key, "#", i), source.counts(i))));
  const double sum = Growth(node, key + "#sum", source.sum());
  histogram(name, labels).ObserveMultiple(growth, std::max(0.0, sum));
}

void Metrics::Impl::DraftNodes(const Node& replica) {
  std::set<std::pair<std::string, std::string>> now;
  const auto show = [&](const std::string& draft_node, double sessions, double reply_s) {
    const Labels labels = {{"replica", replica.id}, {"draft_node", draft_node}};
    gauge("draft_sessions", labels).Set(sessions);
    gauge("draft_reply_seconds", labels).Set(reply_s);
  };
  for (const proto::DraftNodeUse& use : replica.status.draft_nodes()) {
    show(use.node_id(), use.sessions(), use.mean_reply_s());
    now.emplace(replica.id, use.node_id());
  }
  for (auto it = used.begin(); it != used.end();) {
    if (it->first != replica.id || now.count(*it) > 0) {
      ++it;
      continue;
    }
    show(it->second, 0, 0);  // it is gone
    it = used.erase(it);
  }
  used.merge(now);
}

void Metrics::Impl::StepRows(const Node& node) {
  const proto::Histogram& rows = node.status.counters().step_rows();
  double steps = 0;
  for (const uint64_t count : rows.counts()) steps += static_cast<double>(count);
  const double new_steps = Growth(node, "step_rows#steps", steps);
  const double new_rows = Growth(node, "step_rows#rows", rows.sum());
  const Labels replica = {{"replica", node.id}};
  gauge("step_rows", replica).Set(new_steps > 0 ? std::max(0.0, new_rows) / new_steps : 0);
  gauge("step_rows_limit", replica).Set(node.registration.max_rows());
}

void Metrics::Impl::FollowEnergy(const Node& node) {
  const proto::NodeStatus& status = node.status;
  const bool measured = status.has_energy_joules() && node.state != NodeState::kLost;
  for (auto& [key, entry] : energy) {
    const bool over = !measured || key.second != status.energy_source();
    if (key.first != node.id || !over || entry.series == nullptr) continue;
    Remove("energy_joules_total", std::exchange(entry.series, nullptr));
  }
  if (!measured) return;
  Energy& entry = energy[{node.id, status.energy_source()}];
  const Labels labels = {{"node", node.id}, {"source", status.energy_source()}};
  if (entry.series == nullptr) {
    entry.series = &counter("energy_joules_total", labels);
    entry.series->Increment(entry.joules);
  }
  const double now = status.energy_joules();
  entry.series->Increment(now >= entry.last ? now - entry.last : now);  // less: a new process
  entry.last = now;
  entry.joules = entry.series->Value();
}

Metrics::Metrics(const std::string& model_name, bool vllm_names)
    : impl_(std::make_unique<Impl>(model_name, vllm_names)) {
  impl_->model_name = model_name;
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
  observe("spec_decode_block_efficiency", stats.block_efficiency());
  observe("spec_decode_accepted_width", stats.accepted_width());
  if (stats.drafted_rounds() > 0) {
    histogram("spec_decode_forest_nodes", labels)
        .Observe(static_cast<double>(stats.drafted_nodes) / stats.drafted_rounds());
  }
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
  if (request.error() || request.usage().prompt_tokens == 0) return;  // it had no answer

  const Usage& usage = request.usage();
  const DecodingStats& decoding = usage.decoding;
  impl_->counter("beam_tokens_total", model).Increment(decoding.beam_tokens);
  const auto observe = [&](const char* name, double value) {
    impl_->histogram(name, model).Observe(value);
  };
  observe("request_queue_time_seconds", decoding.queue_ms / 1e3);
  observe("request_prefill_time_seconds", decoding.prefill_ms / 1e3);
  observe("request_decode_time_seconds", now_s - first_s);
  const double choices = request.generate().n * request.generate().prompts.size();
  const double later_tokens = usage.completion_tokens / choices - 1;
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

// Names that are not in the table are not labels: there is no end to them.
void Metrics::FieldsIgnored(const IgnoredFields& ignored) {
  for (const std::string& name : ignored.names()) {
    const absl::Span<const UnservedField> fields = UnservedFields();
    const bool known = std::any_of(fields.begin(), fields.end(),
                                   [&](const UnservedField& field) { return name == field.name; });
    impl_
        ->counter("request_fields_ignored_total", impl_->Model({{"field", known ? name : "other"}}))
        .Increment();
  }
}

void Metrics::Tokens(int64_t prompt, int64_t generated) {
  impl_->prompt_tokens.Increment(static_cast<double>(prompt));
  impl_->generation_tokens.Increment(static_cast<double>(generated));
}

void Metrics::Failover() { impl_->counter("failovers_total", impl_->Model()).Increment(); }
void Metrics::Cancelled() {
  impl_->counter("cancelled_requests_total", impl_->Model()).Increment();
}
void Metrics::BadUpdate(const std::string& node) {
  impl_->counter("invalid_updates_total", {{"replica", node}}).Increment();
}
void Metrics::InterToken(double seconds) { impl_->inter_token.Observe(seconds); }

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
  impl_->gauge("draining", {{"id", node.id}}).Set(node.draining ? 1 : 0);
  impl_->gauge("node_last_progress_seconds", {{"id", node.id}}).Set(status.still_s());
  impl_->gauge("node_longest_stall_seconds", {{"id", node.id}}).Set(status.longest_stall_s());
  impl_->FollowEnergy(node);
  const char* role = node.worker() ? "target" : "draft";
  impl_->Follow(node, "bytes_read_total", {{"role", role}, {"kind", "weights"}},
                counters.weight_bytes_read());
  impl_->Follow(node, "bytes_read_total", {{"role", role}, {"kind", "kv"}},
                counters.kv_bytes_read());
  impl_->Follow(node, "wire_bytes_total", {{"channel", "control"}}, counters.control_bytes());
  if (!node.worker()) return;
  const Labels replica = {{"replica", node.id}};
  impl_->gauge("num_requests_running", impl_->Model(replica)).Set(status.running());
  impl_->gauge("num_requests_waiting", impl_->Model(replica)).Set(status.waiting());
  impl_->Follow(node, "prefix_cache_queries_total", replica, counters.prefix_cache_queries());
  impl_->Follow(node, "prefix_cache_hits_total", replica, counters.prefix_cache_hits());
  impl_->Follow(node, "num_preemptions_total", replica, counters.preemptions());
  impl_->Follow(node, "wire_bytes_total", {{"channel", "plan"}}, counters.plan_bytes());
  impl_->Follow(node, "wire_bytes_total", {{"channel", "draft"}}, counters.draft_bytes());
  impl_->Follow(node, "wire_bytes_total", {{"channel", "collective"}}, counters.collective_bytes());
  impl_->StepRows(node);
  impl_->Follow(node, "iteration_tokens", replica, counters.step_rows(), StepRowBounds());
  for (const char* kind : kStepKinds) {
    const auto found = counters.step_seconds().find(kind);
    if (found == counters.step_seconds().end()) continue;
    impl_->Follow(node, "step_seconds", {{"replica", node.id}, {"kind", kind}}, found->second,
                  StepTimeBounds());
  }
  for (const auto& [reason, count] : counters.rounds_without_draft()) {
    impl_->Follow(node, "rounds_without_draft_total", {{"replica", node.id}, {"reason", reason}},
                  count);
  }
  for (const auto& [reason, count] : counters.draft_moves())
    impl_->Follow(node, "draft_moves_total", {{"replica", node.id}, {"reason", reason}}, count);
  for (const auto& [source, count] : counters.suffix_nodes_drafted()) {
    impl_->Follow(node, "suffix_draft_tokens_total", {{"replica", node.id}, {"source", source}},
                  count);
  }
  for (const auto& [source, count] : counters.suffix_nodes_accepted()) {
    impl_->Follow(node, "suffix_accepted_tokens_total", {{"replica", node.id}, {"source", source}},
                  count);
  }
  impl_->gauge("suffix_index_bytes", replica)
      .Set(static_cast<double>(status.suffix_drafts().index_bytes()));
  impl_->Follow(node, "draft_state_bytes_total", replica, counters.state_bytes());
  impl_->DraftNodes(node);
  for (const auto& [reason, count] : counters.drafts_dropped()) {
    impl_->Follow(node, "drafts_dropped_total", {{"replica", node.id}, {"reason", reason}}, count);
  }
}

void Metrics::NodeUp(const Node& node, bool up) {
  impl_->gauge(node.worker() ? "replica_up" : "draft_node_up", {{"id", node.id}}).Set(up ? 1 : 0);
  if (!up) {
    impl_->FollowEnergy(node);
    return;
  }
  if (!node.worker()) return;
  impl_->counter("invalid_updates_total", {{"replica", node.id}});
  impl_->counter("num_preemptions_total", {{"replica", node.id}});
  impl_->counter("draft_state_bytes_total", {{"replica", node.id}});
  const proto::Register& info = node.registration;
  impl_
      ->gauge("model_info", {{"model_name", impl_->model_name},
                             {"dtype", info.model().dtype()},
                             {"kv_dtype", info.model().kv_dtype()},
                             {"ranks", std::to_string(info.ranks_size())}})
      .Set(1);
  for (const char* reason : kNoDraftReasons) {
    impl_->counter("rounds_without_draft_total", {{"replica", node.id}, {"reason", reason}});
  }
  for (const char* reason : kDroppedDrafts)
    impl_->counter("drafts_dropped_total", {{"replica", node.id}, {"reason", reason}});
  for (const char* reason : kDraftMoves)
    impl_->counter("draft_moves_total", {{"replica", node.id}, {"reason", reason}});
  for (const char* source : kSuffixSources) {
    const Labels labels = {{"replica", node.id}, {"source", source}};
    impl_->counter("suffix_draft_tokens_total", labels);
    impl_->counter("suffix_accepted_tokens_total", labels);
  }
  impl_->histogram("iteration_tokens", {{"replica", node.id}});
  for (const char* kind : kStepKinds)
    impl_->histogram("step_seconds", {{"replica", node.id}, {"kind", kind}});
}

void Metrics::ForgetNode(const std::string& id) {
  impl_->seen.erase(id);
  std::erase_if(impl_->used,
                [&id](const auto& pair) { return pair.first == id || pair.second == id; });
  for (auto it = impl_->energy.begin(); it != impl_->energy.end();)
    it = it->first.first == id ? impl_->energy.erase(it) : std::next(it);
  impl_->RemoveNode(id);
}

void Metrics::SetWaiting(int requests) {
  impl_->gauge("num_requests_waiting", impl_->Model({{"replica", ""}})).Set(requests);
}

void Metrics::SetQueue(double oldest_s, double estimated_wait_s, bool draining) {
  impl_->gauge("queue_oldest_seconds", impl_->Model()).Set(oldest_s);
  impl_->gauge("queue_estimated_wait_seconds", impl_->Model()).Set(estimated_wait_s);
  impl_->gauge("draining", {{"id", ""}}).Set(draining ? 1 : 0);
}

void Metrics::SetReserved(const std::string& replica, int64_t kv_blocks) {
  impl_->gauge("kv_blocks_reserved", {{"replica", replica}}).Set(static_cast<double>(kv_blocks));
}

void Metrics::Http(const std::string& handler, const std::string& method, int status,
                   double seconds) {
  const bool known = method == "GET" || method == "HEAD" || method == "POST" ||
                     method == "DELETE" || method == "OPTIONS";
  const Labels labels = {{"handler", handler},
                         {"method", known ? method : "other"},
                         {"status", status == 0 ? "aborted" : absl::StrCat(status / 100, "xx")}};
  impl_->counter("http_requests_total", labels).Increment();
  impl_->histogram("http_request_duration_seconds", labels).Observe(seconds);
}

void Metrics::SetConnections(int open) { impl_->gauge("http_connections", {}).Set(open); }

std::string Metrics::Text() const {
  std::vector<prometheus::MetricFamily> families = impl_->Collect();
  for (prometheus::MetricFamily& family : ProcessMetrics()) families.push_back(std::move(family));
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace coppice::coordinator
