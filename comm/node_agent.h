// A node's link to the coordinator, on its own thread. Registers, sends heartbeats with the step
// count, passes messages on, and registers again when the coordinator comes back or does not know
// the node. Used by worker leaders and draft nodes.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/progress_watchdog.h"
#include "comm/channel.h"
#include "comm/heartbeat.h"
#include "proto/control.pb.h"

namespace coppice::comm {

struct NodeAgentOptions {
  // Control endpoint of the coordinator, tcp://host:port.
  std::string coordinator;
  // With the key of the cluster, if it has one.
  ChannelOptions channel;
  // Describes this node. Sent at start and after every lost connection.
  proto::Register registration;
  // Seconds between heartbeats. The coordinator expects this interval and treats a node as lost
  // after three missed heartbeats: give both the same value.
  double heartbeat_interval_s = kDefaultHeartbeat_s;
  // Seconds after which Start fails with a DeadlineExceeded that names the coordinator.
  double register_deadline_s = 30;
  // Progress of the compute thread, reported in the heartbeats. Must outlive the agent. nullptr:
  // reported as idle.
  ProgressWatchdog* steps = nullptr;
  // Called when the coordinator has given this node up, because it sends heartbeats but makes no
  // step. Runs on the agent's thread, since the owner's thread may hang. It should end the process.
  // Empty: nothing happens.
  std::function<void(const std::string& reason)> on_given_up;
  // Called when the coordinator refuses a node that it had accepted, because the node does not fit
  // a target that registered later. Otherwise as on_given_up.
  std::function<void(const absl::Status& refusal)> on_refused;
};

class NodeAgent {
 public:
  // Connects and waits until the coordinator has accepted the node. FailedPrecondition: it refused,
  // with its reason, or does not have the same cluster key.
  static absl::StatusOr<std::unique_ptr<NodeAgent>> Start(const NodeAgentOptions& options);
  virtual ~NodeAgent() = default;  // says Goodbye, joins the thread

  // To the coordinator; any thread.
  virtual void Send(const proto::NodeMessage& message) = 0;
  // The next message from the coordinator; nullopt when none is waiting. Owner thread.
  virtual std::optional<proto::CoordinatorMessage> Receive() = 0;
  virtual Pollable socket() = 0;  // readable when Receive has something; for Poll

  // The status that the next heartbeats carry; any thread.
  virtual void SetStatus(const proto::NodeStatus& status) = 0;
};

}  // namespace coppice::comm
