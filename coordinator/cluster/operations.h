// What an admin may do to a running cluster (docs/api.md 1.1): drain, undrain, cancel. Called by
// routes; ticked by the coordinator. Event-loop thread; the clock is an argument.
#pragma once

#include <map>
#include <string>

#include "base/clock.h"
#include "coordinator/cluster/dispatcher.h"
#include "coordinator/cluster/node_registry.h"
#include "coordinator/http/api_error.h"

namespace coppice::coordinator {

class Operations {
 public:
  // All must outlive this.
  Operations(const Clock* clock, NodeRegistry* registry, Dispatcher* dispatcher)
      : clock_(clock), registry_(registry), dispatcher_(dispatcher) {}

  // body: {target: "cluster", "replica:ID" or "draft:ID", timeout}. The answers are 202 with the
  // new state, or an error.
  HttpReply Drain(const std::string& body);
  HttpReply Undrain(const std::string& body);
  HttpReply Cancel(const std::string& request_id);
  // Ends drains whose timeout has passed. Call it every few hundredths of a second.
  void Tick();

 private:
  struct Target {
    std::string name;       // name of the target, as given
    std::string node;       // "" = the whole cluster
    double timeout_s = -1;  // < 0: none was given
  };
  std::optional<ApiError> Read(const std::string& body, bool with_timeout, Target* target) const;
  std::optional<ApiError> Set(const Target& target, bool draining);
  HttpReply Accepted(const Target& target) const;

  const Clock* const clock_;
  NodeRegistry* const registry_;
  Dispatcher* const dispatcher_;
  std::map<std::string, double> ends_s_;  // node ("" = cluster) -> when its drain must be over
};

}  // namespace coppice::coordinator
