#include "coordinator/cluster/operations.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
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
  if (with_timeout) {
    target->timeout_s = fields.Number({"timeout"}, 0, kMaxTimeout_s).value_or(-1);
    target->wait_s = fields.Number({"wait"}, 0, kMaxTimeout_s).value_or(-1);
    target->move = fields.Bool({"move"}).value_or(false);
    if (target->move && name && !absl::StartsWith(*name, "replica:"))
      fields.Fail("unsupported_combination", "move", "is for a replica");
  }
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

int Operations::Running(const Target& target) const {
  if (target.node.empty()) return dispatcher_->unanswered();
  const Node* node = registry_->Find(target.node);
  if (node == nullptr || node->state == NodeState::kLost) return 0;
  return node->worker() ? dispatcher_->SequencesOf(node->id) : node->status.sessions();
}

HttpReply Operations::Accepted(const Target& target, int status) const {
  nlohmann::ordered_json json;
  json["target"] = target.name;
  const Node* node = target.node.empty() ? nullptr : registry_->Find(target.node);
  if (node != nullptr) {
    json["state"] = NodeStateName(*node);
  } else if (!target.node.empty()) {
    json["state"] = "lost";
  } else {
    json["state"] = dispatcher_->draining()              ? "draining"
                    : registry_->ReadyReplicas().empty() ? "lost"
                                                         : "ready";
  }
  json["running"] = Running(target);
  HttpReply reply;
  reply.status = status;
  reply.body = StateText(json);
  return reply;
}

void Operations::Drain(const std::string& body, const std::shared_ptr<HttpExchange>& exchange) {
  Target target;
  std::optional<ApiError> error = Read(body, /*with_timeout=*/true, &target);
  if (!error) error = Set(target, /*draining=*/true);
  if (error) return exchange->Reply(ErrorReply(*error));
  if (target.move) dispatcher_->MoveAway(target.node, Dispatcher::MoveAs::kWhatCan);
  if (target.wait_s < 0) return exchange->Reply(Accepted(target));
  waiting_.push_back({target, exchange, clock_->NowSeconds() + target.wait_s});
  AnswerWaiting();
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
  EndDrains();
  AnswerWaiting();
}

// Whether the target has been undrained meanwhile, or has gone.
bool Operations::Over(const Target& target) const {
  if (target.node.empty()) return !dispatcher_->draining();
  const Node* node = registry_->Find(target.node);
  return node == nullptr || !node->draining;
}

// Who waits for a drain has an answer before the server ends.
void Operations::AnswerWaiting() {
  const double now = clock_->NowSeconds();
  const auto answered = [&](const Waiting& one) {
    const std::shared_ptr<HttpExchange> exchange = one.exchange.lock();
    if (exchange == nullptr) return true;  // its client has gone
    const bool done = Running(one.target) == 0;
    const bool ends = server_ends_s_ && now >= *server_ends_s_;
    if (!done && !ends && now < one.end_s && !Over(one.target)) return false;
    exchange->Reply(Accepted(one.target, done ? 200 : 202));
    return true;
  };
  waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(), answered), waiting_.end());
}

std::vector<DrainState> Operations::Drains() const {
  std::vector<DrainState> drains;
  const double now = clock_->NowSeconds();
  const auto add = [&](const std::string& name, const std::string& node) {
    std::optional<double> end_s = node.empty() ? server_ends_s_ : std::nullopt;
    const auto end = ends_s_.find(node);
    if (end != ends_s_.end()) end_s = std::min(end->second, end_s.value_or(end->second));
    DrainState state{name, Running({.name = name, .node = node}), std::nullopt};
    if (end_s) state.seconds_left = std::max(0.0, *end_s - now);
    drains.push_back(std::move(state));
  };
  if (dispatcher_->draining()) add("cluster", "");
  for (const Node* node : registry_->Replicas()) {
    if (node->draining) add(absl::StrCat("replica:", node->id), node->id);
  }
  for (const Node* node : registry_->DraftNodes()) {
    if (node->draining) add(absl::StrCat("draft:", node->id), node->id);
  }
  return drains;
}

void Operations::EndDrains() {
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
