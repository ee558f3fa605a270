// What an admin may do to a running cluster (docs/api.md 1.1): drain, undrain, cancel. Called by
// routes; ticked by the coordinator. Event-loop thread; the clock is an argument.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "coordinator/cluster/dispatcher.h"
#include "coordinator/cluster/node_registry.h"
#include "coordinator/http/api_error.h"
#include "coordinator/http/http.h"

namespace coppice::coordinator {

// A drain in progress.
struct DrainState {
  std::string target;  // cluster, replica:ID or draft:ID
  int running = 0;     // requests of the cluster, sequences of a replica, sessions of a draft node
  std::optional<double> seconds_left;  // until what still runs moves or fails; none: no limit
};

class Operations {
 public:
  // All must outlive this.
  Operations(const Clock* clock, NodeRegistry* registry, Dispatcher* dispatcher)
      : clock_(clock), registry_(registry), dispatcher_(dispatcher) {}

  // body: {target: "cluster", "replica:ID" or "draft:ID", timeout, move, wait}. The answer is 202
  // with the new state, or an error. With `wait` it comes when nothing runs on the target any more,
  // 200, or after so many seconds, 202.
  void Drain(const std::string& body, const std::shared_ptr<HttpExchange>& exchange);
  // The same without `move` and `wait`. Answers at once.
  HttpReply Undrain(const std::string& body);
  HttpReply Cancel(const std::string& request_id);
  // Ends drains whose timeout has passed, and answers who waits. Call it every few hundredths of a
  // second.
  void Tick();
  // The server ends, at the latest then: no drain can be begun or ended, and who waits is answered.
  void SetEnd(double end_s) { server_ends_s_ = end_s; }
  std::vector<DrainState> Drains() const;

 private:
  struct Target {
    std::string name;       // name of the target, as given
    std::string node;       // "" = the whole cluster
    double timeout_s = -1;  // < 0: none was given
    double wait_s = -1;
    bool move = false;  // what can start again elsewhere does so at once
  };
  struct Waiting {
    Target target;
    std::weak_ptr<HttpExchange> exchange;
    double end_s = 0;
  };
  std::optional<ApiError> Read(const std::string& body, bool with_timeout, Target* target) const;
  std::optional<ApiError> Set(const Target& target, bool draining);
  bool Over(const Target& target) const;
  int Running(const Target& target) const;
  HttpReply Accepted(const Target& target, int status = 202) const;
  void EndDrains();
  void AnswerWaiting();

  const Clock* const clock_;
  NodeRegistry* const registry_;
  Dispatcher* const dispatcher_;
  std::map<std::string, double> ends_s_;  // node ("" = cluster) -> when its drain must be over
  std::vector<Waiting> waiting_;
  std::optional<double> server_ends_s_;
};

}  // namespace coppice::coordinator
