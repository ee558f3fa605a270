#include "coordinator/cluster_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/program.h"
#include "coordinator/decoding_rules.h"
#include "decoding/method.h"

namespace coppice {
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

Json ReplicaJson(const Node& node, double now_s) {
  Json json;
  json["id"] = node.id;
  json["state"] = NodeStateName(node.state);
  json["model"] = node.registration.model().path();
  json["dtype"] = node.registration.model().dtype();
  json["backend"] = node.registration.backend();
  json["step"] = node.status.step();
  json["running"] = node.status.running();
  json["waiting"] = node.status.waiting();
  json["kv"] = KvJson(node);
  json["ranks"] = Json::array();
  for (const proto::RankInfo& rank : node.registration.ranks()) {
    Json entry;
    entry["rank"] = rank.rank();
    entry["node"] = rank.host();
    entry["pid"] = rank.pid();
    entry["last_progress_s"] = std::round((now_s - node.last_progress_s) * 1000) / 1000;
    json["ranks"].push_back(std::move(entry));
  }
  return json;
}

Json DraftJson(const Node& node) {
  Json json;
  json["id"] = node.id;
  json["state"] = NodeStateName(node.state);
  json["model"] = node.registration.model().path();
  json["sessions"] = node.status.sessions();
  json["kv"] = KvJson(node);
  return json;
}

Json Capabilities(const ApiLimits& limits) {
  Json json;
  json["decodings"] = Json::array();
  for (const DecodingKind kind :
       {DecodingKind::kMultinomial, DecodingKind::kBeamSampling,
        DecodingKind::kBeamSamplingWithoutReplacement, DecodingKind::kBeamSearch}) {
    if (IsServed(kind)) json["decodings"].push_back(std::string(DecodingKindName(kind)));
  }
  json["speculative_methods"] = {"auto"};
  for (const MethodRow& row : Methods())
    json["speculative_methods"].push_back(std::string(row.name));
  json["warp_modes"] = {std::string(WarpModeName(WarpMode::kRow)),
                        std::string(WarpModeName(WarpMode::kRowRaw))};
  json["max_beam_width"] = limits.max_beam_width;
  json["max_n"] = limits.max_n;
  json["max_draft_width"] = limits.max_draft_width;
  json["max_draft_depth"] = limits.max_draft_depth;
  json["max_logprobs"] = 0;
  json["stop_with_beams"] = false;
  json["chat"] = false;
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
  json["capabilities"] = Capabilities(limits);
  return json;
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string ModelJson(const ModelCard& card, const ApiLimits& limits) {
  return Dump(Card(card, limits));
}

std::string ModelListJson(const ModelCard& card, const ApiLimits& limits) {
  Json json;
  json["object"] = "list";
  json["data"] = Json::array({Card(card, limits)});
  return Dump(json);
}

std::string ClusterJson(const NodeRegistry& registry, const Dispatcher& dispatcher, double now_s) {
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
  json["replicas"] = Json::array();
  for (const Node* node : registry.Replicas())
    json["replicas"].push_back(ReplicaJson(*node, now_s));
  json["draft_nodes"] = Json::array();
  for (const Node* node : registry.DraftNodes()) json["draft_nodes"].push_back(DraftJson(*node));
  json["events"] = Json::array();
  for (const NodeEvent& event : registry.events()) {
    Json entry;
    entry["time"] = event.unix_s;
    entry["what"] = event.what;
    json["events"].push_back(std::move(entry));
  }
  return Dump(json);
}

}  // namespace coppice
