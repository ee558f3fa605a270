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

// The same process on another connection.
bool SameProcess(const proto::Register& a, const proto::Register& b) {
  if (a.role() != b.role() || a.ranks_size() != b.ranks_size()) return false;
  if (a.draft_endpoint() != b.draft_endpoint()) return false;
  for (int i = 0; i < a.ranks_size(); ++i) {
    if (a.ranks(i).pid() != b.ranks(i).pid() || a.ranks(i).host() != b.ranks(i).host())
      return false;
  }
  return a.ranks_size() > 0 || !a.draft_endpoint().empty();
}

const char* RoleWord(const proto::Register& registration) {
  return registration.role() == proto::WORKER_LEADER ? "replica" : "draft node";
}

}  // namespace

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
  const bool worker = registration.role() == proto::WORKER_LEADER;
  const int vocab = registration.model().vocab_size();
  if (worker && options_.tokenizer_vocab > vocab) {
    return absl::StrCat(
        options_.tokenizer_dir, ": the tokenizer (tokenizer.json or tokenizer.model) has ",
        options_.tokenizer_vocab, " ids but the target model's vocabulary has ", vocab);
  }
  for (const auto& [id, node] : nodes_) {
    if (node.state == NodeState::kLost) continue;
    const int other = node.registration.model().vocab_size();
    if (worker != node.worker() && vocab != other) {
      return absl::StrCat("the draft model's vocabulary has ", worker ? other : vocab,
                          " ids but the target model's has ", worker ? vocab : other, " (",
                          RoleWord(node.registration), " ", id, ")");
    }
    if (worker && node.worker() &&
        registration.model().fingerprint() != node.registration.model().fingerprint()) {
      return absl::StrCat("its model differs from that of replica ", id, " (",
                          node.registration.model().path(), ")");
    }
  }
  return "";
}

std::string NodeRegistry::UniqueId(const proto::Register& registration) const {
  const bool worker = registration.role() == proto::WORKER_LEADER;
  const std::string& wanted = registration.node_id();
  if (!wanted.empty()) {
    const auto it = nodes_.find(wanted);
    if (it == nodes_.end() || it->second.state == NodeState::kLost ||
        SameProcess(it->second.registration, registration)) {
      return wanted;
    }
  }
  const std::string stem = !wanted.empty() ? wanted : worker ? "replica" : "draft";
  for (int i = wanted.empty() ? 0 : 2;; ++i) {
    std::string id = absl::StrCat(stem, "-", i);
    const auto it = nodes_.find(id);
    if (it == nodes_.end() || it->second.state == NodeState::kLost) return id;
  }
}

proto::RegisterAck NodeRegistry::OnRegister(const std::string& peer,
                                            const proto::Register& registration,
                                            std::string* replaced) {
  replaced->clear();
  proto::RegisterAck ack;
  const std::string reason = Refusal(registration);
  if (!reason.empty()) {
    ack.set_reason(reason);
    AddEvent(absl::StrCat(RoleWord(registration), " ",
                          absl::Utf8SafeCEscape(registration.node_id().substr(0, 64)),
                          " refused: ", reason));
    return ack;
  }
  const std::string id = UniqueId(registration);
  const auto it = nodes_.find(id);
  const bool again = it != nodes_.end() && (it->second.peer == peer ||
                                            SameProcess(it->second.registration, registration));
  if (it != nodes_.end() && !again) *replaced = id;
  Node& node = nodes_[id];
  const bool given_up = again && node.given_up;  // perhaps another process that looks the same
  if (!again) node = Node();
  node.id = id;
  node.peer = peer;
  node.registration = registration;
  node.state = given_up ? NodeState::kStarting : NodeState::kReady;
  node.given_up = false;
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

// By the node's own clock, so that a late heartbeat does not count.
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
    } else {
      continue;
    }
    lost.push_back(id);
  }
  return lost;
}

// A node that has been given up is kept while it beats: it is told to end with each heartbeat.
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
    proto::DraftNode* entry = message.add_nodes();
    entry->set_node_id(node->id);
    entry->set_endpoint(node->registration.draft_endpoint());
    entry->set_energy_domain(node->registration.energy_domain());
  }
  return message;
}

}  // namespace coppice::coordinator
