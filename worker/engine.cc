#include "worker/engine.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/stop_signal.h"
#include "decoding/decision_cost.h"
#include "decoding/method.h"
#include "proto/convert.h"
#include "worker/kv_commit.h"
#include "worker/report.h"

namespace coppice {
namespace {

double Now() { return SteadyClock().NowSeconds(); }

}  // namespace

Engine::Engine(const EngineOptions& options, ModelHost* host, PlanLeader* plans, NodeAgent* agent)
    : options_(options),
      host_(host),
      plans_(plans),
      agent_(agent),
      scheduler_(options.scheduler),
      drafts_(options.drafts),
      trace_(options.trace_rounds) {}

Engine::~Engine() = default;

absl::Status Engine::Run() {
  PublishStatus();
  while (!stopped_ && !StopRequested()) {
    Wait();
    TakeCoordinatorMessages();
    TakeForests();
    AdmitWaiting();
    if (HasWork()) COPPICE_RETURN_IF_ERROR(Step());
    if (Now() - last_status_s_ > 0.1) PublishStatus();
  }
  return absl::OkStatus();
}

bool Engine::HasWork() const {
  return !ready_.empty() ||
         std::any_of(sequences_.begin(), sequences_.end(), [](const auto& entry) {
           return entry.second->state == SequenceState::kPrefill;
         });
}

void Engine::Wait() {
  if (HasWork()) return;
  int timeout_ms = 200;
  const double now_s = Now();
  for (const auto& [id, deadline_s] : draft_deadline_) {
    timeout_ms =
        std::min(timeout_ms, std::max(0, static_cast<int>((deadline_s - now_s) * 1e3) + 1));
  }
  std::vector<Pollable> sockets = drafts_.sockets();
  sockets.push_back(agent_->socket());
  if (!PollAwake(sockets, drafts_.awake_until_s())) Poll(sockets, timeout_ms);
}

void Engine::TakeCoordinatorMessages() {
  while (auto message = agent_->Receive()) {
    switch (message->kind_case()) {
      case proto::CoordinatorMessage::kStart:
        Start(message->start());
        break;
      case proto::CoordinatorMessage::kCancel:
        Cancel(message->cancel().sequence_id());
        break;
      case proto::CoordinatorMessage::kDraftNodes:
        drafts_.SetNodes(message->draft_nodes());
        break;
      case proto::CoordinatorMessage::kRegisterAck: {
        proto::DraftNodes nodes;
        *nodes.mutable_nodes() = message->register_ack().draft_nodes();
        drafts_.SetNodes(nodes);
        break;
      }
      case proto::CoordinatorMessage::kStop:
        spdlog::info("the coordinator says stop: {}", message->stop().reason());
        stopped_ = true;
        break;
      default:
        break;
    }
  }
}

void Engine::Start(const proto::StartSequence& start) {
  auto sequence = std::make_unique<Sequence>();
  sequence->id = start.sequence_id();
  sequence->prompt.assign(start.prompt().begin(), start.prompt().end());
  sequence->quiet = start.quiet();
  sequence->arrival_s = Now();
  Sequence* held = sequence.get();
  if (!sequences_.emplace(held->id, std::move(sequence)).second) {
    spdlog::warn("sequence {} started twice; the second start is dropped", start.sequence_id());
    return;
  }
  const ModelConfig& model = host_->model->config();
  auto params = DecodingFromMessage(start.decoding());
  if (!params.ok()) return Fail(held, "invalid_value", std::string(params.status().message()));
  held->params = *std::move(params);
  auto method = ResolveMethod(held->params.method, held->params);
  if (!method.ok())
    return Fail(held, "unsupported_combination", std::string(method.status().message()));
  held->params.method = *method;
  if (auto status = CheckDecisionCost(held->params, model.vocab_size); !status.ok()) {
    return Fail(held, "unsupported_combination", std::string(status.message()));
  }
  held->draft = DraftSizeOf(held->params);
  const MethodRow* row = FindMethod(*method);
  held->stats.method = *method;
  held->stats.lossless = row == nullptr || (row->lossless && held->params.width_threshold == 0);
  if (held->prompt.empty()) return Fail(held, "invalid_value", "prompt: no tokens");
  if (auto status = CheckTokens(held->prompt, model.vocab_size, "prompt"); !status.ok()) {
    return Fail(held, "invalid_value", std::string(status.message()));
  }
  const int64_t longest = static_cast<int64_t>(held->prompt.size()) + held->params.max_tokens;
  if (longest > model.max_positions) {
    return Fail(held, "context_length_exceeded",
                absl::StrCat("prompt and max_tokens are ", longest, " tokens, the model has ",
                             model.max_positions));
  }
  if (auto status = scheduler_.CheckFits(*held); !status.ok()) {
    return Fail(held, "kv_capacity_exceeded", std::string(status.message()));
  }
  auto decoder = MakeBeamDecoder(held->params);
  if (!decoder.ok())
    return Fail(held, "unsupported_combination", std::string(decoder.status().message()));
  held->decoder = *std::move(decoder);
  waiting_.push_back(held->id);
}

void Engine::Cancel(uint64_t sequence_id) {
  const auto found = sequences_.find(sequence_id);
  if (found == sequences_.end()) return;
  Release(found->second.get());
  sequences_.erase(found);
  host_->blocks->EndRound();
}

void Engine::AdmitWaiting() {
  while (!waiting_.empty()) {
    const auto found = sequences_.find(waiting_.front());
    if (found != sequences_.end()) {
      Sequence* sequence = found->second.get();
      if (!scheduler_.Admit(sequence)) return;
      sequence->admitted_s = Now();
      sequence->stats.queue_ms = (sequence->admitted_s - sequence->arrival_s) * 1e3;
      int cached_tokens = 0;
      sequence->kv = host_->blocks->Open(sequence->prompt, &cached_tokens);
      sequence->stats.cached_tokens = cached_tokens;
      sequence->state = SequenceState::kPrefill;
      sequence->forest = DraftForest::Empty(1);
      if (sequence->draft.drafts) drafts_.Open(*sequence);
    }
    waiting_.pop_front();
  }
}

void Engine::TakeForests() {
  const double now_s = Now();
  for (DraftArrival& arrival : drafts_.Receive(now_s)) {
    const auto found = sequences_.find(arrival.sequence_id);
    if (found == sequences_.end() || found->second->state != SequenceState::kDrafting) continue;
    Sequence* sequence = found->second.get();
    draft_deadline_.erase(sequence->id);
    sequence->draft_wait_s = now_s - sequence->draft_asked_s;
    sequence->stats.draft_wait_ms += sequence->draft_wait_s * 1e3;
    if (arrival.failed != Fallback::kNone) {
      GoPlain(sequence, arrival.failed);
      continue;
    }
    sizer_.RecordDraft(arrival.forest.depth(), now_s - sequence->draft_asked_s);
    sequence->stats.draft_ms += arrival.draft_s * 1e3;
    sequence->draft_s = arrival.draft_s;
    sequence->draft_model_s = arrival.model_s;
    sequence->draft_came = true;
    sequence->forest = std::move(arrival.forest);
    sequence->state = SequenceState::kReady;
    ready_.push_back(sequence->id);
  }
  for (auto it = draft_deadline_.begin(); it != draft_deadline_.end();) {
    if (it->second > now_s) {
      ++it;
      continue;
    }
    Sequence* sequence = sequences_.at(it->first).get();
    it = draft_deadline_.erase(it);
    sequence->draft_wait_s = now_s - sequence->draft_asked_s;
    sequence->stats.draft_wait_ms += sequence->draft_wait_s * 1e3;
    drafts_.GaveUp(sequence->id, now_s);
    GoPlain(sequence, Fallback::kLate);
  }
}

void Engine::GoPlain(Sequence* sequence, Fallback reason) {
  if (reason != Fallback::kNone) ++(*counters_.mutable_draft_fallbacks())[FallbackName(reason)];
  sequence->forest = DraftForest::Empty(static_cast<int>(sequence->decoder->roots().size()));
  sequence->state = SequenceState::kReady;
  ready_.push_back(sequence->id);
}

void Engine::NextRound(Sequence* sequence) {
  ++sequence->round;
  sequence->draft_wait_s = sequence->draft_s = sequence->draft_model_s = 0;
  sequence->draft_came = false;
  const SizerLimits limits = scheduler_.ForestLimits(*sequence);
  const DraftShape shape = sequence->next_shape ? ForestSizer::Clip(*sequence->next_shape, limits)
                                                : sizer_.Choose(sequence->params.method, limits);
  sequence->next_shape.reset();
  sequence->draft_shape = shape;
  if (shape.depth == 0) return GoPlain(sequence, Fallback::kNone);
  sequence->draft_asked_s = Now();
  double deadline_s = 0;
  const Fallback refused =
      drafts_.Ask(*sequence, shape.width, shape.depth, sequence->draft_asked_s, &deadline_s);
  if (refused != Fallback::kNone) return GoPlain(sequence, refused);
  sequence->state = SequenceState::kDrafting;
  draft_deadline_[sequence->id] = deadline_s;
}

// Gives the sequence its rows in the pass. False: they do not fit any more (it stays ready) or it
// failed.
bool Engine::Join(Sequence* sequence, BatchBuilder* batch, std::vector<Participant>* participants) {
  const int rows = static_cast<int>(sequence->decoder->roots().size()) + sequence->forest.size();
  if (batch->rows() + rows > options_.scheduler.max_rows) {
    if (rows <= options_.scheduler.max_rows) return false;
    sequence->forest = DraftForest::Empty(static_cast<int>(sequence->decoder->roots().size()));
    return false;
  }
  auto reserved = ReserveRows(sequence, host_->blocks.get());
  if (!reserved.ok()) {
    Fail(sequence, "internal_error", std::string(reserved.status().message()));
    return true;
  }
  participants->push_back({sequence, *std::move(reserved), absl::UnknownError("not verified")});
  AppendRows(*sequence, batch, &participants->back().rows);
  return true;
}

void Engine::AppendVerifications(BatchBuilder* batch, std::vector<Participant>* participants) {
  std::deque<uint64_t> left;
  for (uint64_t id : std::exchange(ready_, {})) {
    const auto found = sequences_.find(id);
    if (found == sequences_.end() || found->second->state != SequenceState::kReady) continue;
    if (!Join(found->second.get(), batch, participants)) left.push_back(id);
  }
  ready_ = std::move(left);
}

void Engine::AppendPrefills(BatchBuilder* batch, std::vector<Participant>* participants) {
  std::vector<Sequence*> prefilling;
  for (auto& [id, sequence] : sequences_) {
    if (sequence->state == SequenceState::kPrefill) prefilling.push_back(sequence.get());
  }
  int budget = options_.scheduler.prefill_chunk;
  for (Sequence* sequence : prefilling) {
    // The last prompt token is the root of the first round: it is a trie node, not a prefix token.
    const int begin = host_->blocks->prefix_length(sequence->kv);
    const int left = static_cast<int>(sequence->prompt.size()) - 1 - begin;
    const int room = options_.scheduler.max_rows - batch->rows() - 1;
    const int count = std::min({left, budget, room});
    if (count > 0) {
      const auto chunk = absl::MakeConstSpan(sequence->prompt).subspan(begin, count);
      auto slots = host_->blocks->AppendPrefix(sequence->kv, chunk);
      if (!slots.ok()) {
        Fail(sequence, "internal_error", std::string(slots.status().message()));
        continue;
      }
      batch->AddPrefixRows(sequence->kv, chunk, *slots);
      budget -= count;
    }
    if (count >= left && room >= 0 && !Join(sequence, batch, participants)) return;
    if (budget <= 0) return;
  }
}

absl::Status Engine::Step() {
  BatchBuilder builder(host_->blocks.get());
  std::vector<Participant> participants;
  AppendVerifications(&builder, &participants);
  AppendPrefills(&builder, &participants);
  if (builder.empty()) return absl::OkStatus();
  builder.AddCommits(std::exchange(commits_, {}));
  const ForwardBatch batch = builder.Take();
  COPPICE_RETURN_IF_ERROR(plans_->Send(batch));
  std::vector<uint64_t> asking;
  for (const Participant& participant : participants) {
    if (participant.sequence->draft_came) asking.push_back(participant.sequence->id);
  }
  HostThreads* threads = host_->backend->host_threads();
  const double begin_s = Now();
  const auto logits = host_->model->Forward(batch, host_->pool.get(), [&] {
    head_begin_s_ = Now();
    if (asking.empty() || last_end_s_ > kStayAwake_s) return;
    threads->Post([this, &asking] { drafts_.Announce(asking); });
  });
  threads->Wait();
  if (!logits.ok()) return logits.status();
  const double forward_s = Now() - begin_s;
  sizer_.RecordPass(batch.rows(), forward_s);
  proto::Progress progress;
  DecideAll(*logits, forward_s, &participants, &progress);
  host_->blocks->EndRound();
  if (progress.updates_size() > 0) {
    proto::NodeMessage message;
    *message.mutable_progress() = std::move(progress);
    agent_->Send(message);
  }
  trace_.Write();
  return absl::OkStatus();
}

// Verdicts of as many sequences at a time as there are threads, or of one with its rows on all of
// them, and then their requests for drafts.
void Engine::DecideAll(absl::Span<const float> logits, double forward_s,
                       std::vector<Participant>* participants, proto::Progress* progress) {
  const int total = static_cast<int>(participants->size());
  HostThreads* threads = host_->backend->host_threads();
  threads->KeepAwake(total > 0);
  const int together = total < threads->count() ? 1 : threads->count();
  const auto verify = [&](int index, HostThreads* of_rows) {
    Participant& participant = (*participants)[index];
    participant.verdict = Verify(participant.rows, logits, host_->model->config().vocab_size,
                                 of_rows, participant.sequence);
  };
  for (int begin = 0; begin < total; begin += together) {
    const int end = std::min(begin + together, total);
    if (together == 1) {
      verify(begin, threads);
    } else {
      threads->RunJobs(end - begin, [&](int i) { verify(begin + i, HostThreads::Serial()); });
    }
    if (begin == 0) last_end_s_ = Now() - head_begin_s_;
    if (end == total) threads->KeepAwake(false);  // the core may be the draft node's
    for (int i = begin; i < end; ++i) Decide(&(*participants)[i], forward_s, progress);
  }
}

void Engine::Decide(Participant* participant, double forward_s, proto::Progress* progress) {
  Sequence* sequence = participant->sequence;
  const bool first = sequence->state == SequenceState::kPrefill;
  if (!participant->verdict.ok()) {
    return Fail(sequence, "internal_error", std::string(participant->verdict.status().message()));
  }
  const Verdict& verdict = *participant->verdict;
  const double now_s = Now();
  sequence->stats.verify_ms += forward_s * 1e3;
  if (first) {
    sequence->stats.prefill_ms = (now_s - sequence->admitted_s) * 1e3;
  } else {
    sequence->stats.Merge(verdict.stats);
  }
  const auto& places = participant->rows.logits_row;
  const auto rows = places.size() - std::count(places.begin(), places.end(), -1);
  Trace(*sequence, static_cast<int>(rows), static_cast<int>(verdict.stats.layers), now_s,
        forward_s);
  sequence->last_verdict_s = now_s;
  if (!sequence->decoder->finished()) {
    if (sequence->draft_came) {
      sizer_.RecordRound(sequence->params.method, sequence->params.beam_width,
                         sequence->draft_shape, verdict.stats.layers);
    }
    NextRound(sequence);  // first, so that the draft node works while the KV is put in order
    const absl::Status status =
        CommitVerdict(verdict, participant->rows.node_kv, sequence, host_->blocks.get(), &commits_);
    if (!status.ok()) return Fail(sequence, "internal_error", std::string(status.message()));
    if (sequence->state == SequenceState::kDrafting) {  // a choice costs nothing while one waits
      sequence->next_shape =
          sizer_.Choose(sequence->params.method, scheduler_.ForestLimits(*sequence));
    }
    return Report(sequence, progress);
  }
  Report(sequence, progress);
  Release(sequence);
  sequences_.erase(sequence->id);
}

void Engine::Release(Sequence* sequence) {
  sequence->state = SequenceState::kFinished;
  draft_deadline_.erase(sequence->id);
  drafts_.Close(sequence->id);
  if (sequence->kv >= 0) host_->blocks->Close(sequence->kv);
  sequence->kv = -1;
  scheduler_.Release(sequence);
}

void Engine::Fail(Sequence* sequence, const std::string& code, const std::string& message) {
  proto::NodeMessage out;
  proto::SequenceUpdate* update = out.mutable_progress()->add_updates();
  update->set_sequence_id(sequence->id);
  update->set_error_code(code);
  update->set_error_message(message);
  agent_->Send(out);
  Release(sequence);
  sequences_.erase(sequence->id);
}

}  // namespace coppice
