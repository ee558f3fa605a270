// The cluster's metrics for Prometheus (docs/api.md 5). Fed by the dispatcher (requests, node
// status) and by routes (HTTP). Series with few known labels exist from the start at 0; those of a
// method, a position or an HTTP status begin when they are first used. No label has unbounded
// values. Event-loop thread.
#pragma once

#include <memory>
#include <string>

#include "coordinator/cluster/node_registry.h"
#include "coordinator/request/request.h"

namespace coppice::coordinator {

class Metrics {
 public:
  // vllm_names: metrics that vLLM also has are also exposed under its names.
  explicit Metrics(const std::string& model_name, bool vllm_names = false);
  ~Metrics();

  // finished_reason of request_success_total: stop, length, tool_calls, abort, error, timeout.
  void RequestEnded(const Request& request, const std::string& finished_reason, double now_s);
  void RequestRefused(const std::string& code);
  void FieldsIgnored(const IgnoredFields& ignored);
  // Tokens of prompts that have been computed, and tokens that replicas have reported.
  void Tokens(int64_t prompt, int64_t generated);
  void Failover();
  void Cancelled();
  // A node sent an impossible report, or a report about a sequence it does not run.
  void BadUpdate(const std::string& node);
  // Time between two updates of a sequence that brought tokens, in seconds.
  void InterToken(double seconds);
  // A node's heartbeat, with its counters since its start.
  void NodeStatus(const Node& node);
  void NodeUp(const Node& node, bool up);
  void ForgetNode(const std::string& id);  // ends the series of the node
  void SetWaiting(int requests);  // waiting requests, including those whose bodies are being read
  // The age of the oldest waiting request, how long a new client's would wait, in seconds, and
  // whether the server drains.
  void SetQueue(double oldest_s, double estimated_wait_s, bool draining);
  void SetReserved(const std::string& replica, int64_t kv_blocks);
  void Http(const std::string& handler, const std::string& method, int status, double seconds);
  void SetConnections(int open);

  std::string Text() const;  // in the Prometheus text format 0.0.4

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace coppice::coordinator
