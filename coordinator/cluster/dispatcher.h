// Dispatches requests: whose turn it is, which sequence runs where, deadlines, cancellation,
// fail-over. Connects the registry, the router and the requests, and sends to nodes through a
// callback. Event-loop thread. No socket; the clock is an argument.
#pragma once

#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "coordinator/api/api.h"
#include "coordinator/cluster/cluster_options.h"
#include "coordinator/cluster/kv_forecast.h"
#include "coordinator/cluster/kv_turns.h"
#include "coordinator/cluster/metrics.h"
#include "coordinator/cluster/node_registry.h"
#include "coordinator/cluster/router.h"
#include "coordinator/cluster/service_rate.h"
#include "coordinator/http/fair_queue.h"
#include "coordinator/request/pending_body.h"
#include "coordinator/request/request.h"
#include "coordinator/request/timeline.h"

namespace coppice::coordinator {

class Dispatcher {
 public:
  using Send =
      std::function<void(const std::string& peer, const proto::CoordinatorMessage& message)>;
  // clock, registry and metrics must outlive the dispatcher.
  Dispatcher(const DispatcherOptions& options, const Clock* clock, NodeRegistry* registry,
             Metrics* metrics, Send send);

  // A request's body is about to be read by another thread. Until EndParsing it waits: it takes a
  // place in the queue, and can be cancelled. An error refuses it: draining, or queue_full. If its
  // client has few waiting requests, the last one of the client with most is refused instead.
  std::optional<ApiError> BeginParsing(const std::shared_ptr<PendingBody>& pending);
  void EndParsing(const std::shared_ptr<PendingBody>& pending);
  // Queues or starts the request, or fails it: draining, queue_full, queue_timeout, or not allowed
  // by the model. admitted: by BeginParsing, so that it has a place.
  void Submit(const std::shared_ptr<Request>& request, bool admitted = false);
  void Disconnected(const std::shared_ptr<Request>& request);
  void OnNodeMessage(const std::string& peer, const proto::NodeMessage& message);
  // Handles deadlines and lost nodes. Call it every few hundredths of a second.
  void Tick();

  // While it drains, new requests are refused.
  void SetDraining(bool draining, const std::string& why);
  void BeginEnd(const std::string& why);   // drains for good
  void StopNodes(const std::string& why);  // tells every node to end
  void FailAll(const ApiError& error);
  // request_id: of HTTP. Returns how many requests it has ended.
  int Cancel(const std::string& request_id);
  // Moves the sequences of a replica to others. Those that cannot move fail with `draining`, or
  // with kWhatCan stay.
  enum class MoveAs { kAll, kWhatCan };
  void MoveAway(const std::string& replica, MoveAs what = MoveAs::kAll);
  void UpdateGauges();  // of the queue and of reserved KV, before metrics are read
  void NodesChanged();  // call it after a node has been drained or undrained
  // The timeline of the running request with this id, else of the last that ended. "": not kept.
  std::string FindTimeline(const std::string& request_id) const;
  const std::deque<Timeline>& timelines() const { return timelines_; }
  int SequencesOf(const std::string& replica) const { return router_.running(replica); }
  bool draining() const { return draining_; }
  bool ending() const { return ending_; }
  bool idle() const;
  // Requests with a sequence that runs nowhere yet, and bodies that have not been read.
  int waiting() const { return static_cast<int>(queue_.size() + pending_bodies_.size()); }
  struct ClientLoad {
    int waiting = 0;    // requests that wait
    int sequences = 0;  // sequences that run
  };
  // Clients with waiting requests or running sequences.
  std::map<std::string, ClientLoad> Clients() const;
  // Requests with a sequence at a replica. While further sequences of it wait, it waits as well.
  int running() const;
  // Requests that have not been answered: each counts once, whether it runs, waits or both.
  int unanswered() const { return static_cast<int>(active_.size() + pending_bodies_.size()); }
  const DispatcherOptions& options() const { return options_; }
  const Router& router() const { return router_; }

 private:
  using RequestPtr = std::shared_ptr<Request>;
  using PendingBodyPtr = std::shared_ptr<PendingBody>;
  using Queue = FairQueue<RequestPtr>;
  struct Running {
    RequestPtr request;
    int index = 0;
    double last_update_s = -1;
  };

  void Register(const std::string& peer, const proto::Register& registration);
  void StartAnew(const Node& node);
  void UpdateLost(Running running);  // a copy, since the entry is erased
  void TakeProgress(const std::string& peer, const proto::Progress& progress);
  // sender: the node of the peer; nullptr: it is not registered yet.
  void ApplyAlone(const std::string& peer, const Node* sender, const proto::SequenceUpdate& update);
  void Apply(const std::string& peer, const Node* sender, const proto::SequenceUpdate& update);
  void NodeLost(const std::string& id);
  void ForgetLostNodes();
  std::vector<Running> RunningOn(const std::string& replica) const;
  void Move(const Running& running, bool tell_replica, const ApiError& if_shown);
  void NodeBack(const Node& node);
  void TellToEnd(const Node& node);
  void TellToRegister(const std::string& peer);
  void EndForsaken();
  std::string LostWhileAnswering(const std::string& replica) const;
  void BroadcastDraftNodes();
  void Pump();
  bool StartNext();
  bool Prepare(const RequestPtr& request);
  int64_t StartSequence(const Queue::Entry& entry);
  const RoutedPrompt& PromptOf(const Request& request, int prompt);
  KvBounds BoundsOf(const Request& request, int index) const;
  int64_t BlocksOf(const Request& request, int index) const;
  double PendingCost(const Request& request) const;
  void Enqueue(const RequestPtr& request, bool first);
  void Dequeue(const RequestPtr& request);
  std::optional<ApiError> MakePlace(const Client& client);
  int WaitingOf(const std::string& client) const;
  bool RefuseNewestOf(const std::string& client);
  std::optional<double> WaitOf(const Client& client, uint64_t entry = 0, int priority = 0) const;
  std::optional<ApiError> TooLong(const Request& request) const;
  ApiError QueueTimeout(const Request& request) const;
  void StopSequence(Request::Sequence* sequence, bool tell_replica);
  void End(const RequestPtr& request);
  void Report(const Request& request);
  static double DeadlineOf(const Request& request);
  std::vector<RequestPtr> TakeLate(double now_s);
  void Fail(const PendingBodyPtr& pending, const ApiError& error);
  ApiError QueueFull(const Client& client, const std::string& what) const;
  int RetryAfter(const Client& client, int priority = 0) const;
  // replicas: those that are ready, at least one. A request that gives no max_tokens gets one with
  // which it fits into the KV of each of them.
  ModelLimits LimitsOf(const std::vector<const Node*>& replicas, const Request& request) const;
  std::string Fingerprint(const Node& node) const;

  const DispatcherOptions options_;
  const Clock* const clock_;
  NodeRegistry* const registry_;
  Metrics* const metrics_;
  const Send send_;
  Router router_;
  std::vector<PendingBodyPtr>
      pending_bodies_;              // includes abandoned bodies until their thread is done
  std::vector<RequestPtr> active_;  // queued and running
  static constexpr double kNever = std::numeric_limits<double>::infinity();
  double next_deadline_s_ = kNever;  // no active request has an earlier one
  Queue queue_;  // requests with a sequence that runs nowhere, in the order of their turns
  std::unordered_map<const Request*, uint64_t> entries_;  // entries of the requests in queue_
  // Of active requests, by the number of the prompt, from its first look for a replica on.
  std::unordered_map<const Request*, std::map<int, RoutedPrompt>> prompts_;
  KvForecast forecast_;
  KvTurns kv_turns_{&router_};
  ServiceRate rate_;                               // in KV blocks per second
  std::unordered_map<uint64_t, Running> running_;  // by sequence id
  // Sequences that a lost node may still run; it is told to drop them before it gets new ones.
  std::map<std::string, std::vector<uint64_t>> left_behind_;
  // A replica may still run what another coordinator has started, so the ids begin anywhere.
  uint64_t next_sequence_id_;
  std::deque<Timeline> timelines_;  // of requests that have ended, oldest first
  bool draining_ = false, ending_ = false;
};

}  // namespace coppice::coordinator
