// The dispatcher's queue: who gets a place in it, whose turn it is, and who cannot be served in
// time.
#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "coordinator/cluster/dispatcher.h"
#include "coordinator/request/request_log.h"
#include "decoding/params.h"

namespace coppice::coordinator {
namespace {

const ApiError kDraining{503, "draining", "the server is draining and takes no new requests", "",
                         5};

// A request is refused at once only if its estimated wait exceeds its time by this factor. The
// estimate is from the recent past, and some earlier waiting requests may give up.
constexpr double kSurely = 2;

// Retry-After before there is an estimate: for each request that the client has waiting.
constexpr double kUnknownWait_s = 0.1;

int NextPending(const Request& request) {
  const std::vector<Request::Sequence>& sequences = request.sequences();
  const auto pending = [](const Request::Sequence& s) { return !s.done && s.id == 0; };
  const auto it = std::find_if(sequences.begin(), sequences.end(), pending);
  return it == sequences.end() ? -1 : static_cast<int>(it - sequences.begin());
}

}  // namespace

std::optional<ApiError> Dispatcher::BeginParsing(const PendingBodyPtr& pending) {
  if (ending_ || (draining_ && pending->completes())) return kDraining;
  if (std::optional<ApiError> error = MakePlace(pending->client)) return error;
  pending_bodies_.push_back(pending);
  metrics_->SetWaiting(waiting());
  return std::nullopt;
}

void Dispatcher::Submit(const RequestPtr& request, bool admitted) {
  const auto refuse = [&](ApiError error) {
    metrics_->RequestRefused(error.code);
    request->Fail(std::move(error));
    LogRequest(*request, clock_->NowSeconds(), options_.log_requests);
  };
  if (draining_ && !admitted) return refuse(kDraining);
  const std::vector<const Node*> ready = registry_->ReadyReplicas();
  if (!ready.empty()) {
    std::optional<ApiError> error =
        FitToModel(LimitsOf(ready, *request), options_.limits, request->mutable_generate());
    if (error) return refuse(*std::move(error));
    request->MakeSequences();
  }
  if (!admitted) {
    if (auto error = MakePlace(request->origin().client)) return refuse(*std::move(error));
  }
  active_.push_back(request);
  next_deadline_s_ = std::min(next_deadline_s_, DeadlineOf(*request));
  Enqueue(request, /*first=*/false);
  Pump();
  if (auto error = TooLong(*request)) {
    active_.erase(std::find(active_.begin(), active_.end(), request));
    prompts_.erase(request.get());
    Dequeue(request);
    metrics_->SetWaiting(waiting());
    refuse(*std::move(error));
  }
}

// When the queue is full, a client that has fewer waiting than another, by weight, takes the place
// of the other's newest. So one client cannot keep the others out.
std::optional<ApiError> Dispatcher::MakePlace(const Client& client) {
  const int own = WaitingOf(client.name), most_own = options_.max_queue_per_client;
  if (most_own > 0 && own >= most_own) {
    return QueueFull(client, absl::StrCat("this client has ", own, " waiting requests, the limit"));
  }
  if (waiting() < options_.max_queue) return std::nullopt;
  std::map<std::string, double> lines;
  queue_.ForEachClient([&](const std::string& name, double weight, size_t count) {
    lines[name] += static_cast<double>(count) / weight;
  });
  for (const PendingBodyPtr& pending : pending_bodies_) {
    if (!pending->abandoned) lines[pending->client.name] += 1 / pending->client.weight;
  }
  const auto longest = std::max_element(
      lines.begin(), lines.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (longest != lines.end() && longest->second > (own + 1) / client.weight &&
      RefuseNewestOf(longest->first))
    return std::nullopt;
  return QueueFull(client, absl::StrCat("the queue of ", options_.max_queue, " requests is full"));
}

int Dispatcher::WaitingOf(const std::string& client) const {
  const auto waits = [&](const PendingBodyPtr& r) {
    return !r->abandoned && r->client.name == client;
  };
  return static_cast<int>(queue_.SizeOf(client) +
                          std::count_if(pending_bodies_.begin(), pending_bodies_.end(), waits));
}

std::map<std::string, Dispatcher::ClientLoad> Dispatcher::Clients() const {
  std::map<std::string, ClientLoad> clients;
  for (const auto& [client, held] : kv_turns_.held()) clients[client].sequences = held.sequences;
  queue_.ForEachClient([&](const std::string& client, double weight, size_t count) {
    (void)weight;
    clients[client].waiting += static_cast<int>(count);
  });
  for (const PendingBodyPtr& pending : pending_bodies_) {
    if (!pending->abandoned) ++clients[pending->client.name].waiting;
  }
  return clients;
}

// Does not refuse requests that have begun. Of those of the lowest priority, the newest. False: the
// client has no other requests.
bool Dispatcher::RefuseNewestOf(const std::string& client) {
  RequestPtr newest;
  const auto rank = [](const Request& request) {
    return std::pair(request.generate().priority, request.origin().arrival_s);
  };
  queue_.ForEach([&](const Queue::Entry& entry) {
    const bool later = newest == nullptr || rank(*entry.job) >= rank(*newest);
    if (entry.client == client && entry.job->started_s() < 0 && later) newest = entry.job;
  });
  PendingBodyPtr unread;
  for (const PendingBodyPtr& pending : pending_bodies_) {
    if (!pending->abandoned && pending->client.name == client) unread = pending;
  }
  if (unread != nullptr && (newest == nullptr || unread->arrival_s >= newest->origin().arrival_s)) {
    Fail(unread, QueueFull(unread->client, "the queue is full, and other clients wait for less"));
    return true;
  }
  if (newest == nullptr) return false;
  ApiError error = QueueFull(newest->origin().client,
                             "the queue is full, and other clients have fewer requests in it");
  metrics_->RequestRefused(error.code);
  newest->Fail(std::move(error));
  End(newest);
  return true;
}

ApiError Dispatcher::QueueFull(const Client& client, const std::string& what) const {
  return {429, "queue_full", what, "", RetryAfter(client)};
}

// Seconds that a request of the client would wait; nullopt: not known.
std::optional<double> Dispatcher::WaitOf(const Client& client, uint64_t entry, int priority) const {
  const std::optional<double> rate = rate_.PerSecond();
  if (!rate) return std::nullopt;
  return queue_.Ahead(client, entry, priority) / *rate;
}

int Dispatcher::RetryAfter(const Client& client, int priority) const {
  const double wait_s =
      WaitOf(client, 0, priority).value_or(WaitingOf(client.name) * kUnknownWait_s);
  return static_cast<int>(std::clamp(std::ceil(wait_s), 1.0, 60.0));
}

std::optional<ApiError> Dispatcher::TooLong(const Request& request) const {
  const auto entry = entries_.find(&request);
  if (entry == entries_.end() || request.started_s() >= 0 || registry_->ReadyReplicas().empty())
    return std::nullopt;
  const double timeout_s = request.generate().timeout_s;
  const double left_s = request.origin().arrival_s + timeout_s - clock_->NowSeconds();
  const std::optional<double> wait_s = WaitOf(request.origin().client, entry->second);
  if (!wait_s || *wait_s <= kSurely * left_s) return std::nullopt;
  return ApiError{429, "queue_timeout",
                  absl::StrCat("what comes before it takes about ", std::ceil(*wait_s),
                               " s, and its deadline is ", timeout_s, " s"),
                  "", RetryAfter(request.origin().client, request.generate().priority)};
}

ApiError Dispatcher::QueueTimeout(const Request& request) const {
  return {429, "queue_timeout",
          absl::StrCat("it waited in the queue for ", request.generate().timeout_s,
                       " s, its deadline, and did not begin"),
          "", RetryAfter(request.origin().client, request.generate().priority)};
}

KvBounds Dispatcher::BoundsOf(const Request& request, int index) const {
  std::vector<const Node*> replicas = registry_->ReadyReplicas();
  if (replicas.empty()) replicas = registry_->Replicas();  // it waits for one
  const KvStorage storage =
      replicas.empty() ? KvStorage{.block_size = 1} : StorageOf(*replicas.front());
  const size_t tokens = request.generate().prompts[request.sequences()[index].prompt].size();
  return KvBoundsOf(request.generate(), static_cast<int64_t>(tokens), storage);
}

// The blocks that the sequence is expected to need.
int64_t Dispatcher::BlocksOf(const Request& request, int index) const {
  return forecast_.Expect(request.generate(), BoundsOf(request, index));
}

double Dispatcher::PendingCost(const Request& request) const {
  double cost = 0;
  for (int i = 0; i < request.sequences().size(); ++i) {
    const Request::Sequence& sequence = request.sequences()[i];
    if (!sequence.done && sequence.id == 0) cost += static_cast<double>(BlocksOf(request, i));
  }
  return cost;
}

void Dispatcher::Enqueue(const RequestPtr& request, bool first) {
  rate_.Advance(clock_->NowSeconds(), !queue_.empty());
  const double cost = PendingCost(*request);
  const auto known = entries_.find(request.get());
  if (known != entries_.end()) return queue_.SetCost(known->second, cost);
  const Client& client = request->origin().client;
  entries_[request.get()] = first
                                ? queue_.PushFirst(client, cost, request)
                                : queue_.Push(client, cost, request, request->generate().priority);
}

void Dispatcher::Dequeue(const RequestPtr& request) {
  const auto entry = entries_.find(request.get());
  if (entry == entries_.end()) return;
  rate_.Advance(clock_->NowSeconds(), /*waiting=*/true);
  kv_turns_.Forget(entry->second);
  queue_.Remove(entry->second);
  entries_.erase(entry);
}

// Makes the sequences of a request, if this had to wait for the first replica. Returns false if the
// model does not allow the request; then it has failed.
bool Dispatcher::Prepare(const RequestPtr& request) {
  if (request->made()) return true;
  const ModelLimits limits = LimitsOf(registry_->ReadyReplicas(), *request);
  if (std::optional<ApiError> error =
          FitToModel(limits, options_.limits, request->mutable_generate())) {
    metrics_->RequestRefused(error->code);
    request->Fail(*std::move(error));
    return false;
  }
  request->MakeSequences();
  queue_.SetCost(entries_.at(request.get()), PendingCost(*request));
  return true;
}

void Dispatcher::Pump() {
  while (StartNext()) {
  }
  metrics_->SetWaiting(waiting());
}

// Starts one sequence: that of the first client in turn whose next sequence has room. False: none
// has room.
bool Dispatcher::StartNext() {
  if (registry_->ReadyReplicas().empty()) return false;
  std::vector<const Queue::Entry*> passed;
  for (const Queue::Entry* entry : queue_.Heads()) {
    const RequestPtr request = entry->job;
    if (!Prepare(request)) {
      End(request);
      return true;
    }
    const int64_t blocks = StartSequence(*entry);
    if (blocks == 0) {
      passed.push_back(entry);
      continue;
    }
    for (const Queue::Entry* waiting : passed) {
      kv_turns_.Passed(waiting->id, blocks);
      const int64_t needed = BlocksOf(*waiting->job, NextPending(*waiting->job));
      if (!kv_turns_.WaitsForOthers(waiting->client, needed, registry_->ReadyReplicas()))
        queue_.ForgoTurns(waiting->id);
    }
    if (NextPending(*request) < 0) Dequeue(request);
    return true;
  }
  return false;
}

const RoutedPrompt& Dispatcher::PromptOf(const Request& request, int prompt) {
  std::map<int, RoutedPrompt>& prompts = prompts_[&request];
  const auto known = prompts.find(prompt);
  if (known != prompts.end()) return known->second;
  return prompts[prompt] = RoutedPrompt(request.generate().prompts[prompt]);
}

// Starts the request's next sequence. Returns the blocks that it is expected to need; 0: no replica
// has room.
int64_t Dispatcher::StartSequence(const Queue::Entry& entry) {
  const RequestPtr& request = entry.job;
  const int index = NextPending(*request);
  const int64_t blocks = BlocksOf(*request, index);
  Request::Sequence& sequence = request->sequences()[index];
  const RoutedPrompt& prompt = PromptOf(*request, sequence.prompt);
  const std::vector<const Node*> ready = registry_->ReadyReplicas();
  const std::string replica =
      router_.Pick(kv_turns_.WithRoom(ready, entry.client, entry.id, blocks, prompt), prompt);
  if (replica.empty()) {
    kv_turns_.Blocked(entry.id, entry.client, blocks, ready);
    return 0;
  }
  const Node* node = registry_->Find(replica);
  const uint64_t id = next_sequence_id_++;
  sequence.kv_blocks = blocks;
  sequence.kv_added = router_.Added(*node, prompt, blocks);
  router_.Reserve(*node, prompt, blocks);
  kv_turns_.Started(entry.client, entry.id, replica, id, sequence.kv_added);
  queue_.Serve(entry.id, static_cast<double>(blocks));
  request->Start(index, id, replica, Fingerprint(*node), clock_->NowSeconds());
  running_[id] = {request, index};
  proto::CoordinatorMessage message;
  *message.mutable_start() = request->StartMessage(index);
  message.mutable_start()->set_sequence_id(id);
  send_(node->peer, message);
  return blocks;
}

}  // namespace coppice::coordinator
