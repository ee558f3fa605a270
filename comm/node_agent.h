// A node's link to the coordinator, on its own thread. Registers, sends heartbeats with the step
// count, passes messages on, and registers again when the coordinator comes back. Used by worker
// leaders and draft nodes.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/step_clock.h"
#include "comm/channel.h"
#include "proto/control.pb.h"

namespace coppice::comm {

struct NodeAgentOptions {
  std::string coordinator;       // tcp://host:port
  proto::Register registration;  // who this node is; sent at start and after every lost connection
  double heartbeat_interval_s = 0.5;
  double register_deadline_s =
      30;  // Start fails with DeadlineExceeded naming the coordinator after that
  // What the beats say of the compute thread; must outlive the agent. nullptr: always idle.
  StepClock* steps = nullptr;
  // The coordinator has given this node up: it beats but makes no step. Called on the agent's
  // thread, whatever the owner's does; is to end the process. Empty: ignored.
  std::function<void(const std::string& reason)> on_given_up;
};

class NodeAgent {
 public:
  // Connects and waits until the coordinator has accepted the node. FailedPrecondition: it refused,
  // with its reason.
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
