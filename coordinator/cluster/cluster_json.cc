#include "coordinator/cluster/cluster_json.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "base/program.h"
#include "catalogue/catalogue_query.h"
#include "coordinator/api/parameter_fields.h"
#include "decoding/method.h"

namespace coppice::coordinator {
namespace {

using Json = nlohmann::ordered_json;

Json KvJson(const Node& node) {
  Json kv;
  kv["block_size"] = node.registration.kv_block_size();
  kv["blocks_total"] = node.registration.kv_blocks_total();
  kv["blocks_used"] = node.status.kv_blocks_used();
  kv["blocks_cached"] = node.status.kv_blocks_cached();
  return kv;
}

double Milliseconds(double seconds) { return std::round(seconds * 1000) / 1000; }

// The fields of every node: its identity, its state, its progress, and why it is lost.
Json NodeJson(const Node& node, double now_s) {
  Json json;
  json["id"] = node.id;
  json["state"] = NodeStateName(node);
  json["reason"] = node.why_lost.empty() ? Json() : Json(node.why_lost);
  json["working"] = node.status.working();
  json["last_progress_s"] = Milliseconds(now_s - node.last_progress_s);
  json["longest_stall_s"] = Milliseconds(node.status.longest_stall_s());
  json["energy_source"] =
      node.status.has_energy_joules() ? Json(node.status.energy_source()) : Json();
  return json;
}

Json ReplicaJson(const Node& node, double now_s) {
  Json json = NodeJson(node, now_s);
  json["model"] = node.registration.model().path();
  json["dtype"] = node.registration.model().dtype();
  json["kv_dtype"] = node.registration.model().kv_dtype();
  json["backend"] = node.registration.backend();
  json["step"] = node.status.step();
  json["running"] = node.status.running();
  json["waiting"] = node.status.waiting();
  json["kv"] = KvJson(node);
  if (node.status.has_suffix_drafts()) {
    const proto::SuffixDraftStatus& suffixes = node.status.suffix_drafts();
    json["suffix_drafts"] = {{"used", suffixes.used()},
                             {"index_bytes", suffixes.index_bytes()},
                             {"corpus_tokens", suffixes.corpus_tokens()}};
  }
  json["ranks"] = Json::array();
  for (const proto::RankInfo& rank : node.registration.ranks()) {
    Json entry;
    entry["rank"] = rank.rank();
    entry["node"] = rank.host();
    entry["pid"] = rank.pid();
    entry["last_progress_s"] = Milliseconds(now_s - node.last_progress_s);
    json["ranks"].push_back(std::move(entry));
  }
  return json;
}

Json DraftJson(const Node& node, double now_s) {
  Json json = NodeJson(node, now_s);
  json["model"] = node.registration.model().path();
  json["kv_dtype"] = node.registration.model().kv_dtype();
  json["sessions"] = node.status.sessions();
  json["kv"] = KvJson(node);
  return json;
}

constexpr size_t kMaxClients = 16;  // clients listed

// Clients in order of waiting requests, then of running sequences, most first.
Json ClientsJson(const Dispatcher& dispatcher) {
  std::vector<std::tuple<int, int, std::string>> most;
  for (const auto& [client, load] : dispatcher.Clients())
    most.emplace_back(-load.waiting, -load.sequences, client);
  std::sort(most.begin(), most.end());
  Json list = Json::array();
  for (size_t i = 0; i < std::min(kMaxClients, most.size()); ++i) {
    const auto& [waiting, sequences, client] = most[i];
    Json entry;
    entry["client"] = client;
    entry["waiting"] = -waiting;
    entry["sequences"] = -sequences;
    list.push_back(std::move(entry));
  }
  return list;
}

constexpr sampling::DecodingKind kKinds[] = {
    sampling::DecodingKind::kMultinomial, sampling::DecodingKind::kBeamSampling,
    sampling::DecodingKind::kBeamSamplingWithoutReplacement, sampling::DecodingKind::kBeamSearch};
constexpr sampling::SamplingScope kSamplingScopes[] = {
    sampling::SamplingScope::kRow, sampling::SamplingScope::kRowRaw,
    sampling::SamplingScope::kJoint, sampling::SamplingScope::kRowCut};

const char* FormName(decoding::DraftForm form) {
  switch (form) {
    case decoding::DraftForm::kLevels:
      return "levels";
    case decoding::DraftForm::kPath:
      return "path";
    case decoding::DraftForm::kTree:
      return "tree";
    case decoding::DraftForm::kNone:
      break;
  }
  return "none";
}

Json MethodJson(const decoding::MethodRow& row) {
  Json json;
  json["name"] = std::string(row.name);
  json["decodings"] = Json::array();
  for (const sampling::DecodingKind kind : row.serves)
    json["decodings"].push_back(std::string(sampling::DecodingKindName(kind)));
  json["distribution"] = std::string(row.distribution);
  json["distribution_given"] =
      row.distribution_given.empty() ? Json() : Json(std::string(row.distribution_given));
  json["lossless"] = row.lossless;
  json["reproducible"] = row.reproducible;
  json["sampling_scopes"] = Json::array();
  for (const sampling::SamplingScope mode : kSamplingScopes) {
    if (row.joint_sampling || !sampling::IsJoint(mode))
      json["sampling_scopes"].push_back(std::string(sampling::SamplingScopeName(mode)));
  }
  json["draft_form"] = FormName(row.form);
  json["most_children"] = row.most_children > 0 ? Json(row.most_children) : Json();
  json["greedy_only"] = row.greedy_only;
  json["sends"] = std::string(row.sends);
  json["options"] = row.options;
  json["source"] = std::string(row.source);
  return json;
}

Json Capabilities(const ModelCard& card, const ApiLimits& limits) {
  Json json;
  json["decodings"] = Json::array();
  json["sampling_scopes"] = Json::array();
  for (const sampling::DecodingKind kind : kKinds) {
    if (decoding::IsServed(kind))
      json["decodings"].push_back(std::string(sampling::DecodingKindName(kind)));
  }
  json["speculative_methods"] = {"auto"};
  json["methods"] = Json::array();
  for (const decoding::MethodRow& row : decoding::Methods()) {
    json["speculative_methods"].push_back(std::string(row.name));
    json["methods"].push_back(MethodJson(row));
  }
  json["parameters"] = ParametersJson(limits);
  for (const sampling::SamplingScope mode : kSamplingScopes) {
    const auto serves = [mode](sampling::DecodingKind kind) {
      return decoding::IsServed(kind, mode);
    };
    if (std::any_of(std::begin(kKinds), std::end(kKinds), serves))
      json["sampling_scopes"].push_back(std::string(sampling::SamplingScopeName(mode)));
  }
  json["max_beam_width"] = limits.max_beam_width;
  json["max_n"] = limits.max_n;
  json["max_draft_width"] = limits.max_draft_width;
  json["max_draft_depth"] = limits.max_draft_depth;
  json["max_logprobs"] = kMostAlternatives;
  json["stop_with_beams"] = true;
  json["chat"] = card.chat;
  json["structured_outputs"] = card.formats;
  json["catalogues"] = card.catalogues;
  json["deterministic"] = true;
  return json;
}

Json Card(const ModelCard& card, const ApiLimits& limits) {
  Json json;
  json["id"] = card.id;
  json["object"] = "model";
  json["created"] = card.created;
  json["owned_by"] = "coppice";
  json["max_model_len"] = card.max_model_len > 0 ? Json(card.max_model_len) : Json();
  json["default_sampling_params"] =
      card.sampling_defaults == nullptr ? Json::object() : card.sampling_defaults->ToJson();
  json["capabilities"] = Capabilities(card, limits);
  return json;
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

Json CataloguesJson(const catalogue::CatalogueStore* catalogues) {
  Json list = Json::array();
  if (catalogues == nullptr) return list;
  for (const catalogue::CatalogueStore::Entry& entry : catalogues->entries()) {
    Json json;
    json["name"] = entry.name;
    json["items"] = entry.newest->items();
    json["fingerprint"] = catalogue::FingerprintText(entry.newest->fingerprint());
    list.push_back(std::move(json));
  }
  return list;
}

std::string ModelJson(const ModelCard& card, const ApiLimits& limits) {
  return Dump(Card(card, limits));
}

std::string ModelListJson(ModelCard card, const std::vector<std::string>& names,
                          const ApiLimits& limits) {
  Json json;
  json["object"] = "list";
  json["data"] = Json::array();
  for (const std::string& name : names) {
    card.id = name;
    json["data"].push_back(Card(card, limits));
  }
  return Dump(json);
}

std::string ClusterJson(const NodeRegistry& registry, const Dispatcher& dispatcher,
                        const std::vector<DrainState>& drains, double now_s) {
  Json json;
  const bool ready = !registry.ReadyReplicas().empty();
  json["state"] = dispatcher.draining()         ? "draining"
                  : ready                       ? "ready"
                  : registry.Replicas().empty() ? "starting"
                                                : "lost";
  json["version"] = kVersion;
  json["requests"]["running"] = dispatcher.running();
  json["requests"]["waiting"] = dispatcher.waiting();
  json["requests"]["max_queue"] = dispatcher.options().max_queue;
  json["requests"]["clients"] = ClientsJson(dispatcher);
  json["drains"] = Json::array();
  for (const DrainState& drain : drains) {
    Json entry;
    entry["target"] = drain.target;
    entry["running"] = drain.running;
    entry["seconds_left"] = drain.seconds_left ? Json(Milliseconds(*drain.seconds_left)) : Json();
    json["drains"].push_back(std::move(entry));
  }
  json["replicas"] = Json::array();
  for (const Node* node : registry.Replicas())
    json["replicas"].push_back(ReplicaJson(*node, now_s));
  json["draft_nodes"] = Json::array();
  for (const Node* node : registry.DraftNodes())
    json["draft_nodes"].push_back(DraftJson(*node, now_s));
  json["events"] = Json::array();
  for (const NodeEvent& event : registry.events()) {
    Json entry;
    entry["time"] = event.unix_s;
    entry["what"] = event.what;
    json["events"].push_back(std::move(entry));
  }
  return Dump(json);
}

}  // namespace coppice::coordinator
