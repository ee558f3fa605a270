#include "coordinator/cluster/dispatcher.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/request/request_log.h"
#include "proto/convert.h"
#include "sampling/rng.h"

namespace coppice::coordinator {
namespace {

// Never 0, however long ids are counted from here.
uint64_t FirstSequenceId() {
  std::random_device random;
  return uint64_t{random() >> 1} << 32 | 1;
}

}  // namespace

Dispatcher::Dispatcher(const DispatcherOptions& options, const Clock* clock, NodeRegistry* registry,
                       Metrics* metrics, Send send)
    : options_(options),
      clock_(clock),
      registry_(registry),
      metrics_(metrics),
      send_(std::move(send)),
      forecast_(options.kv_cover),
      next_sequence_id_(FirstSequenceId()) {}

ModelLimits Dispatcher::LimitsOf(const std::vector<const Node*>& replicas,
                                 const Request& request) const {
  const Node& node = *replicas.front();
  const proto::ModelInfo& model = node.registration.model();
  ModelLimits limits;
  limits.max_model_len = model.max_positions();
  if (options_.max_model_len > 0)
    limits.max_model_len = std::min(limits.max_model_len, options_.max_model_len);
  limits.vocab_size = model.vocab_size();
  limits.eos_ids = {model.eos_ids().begin(), model.eos_ids().end()};
  limits.kv_blocks_total = node.registration.kv_blocks_total();
  limits.kv_storage = StorageOf(node);
  if (request.generate().max_tokens_given) return limits;
  for (const Node* other : replicas) {
    limits.kv_blocks_total =
        std::min<int64_t>(limits.kv_blocks_total, other->registration.kv_blocks_total());
  }
  return limits;
}

// Weights, types, backend, rank count and version decide the text (docs/api.md 3, Determinism).
std::string Dispatcher::Fingerprint(const Node& node) const {
  const proto::Register& info = node.registration;
  uint64_t hash = sampling::Finalize(info.model().fingerprint());
  for (const char c : absl::StrCat(info.model().dtype(), "|", info.model().kv_dtype(), "|",
                                   info.backend(), "|", info.ranks_size(), "|", info.version())) {
    hash = sampling::Finalize(hash ^ static_cast<unsigned char>(c));
  }
  return absl::StrCat("cop-", absl::Hex(hash >> 16, absl::kZeroPad12));
}

void Dispatcher::EndParsing(const PendingBodyPtr& pending) {
  pending_bodies_.erase(std::find(pending_bodies_.begin(), pending_bodies_.end(), pending));
  metrics_->SetWaiting(waiting());
}

// It keeps its place while a thread reads it.
void Dispatcher::Fail(const PendingBodyPtr& pending, const ApiError& error) {
  pending->Abandon();
  if (pending->completes()) {
    metrics_->RequestRefused(error.code);
    LogRefusal(pending->request, error, options_.log_requests);
  }
  pending->exchange->Reply(ErrorReply(error, pending->request.error_form));
}

bool Dispatcher::idle() const {
  const auto abandoned = [](const PendingBodyPtr& pending) { return pending->abandoned.load(); };
  return active_.empty() && std::all_of(pending_bodies_.begin(), pending_bodies_.end(), abandoned);
}

int Dispatcher::running() const {
  return static_cast<int>(
      std::count_if(active_.begin(), active_.end(), [](const RequestPtr& request) {
        const std::vector<Request::Sequence>& sequences = request->sequences();
        return std::any_of(sequences.begin(), sequences.end(),
                           [](const Request::Sequence& one) { return one.id != 0; });
      }));
}

void Dispatcher::StopSequence(Request::Sequence* sequence, bool tell_replica) {
  if (sequence->id == 0) return;
  const auto running = running_.find(sequence->id);
  const Request& request = *running->second.request;
  router_.Release(sequence->replica, PromptOf(request, sequence->prompt), sequence->kv_blocks);
  kv_turns_.Ended(request.origin().client.name, sequence->replica, sequence->id,
                  sequence->kv_added);
  rate_.Advance(clock_->NowSeconds(), !queue_.empty());
  rate_.Served(static_cast<double>(sequence->kv_blocks), !queue_.empty());
  running_.erase(running);
  const Node* node = registry_->Find(sequence->replica);
  if (tell_replica && node != nullptr && node->state != NodeState::kLost) {
    proto::CoordinatorMessage message;
    message.mutable_cancel()->set_sequence_id(sequence->id);
    send_(node->peer, message);
  }
  sequence->id = 0;
}

// Frees what a request holds, after it has been answered or abandoned.
void Dispatcher::End(const RequestPtr& request) {
  for (Request::Sequence& sequence : request->sequences())
    StopSequence(&sequence, /*tell_replica=*/true);
  active_.erase(std::remove(active_.begin(), active_.end(), request), active_.end());
  prompts_.erase(request.get());
  Dequeue(request);
  Report(*request);
}

void Dispatcher::Report(const Request& request) {
  const double now = clock_->NowSeconds();
  if (options_.timelines > 0) {
    timelines_.push_back(TimelineOf(request, now));
    if (timelines_.size() > options_.timelines) timelines_.pop_front();
  }
  metrics_->RequestEnded(request, FinishedReason(request), now);
  LogRequest(request, now, options_.log_requests);
}

void Dispatcher::Disconnected(const RequestPtr& request) {
  if (request->ended()) return request->Abandon();  // its answer is still being made
  request->Abandon();
  metrics_->Cancelled();
  End(request);
  Pump();
}

void Dispatcher::Apply(const std::string& peer, const Node* sender,
                       const proto::SequenceUpdate& update) {
  const auto found = running_.find(update.sequence_id());
  if (found == running_.end()) {
    if (update.finished() || !update.error_code().empty()) return;
    proto::CoordinatorMessage message;  // the sequence was moved or cancelled
    message.mutable_cancel()->set_sequence_id(update.sequence_id());
    return send_(peer, message);
  }
  const RequestPtr request = found->second.request;
  const int index = found->second.index;
  const std::string& replica = request->sequences()[index].replica;
  if (sender != nullptr && sender->id != replica) {
    spdlog::warn("{}: update of sequence {}, which runs on {}: ignored", sender->id,
                 update.sequence_id(), replica);
    return metrics_->BadUpdate(sender->id);
  }
  if (update.has_index()) {
    const uint32_t expected = request->sequences()[index].updates++;
    if (update.index() > expected) return UpdateLost(found->second);
  }
  const double now = clock_->NowSeconds();
  // Without a stream, updates are rare and bring many tokens.
  if (request->generate().stream && (update.stable_tokens_size() > 0 || update.finished())) {
    if (found->second.last_update_s >= 0) metrics_->InterToken(now - found->second.last_update_s);
    found->second.last_update_s = now;
  }
  const bool believed = request->OnUpdate(index, update, now);
  const Request::NewTokens tokens = request->TakeNewTokens(index);
  metrics_->Tokens(tokens.prompt, tokens.generated);
  Request::Sequence& sequence = request->sequences()[index];
  if (!believed) {
    spdlog::error("sequence {}: {}", update.sequence_id(), request->error()->message);
    metrics_->BadUpdate(replica);
    StopSequence(&sequence, /*tell_replica=*/true);
  }
  const bool over_there = update.finished() || !update.error_code().empty();
  if (update.finished() && update.kv_blocks_peak() > 0 && believed) {
    forecast_.Record(request->generate(), BoundsOf(*request, index),
                     static_cast<int64_t>(update.kv_blocks_peak()));
  }
  if (sequence.done || over_there) StopSequence(&sequence, /*tell_replica=*/!over_there);
  if (request->ended()) End(request);
}

int Dispatcher::Cancel(const std::string& request_id) {
  std::vector<RequestPtr> found;
  for (const RequestPtr& request : active_) {
    if (request->origin().request_id == request_id) found.push_back(request);
  }
  const ApiError cancelled{503, "cancelled", "an admin has cancelled the request"};
  for (const RequestPtr& request : found) {
    metrics_->Cancelled();
    request->Fail(cancelled);
    End(request);
  }
  int unread = 0;
  for (const PendingBodyPtr& pending : pending_bodies_) {
    if (pending->abandoned || pending->request.request_id != request_id) continue;
    metrics_->Cancelled();
    Fail(pending, cancelled);
    ++unread;
  }
  if (!found.empty()) Pump();
  return static_cast<int>(found.size()) + unread;
}

std::string Dispatcher::FindTimeline(const std::string& request_id) const {
  for (const RequestPtr& request : active_) {
    if (request->origin().request_id == request_id)
      return TimelineJson(TimelineOf(*request, clock_->NowSeconds()));
  }
  for (auto it = timelines_.rbegin(); it != timelines_.rend(); ++it) {
    if (it->request_id == request_id) return TimelineJson(*it);
  }
  return "";
}

double Dispatcher::DeadlineOf(const Request& request) {
  return request.origin().arrival_s + request.generate().timeout_s;
}

// The requests whose deadline has passed. Between deadlines it looks at none: there may be ten
// thousand.
std::vector<Dispatcher::RequestPtr> Dispatcher::TakeLate(double now_s) {
  std::vector<RequestPtr> late;
  if (now_s < next_deadline_s_) return late;
  next_deadline_s_ = kNever;
  for (const RequestPtr& request : active_) {
    if (now_s >= DeadlineOf(*request)) {
      late.push_back(request);
    } else {
      next_deadline_s_ = std::min(next_deadline_s_, DeadlineOf(*request));
    }
  }
  return late;
}

void Dispatcher::Tick() {
  for (const std::string& id : registry_->CollectLost()) NodeLost(id);
  ForgetLostNodes();
  EndForsaken();
  const double now = clock_->NowSeconds();
  rate_.Advance(now, !queue_.empty());
  const std::vector<RequestPtr> late = TakeLate(now);
  const bool none = registry_->ReadyReplicas().empty();
  for (const RequestPtr& request : late) {
    const double seconds = request->generate().timeout_s;
    if (request->started_s() < 0) {
      request->Fail(none ? ApiError{503, "no_replica",
                                    absl::StrCat("no replica was ready within ", seconds, " s"), "",
                                    5}
                         : QueueTimeout(*request));
    } else {
      request->Fail(
          {504, "deadline_exceeded", absl::StrCat("the deadline of ", seconds, " s has passed")});
    }
    End(request);
  }
  if (!late.empty()) Pump();
}

void Dispatcher::UpdateGauges() {
  const double now = clock_->NowSeconds();
  double oldest_s = now;
  queue_.ForEach([&](const Queue::Entry& entry) {
    oldest_s = std::min(oldest_s, entry.job->origin().arrival_s);
  });
  for (const PendingBodyPtr& pending : pending_bodies_) {
    if (!pending->abandoned) oldest_s = std::min(oldest_s, pending->arrival_s);
  }
  // Until enough was served for an estimate, what has been waited already.
  metrics_->SetQueue(now - oldest_s, WaitOf(Client{}).value_or(now - oldest_s), draining_);
  for (const Node* node : registry_->Replicas())
    metrics_->SetReserved(node->id, router_.reserved(node->id));
}

void Dispatcher::SetDraining(bool draining, const std::string& why) {
  if (draining_ == draining) return;
  draining_ = draining;
  registry_->AddEvent(absl::StrCat(draining ? "draining: " : "no longer draining: ", why));
}

void Dispatcher::BeginEnd(const std::string& why) {
  ending_ = true;
  SetDraining(true, why);
}

void Dispatcher::FailAll(const ApiError& error) {
  const std::vector<RequestPtr> all = active_;
  for (const RequestPtr& request : all) {
    request->Fail(error);
    End(request);
  }
  for (const PendingBodyPtr& pending : pending_bodies_) {
    if (!pending->abandoned) Fail(pending, error);
  }
}

}  // namespace coppice::coordinator
