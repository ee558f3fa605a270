#include "coordinator/cluster/operations.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "coordinator/api/json_fields.h"

namespace coppice::coordinator {
namespace {

constexpr int kMaxDepth = 8;
constexpr double kMaxTimeout_s = 86400;

std::string StateText(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

std::optional<ApiError> Operations::Read(const std::string& body, bool with_timeout,
                                         Target* target) const {
  nlohmann::json object;
  if (std::optional<ApiError> error = ParseJsonObject(body, kMaxDepth, &object)) return error;
  JsonFields fields(object, "");
  const std::optional<std::string> name = fields.String({"target"});
  if (with_timeout) target->timeout_s = fields.Number({"timeout"}, 0, kMaxTimeout_s).value_or(-1);
  fields.IgnoreUnknown();
  if (!name) fields.Fail("missing_field", "target", "is required");
  if (fields.error()) return fields.error();
  target->name = *name;
  if (*name == "cluster") return std::nullopt;
  absl::string_view id = *name;
  const bool replica = absl::ConsumePrefix(&id, "replica:");
  if (!replica && !absl::ConsumePrefix(&id, "draft:")) {
    return ApiError{400, "invalid_value",
                    "target must be \"cluster\", \"replica:ID\" or \"draft:ID\"", "target"};
  }
  const Node* node = registry_->Find(id);
  if (node == nullptr || node->worker() != replica) {
    return ApiError{404, "unknown_node", "no node of this kind has this id, see GET /cluster",
                    "target"};
  }
  target->node = node->id;
  return std::nullopt;
}

std::optional<ApiError> Operations::Set(const Target& target, bool draining) {
  if (target.node.empty()) {
    if (dispatcher_->ending())
      return ApiError{503, "draining", "the server is shutting down", "", 5};
    dispatcher_->SetDraining(draining, "an admin");
  } else {
    registry_->SetDraining(target.node, draining);
    dispatcher_->NodesChanged();
  }
  ends_s_.erase(target.node);
  if (draining && target.timeout_s >= 0)
    ends_s_[target.node] = clock_->NowSeconds() + target.timeout_s;
  return std::nullopt;
}

HttpReply Operations::Accepted(const Target& target) const {
  nlohmann::ordered_json json;
  json["target"] = target.name;
  const Node* node = target.node.empty() ? nullptr : registry_->Find(target.node);
  if (node != nullptr) {
    json["state"] = NodeStateName(*node);
    json["running"] = node->worker() ? dispatcher_->SequencesOf(node->id) : node->status.sessions();
  } else {
    json["state"] = dispatcher_->draining()              ? "draining"
                    : registry_->ReadyReplicas().empty() ? "lost"
                                                         : "ready";
    json["running"] = dispatcher_->unanswered();
  }
  HttpReply reply;
  reply.status = 202;
  reply.body = StateText(json);
  return reply;
}

HttpReply Operations::Drain(const std::string& body) {
  Target target;
  std::optional<ApiError> error = Read(body, /*with_timeout=*/true, &target);
  if (!error) error = Set(target, /*draining=*/true);
  return error ? ErrorReply(*error) : Accepted(target);
}

HttpReply Operations::Undrain(const std::string& body) {
  Target target;
  std::optional<ApiError> error = Read(body, /*with_timeout=*/false, &target);
  if (!error) error = Set(target, /*draining=*/false);
  return error ? ErrorReply(*error) : Accepted(target);
}

HttpReply Operations::Cancel(const std::string& request_id) {
  const int ended = dispatcher_->Cancel(request_id);
  if (ended == 0) {
    return ErrorReply({404, "unknown_request", "no running request has this X-Request-Id"});
  }
  nlohmann::ordered_json json;
  json["request_id"] = request_id;
  json["cancelled"] = ended;
  HttpReply reply;
  reply.body = StateText(json);
  return reply;
}

void Operations::Tick() {
  const double now = clock_->NowSeconds();
  std::vector<std::string> over;
  for (const auto& [node, end_s] : ends_s_) {
    if (now >= end_s) over.push_back(node);
  }
  for (const std::string& node : over) {
    ends_s_.erase(node);
    if (node.empty()) {
      dispatcher_->FailAll({503, "draining", "the time of the drain is over", "", 5});
      continue;
    }
    // A node that has restarted meanwhile is not drained.
    const Node* drained = registry_->Find(node);
    if (drained != nullptr && drained->draining) dispatcher_->MoveAway(node);
  }
}

}  // namespace coppice::coordinator
