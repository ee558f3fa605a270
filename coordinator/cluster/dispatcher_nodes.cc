// The dispatcher's handling of nodes: their messages, and nodes that are lost, drained or back.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/cluster/dispatcher.h"
#include "proto/convert.h"

namespace coppice::coordinator {

void Dispatcher::OnNodeMessage(const std::string& peer, const proto::NodeMessage& message) {
  switch (message.kind_case()) {
    case proto::NodeMessage::kRegister:
      return Register(peer, message.register_());
    case proto::NodeMessage::kHeartbeat: {
      const Node* known = registry_->FindPeer(peer);
      if (known == nullptr) return TellToRegister(peer);
      const absl::Status fields = proto::CheckNodeStatus(message.heartbeat().status());
      if (!fields.ok()) {  // ignored, so three bad heartbeats mark the node lost
        spdlog::warn("{}: heartbeat dropped: {}", known->id, std::string(fields.message()));
        return metrics_->BadUpdate(known->id);
      }
      const bool was_ready = known->state == NodeState::kReady;
      const Node* node = registry_->OnHeartbeat(peer, message.heartbeat().status());
      metrics_->NodeStatus(*node);
      // Tell it again, since the first message may be lost.
      if (node->given_up) return TellToEnd(*node);
      if (!was_ready && node->state == NodeState::kReady) NodeBack(*node);
      return;
    }
    case proto::NodeMessage::kProgress:
      return TakeProgress(peer, message.progress());
    case proto::NodeMessage::kGoodbye: {
      const std::string id = registry_->OnGoodbye(peer, message.goodbye().reason());
      if (!id.empty()) NodeLost(id);
      return;
    }
    case proto::NodeMessage::kStepTrace:  // the coordinator gives it to ClusterTrace
      return;
    case proto::NodeMessage::KIND_NOT_SET:
      spdlog::debug("a node sent an empty message");
  }
}

void Dispatcher::TakeProgress(const std::string& peer, const proto::Progress& progress) {
  const Node* const sender = registry_->FindPeer(peer);
  for (const proto::SequenceUpdate& update : progress.updates()) ApplyAlone(peer, sender, update);
  Pump();
}

// Applies one update. An exception (a bug, or no memory) ends the update's own request; the other
// updates of the message are still applied.
void Dispatcher::ApplyAlone(const std::string& peer, const Node* sender,
                            const proto::SequenceUpdate& update) {
  try {
    return Apply(peer, sender, update);
  } catch (const std::exception& error) {
    spdlog::critical("sequence {}: its update has thrown, please report this bug: {}",
                     update.sequence_id(), error.what());
  }
  const auto found = running_.find(update.sequence_id());
  if (found == running_.end()) return;
  const RequestPtr request = found->second.request;
  if (!request->ended()) request->Fail({500, "internal_error", "its result could not be read"});
  End(request);
}

void Dispatcher::Register(const std::string& peer, const proto::Register& registration) {
  std::string replaced;
  proto::CoordinatorMessage reply;
  std::optional<proto::RegisterAck> ack = registry_->OnRegister(peer, registration, &replaced);
  if (!ack.has_value()) return;
  *reply.mutable_register_ack() = *std::move(ack);
  send_(peer, reply);  // before any start: a replica drops what it has when it is accepted
  if (!reply.register_ack().accepted()) return;
  if (!replaced.empty()) NodeLost(replaced);
  const Node* node = registry_->FindPeer(peer);
  if (replaced.empty()) StartAnew(*node);
  metrics_->NodeStatus(*node);
  if (node->state == NodeState::kReady) NodeBack(*node);
}

// A node registers again when its connection broke. Messages on their way are then lost: the start
// of a sequence, which would never end, or a report, which would leave a gap in a text.
void Dispatcher::StartAnew(const Node& node) {
  const std::vector<Running> running = RunningOn(node.id);
  for (const Running& one : running)
    left_behind_[node.id].push_back(one.request->sequences()[one.index].id);
  for (const Running& one : running) {
    Move(one, /*tell_replica=*/false,
         {503, "replica_lost",
          absl::StrCat("the connection to replica ", node.id, " broke while it answered"), "", 1});
  }
}

// Updates that the replica sent before its connection broke may be lost, and later ones may arrive
// before it registers again. Restarts a sequence only once, so that a replica that counts wrongly
// does not repeat this forever.
void Dispatcher::UpdateLost(Running running) {
  const RequestPtr request = running.request;
  const Request::Sequence& sequence = request->sequences()[running.index];
  spdlog::warn("sequence {}: a report of replica {} is missing", sequence.id, sequence.replica);
  const ApiError lost{503, "replica_lost",
                      absl::StrCat("a report of replica ", sequence.replica, " was lost"), "", 1};
  if (sequence.replayed) {
    request->Fail(lost);
    End(request);
  } else {
    Move(running, /*tell_replica=*/true, lost);
  }
  Pump();
}

void Dispatcher::NodeBack(const Node& node) {
  metrics_->NodeUp(node, true);
  for (const uint64_t sequence_id : std::exchange(left_behind_[node.id], {})) {
    proto::CoordinatorMessage message;
    message.mutable_cancel()->set_sequence_id(sequence_id);
    send_(node.peer, message);
  }
  left_behind_.erase(node.id);
  NodesChanged();
}

void Dispatcher::TellToEnd(const Node& node) {
  proto::CoordinatorMessage message;
  if (node.refused.empty()) {
    message.mutable_given_up()->set_reason(node.why_lost);
  } else {
    message.mutable_register_ack()->set_reason(node.refused);
  }
  send_(node.peer, message);
}

// A node that was silent for so long that it was forgotten, or whose name another process has
// taken.
void Dispatcher::TellToRegister(const std::string& peer) {
  proto::CoordinatorMessage message;
  message.mutable_register_again();
  send_(peer, message);
}

void Dispatcher::BroadcastDraftNodes() {
  proto::CoordinatorMessage message;
  *message.mutable_draft_nodes() = registry_->ReadyDraftNodes();
  for (const Node* node : registry_->Replicas()) {
    if (node->state == NodeState::kReady) send_(node->peer, message);
  }
}

void Dispatcher::NodeLost(const std::string& id) {
  if (const Node* node = registry_->Find(id)) {
    metrics_->NodeUp(*node, node->state != NodeState::kLost);
    if (node->given_up) TellToEnd(*node);
  }
  const std::vector<Running> orphans = RunningOn(id);
  std::vector<uint64_t>& left = left_behind_[id];
  for (const Running& orphan : orphans)
    left.push_back(orphan.request->sequences()[orphan.index].id);
  for (const Running& orphan : orphans) {
    Move(orphan, /*tell_replica=*/false, {503, "replica_lost", LostWhileAnswering(id), "", 1});
  }
  router_.Forget(id);
  NodesChanged();
}

// Nodes may have new names each time, so the data of lost ones would grow without bound.
void Dispatcher::ForgetLostNodes() {
  for (const std::string& id : registry_->ForgetLost()) {
    left_behind_.erase(id);
    metrics_->ForgetNode(id);
  }
}

std::vector<Dispatcher::Running> Dispatcher::RunningOn(const std::string& replica) const {
  std::vector<Running> found;
  for (const auto& [sequence_id, running] : running_) {
    if (running.request->sequences()[running.index].replica == replica) found.push_back(running);
  }
  return found;
}

// Queues a sequence again. if_shown: the error of a request whose text cannot be continued.
void Dispatcher::Move(const Running& running, bool tell_replica, const ApiError& if_shown) {
  const RequestPtr& request = running.request;
  if (request->ended()) return;
  Request::Sequence& sequence = request->sequences()[running.index];
  StopSequence(&sequence, tell_replica);
  sequence.lost_s = clock_->NowSeconds();
  if (!request->Requeue(running.index)) {
    request->Fail(if_shown);
    return End(request);
  }
  metrics_->Failover();
  Enqueue(request, /*first=*/true);
}

void Dispatcher::MoveAway(const std::string& replica, MoveAs what) {
  const ApiError drained{503, "draining",
                         absl::StrCat("replica ", replica, " was drained before the answer ended"),
                         "", 1};
  const bool others = !registry_->ReadyReplicas().empty();
  for (const Running& running : RunningOn(replica)) {
    const bool stays = !others || !running.request->CanRestart(running.index);
    if (what == MoveAs::kWhatCan && stays) continue;
    if (others) {
      Move(running, /*tell_replica=*/true, drained);
    } else if (!running.request->ended()) {
      running.request->Fail(drained);
      End(running.request);
    }
  }
  Pump();
}

void Dispatcher::NodesChanged() {
  BroadcastDraftNodes();
  Pump();
}

std::string Dispatcher::LostWhileAnswering(const std::string& replica) const {
  const Node* node = registry_->Find(replica);
  if (node == nullptr || node->why_lost.empty())
    return absl::StrCat("replica ", replica, " was lost while it answered");
  return absl::StrCat("replica ", replica, " ", node->why_lost, "; it was answering this request");
}

// Fails requests of a lost replica that have waited failover_wait for another one.
void Dispatcher::EndForsaken() {
  if (!registry_->ReadyReplicas().empty()) return;
  const double lost_before_s = clock_->NowSeconds() - options_.failover_wait_s;
  std::vector<RequestPtr> waiting;
  queue_.ForEach([&](const Queue::Entry& entry) { waiting.push_back(entry.job); });
  for (const RequestPtr& request : waiting) {
    for (const Request::Sequence& sequence : request->sequences()) {
      if (sequence.lost_s < 0 || sequence.lost_s > lost_before_s) continue;
      request->Fail({503, "replica_lost",
                     absl::StrCat(LostWhileAnswering(sequence.replica),
                                  "; no other was ready within ", options_.failover_wait_s, " s"),
                     "", 5});
      End(request);
      break;
    }
  }
}

void Dispatcher::StopNodes(const std::string& why) {
  proto::CoordinatorMessage message;
  message.mutable_stop()->set_reason(why);
  for (const Node* node : registry_->Replicas()) send_(node->peer, message);
  for (const Node* node : registry_->DraftNodes()) send_(node->peer, message);
}

}  // namespace coppice::coordinator
