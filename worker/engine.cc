#include "worker/engine.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "base/stop_signal.h"
#include "worker/batching_wait.h"
#include "worker/kv_commit.h"
#include "worker/report.h"

namespace coppice::worker {
namespace {

constexpr double kStatusInterval_s = 0.1;
constexpr int kIdleTimeout_ms = 200;
constexpr double kWaited_s = 1e-5;  // a poll that takes longer has waited

}  // namespace

Engine::Engine(const EngineOptions& options, model::ModelRunner* runner, PlanLeader* plans,
               comm::NodeAgent* agent, const Clock* clock)
    : runner_(runner),
      formats_(options.vocabulary, options.catalogues),
      plans_(plans),
      agent_(agent),
      scheduler_(options.scheduler),
      planner_(options.scheduler, runner, &sequences_),
      drafts_(options.drafts),
      suffixes_(options.suffixes),
      clock_(clock, comm::kStayAwake_s),
      trace_(options.trace_file, clock),
      meter_(options.energy),
      collectives_(options.collectives),
      energy_(options.energy) {
  runner_->SendPlansTo(plans);
  sizer_.costs()->Expect(options.row_costs);
}

Engine::~Engine() { runner_->SendPlansTo(nullptr); }

void Engine::UseOwnDraft(std::unique_ptr<comm::ClientChannel> draft, bool takes_states) {
  drafts_.AddOwn(std::move(draft), takes_states);
}

absl::Status Engine::Run() {
  PublishStatus();
  while (!stopped_ && !StopRequested()) {
    Wait();
    TakeCoordinatorMessages();
    TakeForests();
    AdmitWaiting();
    SendStates();
    share_until_s_ = ShareUntil();
    if (trace_.recorded()) SendTrace();
    if (planner_.HasWork() && share_until_s_ == 0) COPPICE_RETURN_IF_ERROR(Step());
    runner_->blocks()->EndRound();
    MakeRoom();
    if (clock_.Now() - last_status_s_ > kStatusInterval_s) PublishStatus();
  }
  return absl::OkStatus();
}

void Engine::Wait() {
  if (planner_.HasWork() && share_until_s_ == 0) return;
  const double begin_s = clock_.Now();
  const StepTrace::Part part = trace_.Time("wait");
  runner_->progress_watchdog()->Wait();
  int timeout_ms = kIdleTimeout_ms;
  double deadline_s = sequences_.EarliestDraftDeadline();
  double awake_until_s = drafts_.awake_until_s();
  if (share_until_s_ > 0) {
    deadline_s = std::min(deadline_s, share_until_s_);
    awake_until_s = std::min(awake_until_s, share_until_s_);
  }
  if (deadline_s < std::numeric_limits<double>::infinity()) {
    const double left_s = std::clamp(deadline_s - clock_.Now(), 0.0, timeout_ms * 1e-3);
    timeout_ms = std::min(timeout_ms, static_cast<int>(left_s * 1e3) + 1);
  }
  if (more_states_) timeout_ms = 0;
  std::vector<comm::Pollable> sockets = drafts_.sockets();
  sockets.push_back(agent_->socket());
  if (!comm::PollAwake(sockets, awake_until_s)) comm::Poll(sockets, timeout_ms);
  // What has ended a wait has come at this moment.
  if (const double now_s = clock_.Now(); now_s - begin_s > kWaited_s) looked_s_ = now_s;
  runner_->progress_watchdog()->Begin();
}

// The time until which the ready sequences wait for the forests of others, to share a pass with
// them; 0 to begin now. Prompts do not wait.
double Engine::ShareUntil() const {
  std::vector<DueForest> due;
  for (const Sequence* sequence : sequences_.In(SequencePhase::kDrafting)) {
    const DraftShape shape = sequence->draft_shape;
    due.push_back({sequence->draft_due_s,
                   sequence->unknown_roots() + sequence->draft.Nodes(shape.width, shape.depth),
                   sequence->draft_overdue_s});
  }
  if (due.empty() || sequences_.First(SequencePhase::kPrefill) != nullptr) return 0;
  ReadyForStep ready;
  for (const Sequence* sequence : sequences_.In(SequencePhase::kReady)) {
    ++ready.sequences;
    ready.rows += sequence->rows_of_pass();
    if (sequence->draft_came) continue;
    ++ready.plain;
    ready.plain_rows += sequence->rows_of_pass();
  }
  return WaitForForests(ready, MostRows(), std::move(due), clock_.Now(),
                        [&](int of) { return sizer_.costs().Step(of, /*alone=*/false); });
}

void Engine::TakeCoordinatorMessages() {
  const StepTrace::Part part = trace_.Time("messages");
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
        DropAll();
        proto::DraftNodes nodes;
        *nodes.mutable_nodes() = message->register_ack().draft_nodes();
        drafts_.SetNodes(nodes);
        break;
      }
      case proto::CoordinatorMessage::kStop:
        spdlog::info("the coordinator says stop: {}", message->stop().reason());
        stopped_ = true;
        break;
      case proto::CoordinatorMessage::kTraceSteps:
        trace_.Record(message->trace_steps().id(), message->trace_steps().seconds());
        break;
      default:
        break;
    }
  }
}

void Engine::Start(const proto::StartSequence& start) {
  if (sequences_.Find(start.sequence_id()) != nullptr) {
    spdlog::warn("sequence {} started twice; the second start is dropped", start.sequence_id());
    return;
  }
  StartedSequence started =
      StartSequence(start, runner_->config(), &formats_, scheduler_, clock_.Now());
  Sequence* sequence = sequences_.Insert(std::move(started.sequence));
  admits_ = true;
  LogFields(spdlog::level::debug, "sequence begins",
            {{"sequence", absl::StrCat(sequence->id)},
             {"trace_id", TextOrNone(sequence->trace.trace_id)},
             {"prompt_tokens", static_cast<int64_t>(sequence->prompt.size())}});
  if (started.refusal) Fail(sequence, *started.refusal);
}

void Engine::Cancel(uint64_t sequence_id) {
  if (Sequence* sequence = sequences_.Find(sequence_id)) Remove(sequence);
}

// The replica has joined, perhaps again, and perhaps another coordinator than the one that started
// these sequences. The coordinator starts again the ones that it wants.
void Engine::DropAll() {
  for (const SequencePhase phase : {SequencePhase::kWaiting, SequencePhase::kPrefill,
                                    SequencePhase::kDrafting, SequencePhase::kReady}) {
    while (Sequence* sequence = sequences_.First(phase)) Remove(sequence);
  }
}

// The most rows that the next step may have.
int Engine::MostRows() const {
  const SchedulerOptions& options = scheduler_.options();
  if (options.max_step_s <= 0 || sequences_.clients() < 2) return options.max_rows;
  return sizer_.costs().RowsWithin(options.max_step_s, options.max_rows);
}

absl::Status Engine::Step() {
  const double begin_s = clock_.Now();
  StepPlanner::Planned planned = trace_.Timed("plan", [&] { return planner_.Plan(MostRows()); });
  starved_ = planned.starved;
  stalled_ = planned.step.empty();
  proto::Progress progress;
  if (planned.step.empty()) {
    EndScored(planned.ended, &progress);
    if (progress.updates_size() > 0) Send(std::move(progress));
    return absl::OkStatus();
  }
  const int row_count = planned.step.rows();
  clock_.PassBegins();
  COPPICE_RETURN_IF_ERROR(
      trace_.Timed("submit", [&] { return runner_->Submit(std::move(planned.step)); }));
  const bool decides = !planned.participants.empty();
  if (decides) {
    trace_.Timed("body", [&] { runner_->WaitForHead(); });
    clock_.HeadBegins();
    AnnounceRequests(planned.participants);
  }
  const auto rows = trace_.Timed(decides ? "head" : "pass", [&] { return runner_->Wait(); });
  runner_->threads()->Wait();  // until the announcement is sent
  COPPICE_RETURN_IF_ERROR(rows.status());
  clock_.PassEnds();
  CountStep(planned, row_count);
  ShareEnergy(planned, row_count);
  ScorePrompts(**rows, &planned, &progress);
  EndScored(planned.ended, &progress);
  rows_of_all_ = sequences_.CountRows();
  running_in_step_ = scheduler_.running();
  trace_.Timed("decide", [&] { DecideAll(**rows, &planned.participants, &progress); });
  RecordStep(planned, row_count);
  if (progress.updates_size() > 0) Send(std::move(progress));
  TraceStep(begin_s, row_count, planned);
  return absl::OkStatus();
}

void Engine::RecordStep(const StepPlanner::Planned& planned, int rows) {
  StepTimes step;
  step.rows = rows;
  step.prompt_rows = planned.prompt_rows;
  step.running = std::max(1, running_in_step_);
  step.plain_rows = rows_of_all_.plain;
  step.reading = drafts_.reading();
  step.seconds = clock_.pass_s() + clock_.since_pass_s();
  const double now_s = clock_.Now();
  step.since_s = now_s - std::exchange(last_step_end_s_, now_s);
  sizer_.RecordStep(step);
}

// Gives the energy that the replica used since the last step, or since it was idle, to the rows of
// this step. The wait for drafts belongs to their round.
void Engine::ShareEnergy(const StepPlanner::Planned& planned, int rows) {
  const std::optional<double> row_joules = energy_.StepEnds(clock_.Now(), rows);
  for (const auto& [sequence_id, its_rows] : planned.rows) {
    Sequence* sequence = sequences_.Find(sequence_id);  // nullptr: failed while it was planned
    if (sequence == nullptr) continue;
    sequence->energy.Add(row_joules ? std::optional(*row_joules * its_rows) : std::nullopt);
  }
}

// Decides as many sequences at a time as there are threads. A single sequence spreads its rows over
// all threads. Then requests their drafts.
void Engine::DecideAll(const kernels::StepRows& rows, std::vector<Participant>* participants,
                       proto::Progress* progress) {
  const int total = static_cast<int>(participants->size());
  HostThreads* threads = runner_->threads();
  threads->KeepAwake(total > 0);
  const int together = total < threads->count() ? 1 : threads->count();
  std::vector<std::pair<double, double>> times(trace_.on() ? total : 0);  // begin, end
  const auto verify = [&](int index, HostThreads* of_rows) {
    Participant& participant = (*participants)[index];
    const double begin_s = times.empty() ? 0 : clock_.Now();
    participant.verdict =
        Verify(participant.rows, rows, runner_->vocab_size(), of_rows, participant.sequence);
    if (!times.empty()) times[index] = {begin_s, clock_.Now()};
  };
  for (int begin = 0; begin < total; begin += together) {
    const int end = std::min(begin + together, total);
    if (together == 1) {
      verify(begin, threads);
    } else {
      threads->RunJobs(end - begin, [&](int i) { verify(begin + i, HostThreads::Serial()); });
    }
    if (begin == 0) clock_.FirstVerdictsEnd();
    for (int i = begin; i < end && !times.empty(); ++i) {
      trace_.Add({"verdict", 1 + i - begin, times[i].first, times[i].second - times[i].first,
                  (*participants)[i].sequence->id});
    }
    if (end == total) threads->KeepAwake(false);  // the draft node may need the core
    for (int i = begin; i < end; ++i) Decide(&(*participants)[i], progress);
  }
}

void Engine::Decide(Participant* participant, proto::Progress* progress) {
  runner_->progress_watchdog()->MovesOn();
  Sequence* sequence = participant->sequence;
  if (!participant->verdict.ok()) return FailRound(sequence, participant->verdict.status());
  const double now_s = clock_.Now();
  sequence->stats.verify_ms += clock_.pass_s() * 1e3;
  if (sequence->phase == SequencePhase::kPrefill) {
    sequence->stats.prefill_ms = (now_s - sequence->admitted_s) * 1e3;
  } else {
    sequence->stats.Merge(participant->verdict->stats);
  }
  sequence->peak_blocks = std::max(sequence->peak_blocks, runner_->blocks()->held(sequence->kv));
  sequence->reread = {};
  sequence->reread_paths = {};
  sequence->reread_done = 0;
  Trace(*participant, now_s);
  const bool by_suffixes = HasSuffixDrafts(*sequence);
  if (by_suffixes) suffixes_.Record(sequence, *participant->verdict);
  sequence->stats.suffix_rounds += sequence->suffix_draft && sequence->forest.size() > 0;
  sizer_.RecordRound(
      by_suffixes ? SuffixDrafts::SizedAs(*sequence) : std::string(sequence->params.method->name),
      sequence->params.beam_width, sequence->draft,
      sequence->draft_came ? sequence->draft_shape : DraftShape{},
      static_cast<int>(participant->verdict->stats.layers));
  sequence->last_verdict_s = now_s;
  if (!sequence->decoder->finished()) return GoOn(*participant, progress);
  Report(sequence, progress);
  Remove(sequence);
}

// Sends the request for a draft first, so that the draft node works while the KV is committed. But
// states are found by the KV of the tokens that the verdict took.
void Engine::GoOn(const Participant& participant, proto::Progress* progress) {
  Sequence* sequence = participant.sequence;
  const bool commits_first = drafts_.takes_states();
  if (commits_first) Commit(participant);
  trace_.Timed("next draft", [&] { NextRound(sequence); });
  if (!commits_first) Commit(participant);
  Report(sequence, progress);
}

void Engine::Commit(const Participant& participant) {
  Sequence* sequence = participant.sequence;
  const bool committed = trace_.Timed("commit", [&] {
    return CommitVerdict(*participant.verdict, participant.rows.node_kv, sequence,
                         runner_->blocks(), runner_->commits());
  });
  if (!committed) starved_.push_back(sequence->id);
}

}  // namespace coppice::worker
