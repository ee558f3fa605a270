#include "coordinator/cluster/node_registry.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/convert.h"

namespace coppice::coordinator {
namespace {

constexpr double kOwnGap_s = 0.5;  // after a longer gap the coordinator itself did not run

// The longest time that a node waits for its name, in seconds.
constexpr double kNameWait_s = 5;

const char* RoleWord(const proto::Register& registration) {
  return registration.role() == proto::WORKER_LEADER ? "replica" : "draft node";
}

}  // namespace

KvStorage StorageOf(const Node& node) {
  const proto::Register& registration = node.registration;
  return {.block_size = std::max(1, registration.kv_block_size()),
          .windows = {registration.kv_windows().begin(), registration.kv_windows().end()},
          .step_tokens = registration.kv_step_tokens()};
}

const char* NodeStateName(const Node& node) {
  switch (node.state) {
    case NodeState::kStarting:
      return "starting";
    case NodeState::kReady:
      return node.draining ? "draining" : "ready";
    case NodeState::kLost:
      return "lost";
  }
  return "lost";
}

void NodeRegistry::AddEvent(std::string what) {
  spdlog::info("{}", what);
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  events_.push_back({std::chrono::duration<double>(since_epoch).count(), std::move(what)});
  if (events_.size() > options_.max_events) events_.pop_front();
}

std::string NodeRegistry::Refusal(const proto::Register& registration) const {
  if (const absl::Status fields = proto::CheckRegistration(registration); !fields.ok()) {
    return absl::StrCat("its registration: ", fields.message());
  }
  if (registration.role() != proto::WORKER_LEADER) return Misfit(registration);
  const int vocab = registration.model().vocab_size();
  if (options_.tokenizer_vocab > vocab) {
    return absl::StrCat(options_.tokenizer_dir, ": the tokenizer has ", options_.tokenizer_vocab,
                        " ids but the target model's vocabulary has ", vocab);
  }
  for (const auto& [id, node] : nodes_) {
    if (node.state == NodeState::kLost || !node.worker()) continue;
    if (registration.model().fingerprint() != node.registration.model().fingerprint()) {
      return absl::StrCat("its model differs from that of replica ", id, " (",
                          node.registration.model().path(), ")");
    }
    const std::string& kept = node.registration.model().kv_dtype();
    if (registration.model().kv_dtype() != kept) {
      return absl::StrCat("it keeps KV as ", registration.model().kv_dtype(), ", replica ", id,
                          " as ", kept, " (--kv_dtype)");
    }
  }
  return "";
}

// Why a draft does not fit the target; "": it does, or there is no target yet.
std::string NodeRegistry::Misfit(const proto::Register& draft) const {
  const int vocab = draft.model().vocab_size();
  for (const auto& [id, node] : nodes_) {
    if (node.state == NodeState::kLost || !node.worker()) continue;
    const int target = node.registration.model().vocab_size();
    if (vocab != target) {
      return absl::StrCat("the draft model's vocabulary has ", vocab,
                          " ids but the target model's has ", target, " (replica ", id, ")");
    }
  }
  return "";
}

const Node* NodeRegistry::FindProcess(uint64_t process_id) const {
  for (const auto& [id, node] : nodes_) {
    if (node.registration.process_id() == process_id) return &node;
  }
  return nullptr;
}

std::string NodeRegistry::UniqueName(const std::string& stem, int number) const {
  for (;; ++number) {
    std::string name = absl::StrCat(stem, "-", number);
    const auto it = nodes_.find(name);
    if (it == nodes_.end() || it->second.state == NodeState::kLost) return name;
  }
}

// A process that ended without a Goodbye keeps its name until it is lost, and may have been started
// again by then. If it is still alive, two processes were given one name.
std::optional<std::string> NodeRegistry::NameFor(const proto::Register& registration) {
  const uint64_t process = registration.process_id();
  if (const Node* known = FindProcess(process)) return known->id;
  const std::string& wanted = registration.node_id();
  if (wanted.empty()) {
    return UniqueName(registration.role() == proto::WORKER_LEADER ? "replica" : "draft", 0);
  }
  const auto holder = nodes_.find(wanted);
  if (holder == nodes_.end() || holder->second.state == NodeState::kLost) return wanted;
  const double now = clock_->NowSeconds();
  const double asked = asked_s_.try_emplace(process, now).first->second;
  if (holder->second.last_beat_s <= asked && now - asked < kNameWait_s) return std::nullopt;
  return UniqueName(wanted, 2);
}

std::optional<proto::RegisterAck> NodeRegistry::OnRegister(const std::string& peer,
                                                           const proto::Register& registration,
                                                           std::string* replaced) {
  replaced->clear();
  proto::RegisterAck ack;
  const std::string reason = Refusal(registration);
  if (!reason.empty()) {
    ack.set_reason(reason);
    std::string event = absl::StrCat(RoleWord(registration), " ",
                                     absl::Utf8SafeCEscape(registration.node_id().substr(0, 64)),
                                     " refused: ", reason);
    // A node that was accepted before keeps asking.
    if (events_.empty() || events_.back().what != event) AddEvent(std::move(event));
    return ack;
  }
  const std::optional<std::string> name = NameFor(registration);
  if (!name.has_value()) return std::nullopt;
  asked_s_.erase(registration.process_id());
  const std::string& id = *name;
  const auto it = nodes_.find(id);
  const bool again =
      it != nodes_.end() && it->second.registration.process_id() == registration.process_id();
  if (it != nodes_.end() && !again) *replaced = id;
  Node& node = nodes_[id];
  const bool given_up = again && node.given_up;
  if (!again) node = Node();
  node.id = id;
  node.peer = peer;
  node.registration = registration;
  node.state = given_up ? NodeState::kStarting : NodeState::kReady;
  node.given_up = false;
  node.refused.clear();
  node.why_lost.clear();
  node.status.set_still_s(0);  // the old value belongs to the time before
  node.last_beat_s = node.last_progress_s = clock_->NowSeconds();
  AddEvent(absl::StrCat(RoleWord(registration), " ", id, again ? " is back" : " joined"));
  ack.set_accepted(true);
  ack.set_node_id(id);
  *ack.mutable_draft_nodes() = ReadyDraftNodes().nodes();
  return ack;
}

const Node* NodeRegistry::FindPeer(const std::string& peer) const {
  for (const auto& [id, node] : nodes_) {
    if (node.peer == peer) return &node;
  }
  return nullptr;
}

const Node* NodeRegistry::OnHeartbeat(const std::string& peer, const proto::NodeStatus& status) {
  const Node* found = FindPeer(peer);
  if (found == nullptr) return nullptr;
  Node& node = nodes_.find(found->id)->second;
  const double now = clock_->NowSeconds();
  node.last_beat_s = now;
  node.last_progress_s = now - status.still_s();
  node.status = status;
  const bool waits = node.state == NodeState::kStarting || node.state == NodeState::kLost;
  if (waits && !node.given_up && !Stuck(node)) {
    node.state = NodeState::kReady;
    node.why_lost.clear();
    AddEvent(absl::StrCat(RoleWord(node.registration), " ", node.id, " is back"));
  }
  return &node;
}

std::string NodeRegistry::OnGoodbye(const std::string& peer, const std::string& reason) {
  const Node* found = FindPeer(peer);
  if (found == nullptr || found->state == NodeState::kLost) return "";
  MarkLost(&nodes_.find(found->id)->second, "left", reason.empty() ? "stopped" : reason);
  return found->id;
}

// Uses the node's own clock, so that a late heartbeat does not count.
bool NodeRegistry::Stuck(const Node& node) const {
  return node.status.still_s() > options_.stuck_after_s;
}

void NodeRegistry::MarkLost(Node* node, absl::string_view verb, const std::string& why) {
  node->state = NodeState::kLost;
  node->why_lost = absl::StrCat(verb, ": ", why);
  AddEvent(absl::StrCat(RoleWord(node->registration), " ", node->id, " ", node->why_lost));
}

std::vector<std::string> NodeRegistry::CollectLost() {
  std::vector<std::string> lost;
  const double now = clock_->NowSeconds();
  const double gap = last_collect_s_ < 0 ? 0 : now - last_collect_s_;
  last_collect_s_ = now;
  if (gap > kOwnGap_s) {
    for (auto& [process, asked_s] : asked_s_) asked_s += gap;
  }
  for (auto& [id, node] : nodes_) {
    if (node.state == NodeState::kLost) continue;
    if (gap > kOwnGap_s) node.last_beat_s = std::min(now, node.last_beat_s + gap);
    const double silent = now - node.last_beat_s;
    if (silent > options_.missed_beats * options_.heartbeat_interval_s) {
      MarkLost(&node, "is lost",
               absl::StrCat("no heartbeat for ", static_cast<int>(silent * 1000), " ms"));
    } else if (Stuck(node)) {
      node.given_up = true;
      MarkLost(
          &node, "is lost",
          absl::StrFormat("it beats but has made no progress for %.1f s%s", node.status.still_s(),
                          node.status.working() ? " though it has work" : ""));
    } else if (std::string misfit = node.worker() ? "" : Misfit(node.registration);
               !misfit.empty()) {
      node.given_up = true;
      MarkLost(&node, "is refused", misfit);
      node.refused = std::move(misfit);
    } else {
      continue;
    }
    lost.push_back(id);
  }
  return lost;
}

// A node that was given up is kept while it sends heartbeats: each of them is answered with the
// order to end.
std::vector<std::string> NodeRegistry::ForgetLost() {
  std::vector<std::string> forgotten;
  const double before_s = clock_->NowSeconds() - options_.forget_lost_after_s;
  for (const auto& [id, node] : nodes_) {
    if (node.state == NodeState::kLost && node.last_beat_s < before_s) forgotten.push_back(id);
  }
  for (const std::string& id : forgotten) {
    AddEvent(absl::StrCat(RoleWord(nodes_.at(id).registration), " ", id, " is forgotten"));
    nodes_.erase(id);
  }
  std::erase_if(asked_s_, [before_s](const auto& asked) { return asked.second < before_s; });
  return forgotten;
}

bool NodeRegistry::SetDraining(absl::string_view id, bool draining) {
  const auto it = nodes_.find(id);
  if (it == nodes_.end()) return false;
  Node& node = it->second;
  if (node.draining != draining) {
    AddEvent(absl::StrCat(RoleWord(node.registration), " ", node.id,
                          draining ? " drains" : " takes work again"));
  }
  node.draining = draining;
  return true;
}

const Node* NodeRegistry::Find(absl::string_view id) const {
  const auto it = nodes_.find(id);
  return it == nodes_.end() ? nullptr : &it->second;
}

std::vector<const Node*> NodeRegistry::Replicas() const {
  std::vector<const Node*> found;
  for (const auto& [id, node] : nodes_) {
    if (node.worker()) found.push_back(&node);
  }
  return found;
}

std::vector<const Node*> NodeRegistry::DraftNodes() const {
  std::vector<const Node*> found;
  for (const auto& [id, node] : nodes_) {
    if (!node.worker()) found.push_back(&node);
  }
  return found;
}

std::vector<const Node*> NodeRegistry::ReadyReplicas() const {
  std::vector<const Node*> found;
  for (const Node* node : Replicas()) {
    if (node->state == NodeState::kReady && !node->draining) found.push_back(node);
  }
  return found;
}

proto::DraftNodes NodeRegistry::ReadyDraftNodes() const {
  proto::DraftNodes message;
  for (const Node* node : DraftNodes()) {
    if (node->state != NodeState::kReady || node->draining) continue;
    if (!Misfit(node->registration).empty()) continue;  // soon told to end
    proto::DraftNode* entry = message.add_nodes();
    entry->set_node_id(node->id);
    entry->set_endpoint(node->registration.draft_endpoint());
    entry->set_energy_domain(node->registration.energy_domain());
    entry->set_states(node->registration.states());
  }
  return message;
}

}  // namespace coppice::coordinator
