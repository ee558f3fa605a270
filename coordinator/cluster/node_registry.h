// The nodes of the cluster: registrations, states, heartbeats with step counts, recent events.
// Decides which nodes are alive, and nothing about requests. No socket, no thread; the clock is an
// argument. Event-loop thread.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "coordinator/cluster/cluster_options.h"
#include "plan/kv_storage.h"
#include "proto/control.pb.h"

namespace coppice::coordinator {

enum class NodeState { kStarting, kReady, kLost };

struct Node {
  std::string id;
  std::string peer;  // peer name on the control channel
  proto::Register registration;
  proto::NodeStatus status;
  NodeState state = NodeState::kReady;
  double last_beat_s = 0;
  double last_progress_s = 0;  // when it made progress or had nothing to do, by its heartbeats
  bool given_up = false;       // told to end: it sends heartbeats but makes no step, or `refused`
  std::string refused;         // why a draft node that joined before the target does not fit it
  bool draining = false;       // takes no new work, because an admin drained it
  std::string why_lost;        // "" while it is not lost
  bool worker() const { return registration.role() == proto::WORKER_LEADER; }
};

KvStorage StorageOf(const Node& node);

// starting, ready, draining or lost.
const char* NodeStateName(const Node& node);

struct NodeEvent {
  double unix_s = 0;
  std::string what;
};

class NodeRegistry {
 public:
  // clock must outlive the registry.
  NodeRegistry(const Clock* clock, const RegistryOptions& options)
      : clock_(clock), options_(options) {}

  // Accepts a node, or refuses it with a reason: an invalid field, a vocabulary of another size
  // than the target's (the reason names both), or another model than the other replicas have.
  // Drafts never prevent a replica from joining. A process that registers again, over any
  // connection, keeps its entry. *replaced receives the id of a lost node of the same name whose
  // work must move, or "". nullopt: another process has the name, and its next heartbeat decides
  // whether it still lives. The node asks again.
  std::optional<proto::RegisterAck> OnRegister(const std::string& peer,
                                               const proto::Register& registration,
                                               std::string* replaced);
  // Null when the peer is not registered. The status must have passed CheckNodeStatus. A node that
  // was lost by missed heartbeats is ready again. One that was given up stays lost until it
  // registers again and a heartbeat shows progress.
  const Node* OnHeartbeat(const std::string& peer, const proto::NodeStatus& status);
  // The id of the node that left, "" when unknown.
  std::string OnGoodbye(const std::string& peer, const std::string& reason);
  // The nodes that are newly lost, because they missed heartbeats, made no progress, or do not fit
  // the target that has joined (the last two set given_up). Each is returned once. Call it every
  // few hundredths of a second: longer gaps mean that the coordinator itself did not run, and do
  // not count as missed heartbeats.
  std::vector<std::string> CollectLost();

  // Removes the nodes that are lost and have been silent for forget_lost_after_s, and returns them.
  std::vector<std::string> ForgetLost();

  const Node* Find(absl::string_view id) const;
  const Node* FindPeer(const std::string& peer) const;
  std::vector<const Node*> Replicas() const;  // in id order, lost ones included
  std::vector<const Node*> DraftNodes() const;
  std::vector<const Node*> ReadyReplicas() const;  // those that take new work
  proto::DraftNodes ReadyDraftNodes() const;       // ready ones that fit the target
  // A draining node takes no new work. False: there is no such node.
  bool SetDraining(absl::string_view id, bool draining);
  const std::deque<NodeEvent>& events() const { return events_; }
  void AddEvent(std::string what);

 private:
  std::string Refusal(const proto::Register& registration) const;
  std::string Misfit(const proto::Register& draft) const;
  const Node* FindProcess(uint64_t process_id) const;
  std::optional<std::string> NameFor(const proto::Register& registration);
  std::string UniqueName(const std::string& stem, int number) const;
  bool Stuck(const Node& node) const;
  void MarkLost(Node* node, absl::string_view verb, const std::string& why);

  const Clock* const clock_;
  const RegistryOptions options_;
  std::map<std::string, Node, std::less<>> nodes_;
  std::deque<NodeEvent> events_;
  // By process id: since when it has been waiting for its name.
  std::map<uint64_t, double> asked_s_;
  double last_collect_s_ = -1;
};

}  // namespace coppice::coordinator
