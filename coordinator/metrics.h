// The cluster's metrics as Prometheus text (docs/api.md 5). Fed by the dispatcher (requests, node
// status) and by routes (HTTP). Series of known labels exist from the start at 0; no label is
// unbounded. Event-loop thread.
#pragma once

#include <memory>
#include <string>

#include "coordinator/node_registry.h"
#include "coordinator/request.h"

namespace coppice {

class Metrics {
 public:
  explicit Metrics(const std::string& model_name);
  ~Metrics();

  // finished_reason of request_success_total: stop, length, abort, error, timeout.
  void RequestEnded(const Request& request, const std::string& finished_reason, double now_s);
  void RequestRefused(const std::string& code);
  void Failover();
  void Cancelled();
  // A node reported what cannot be, or what is not its own to report.
  void BadUpdate(const std::string& node);
  // Time between two updates of a sequence that brought tokens, in seconds.
  void InterToken(double seconds);
  // A node's beat; counters since its start.
  void NodeStatus(const Node& node);
  void NodeUp(const Node& node, bool up);
  void SetWaiting(int requests);  // in the coordinator's queue
  void Http(const std::string& handler, const std::string& method, int status, double seconds);
  void SetConnections(int open);

  std::string Text() const;  // format 0.0.4

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace coppice
