// GET /debug/trace: asks every ready replica where the time of its engine goes for some seconds, and
// answers with one document for a trace viewer, together with the requests that ended meanwhile.
// Used by routes; ticked by the coordinator. Event-loop thread; the clock is an argument.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "base/clock.h"
#include "coordinator/cluster/dispatcher.h"
#include "coordinator/cluster/node_registry.h"
#include "coordinator/http/http.h"
#include "coordinator/http/parse_pool.h"

namespace coppice::coordinator {

class ClusterTrace {
 public:
  static constexpr double kMost_s = 60;

  // All must outlive this.
  ClusterTrace(const Clock* clock, const NodeRegistry* registry, const Dispatcher* dispatcher,
               ParsePool* jobs, Dispatcher::Send send)
      : clock_(clock),
        registry_(registry),
        dispatcher_(dispatcher),
        jobs_(jobs),
        send_(std::move(send)) {}

  // target: of the request; ?seconds=N, 1 if it is absent. Answers when all replicas have, or two
  // seconds late without the others; at once with an error, or if another trace is under way.
  void Begin(const std::string& target, const std::shared_ptr<HttpExchange>& exchange);
  // Another thread makes text of it, since that takes longer than anything else on this one.
  void Take(const std::string& peer, proto::StepTrace trace);
  void Tick();  // call it every few hundredths of a second

 private:
  struct Replica {
    int process = 0;  // its process in the document
    proto::StepTrace trace;
    absl::Status fields;
    std::string events;
  };
  static void MakeText(Replica* replica);
  void AddRequests();
  void Answer();

  const Clock* const clock_;
  const NodeRegistry* const registry_;
  const Dispatcher* const dispatcher_;
  ParsePool* const jobs_;
  const Dispatcher::Send send_;
  std::weak_ptr<HttpExchange> exchange_;
  uint64_t id_ = 0;  // of the trace that is under way, or was last
  bool under_way_ = false;
  double begin_s_ = 0, late_s_ = 0;
  std::map<std::string, int> awaited_;  // replica -> its process in the document
  uint64_t dropped_ = 0;
  std::string events_;
};

}  // namespace coppice::coordinator
