// The engine's reports: progress and end of sequences, status of the node, trace of its loop.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "proto/convert.h"
#include "worker/engine.h"
#include "worker/report.h"

namespace coppice::worker {
namespace {

// The forest of the last round as it is reported. At the limits it is the last one.
proto::RoundForest ShownForest(Sequence* sequence) {
  decoding::RoundForest round = *std::exchange(sequence->round_forest, std::nullopt);
  sequence->shown_entries += round.entries();
  round.last = ++sequence->shown_rounds == decoding::kMostShownRounds ||
               sequence->shown_entries > decoding::kMostShownEntries;
  if (round.last) sequence->shows_rounds = false;
  return proto::RoundForestToMessage(round);
}

}  // namespace

void Engine::Report(Sequence* sequence, proto::Progress* progress) {
  const StepTrace::Part part = trace_.Time("report", sequence->id);
  proto::SequenceUpdate* update = progress->add_updates();
  if (!FillUpdate(sequence, update)) return progress->mutable_updates()->RemoveLast();
  if (const auto joules = EnergyOf(*sequence)) update->set_energy_joules(*joules);
  if (update->finished()) update->set_kv_blocks_peak(sequence->peak_blocks);
  update->mutable_rounds()->Add(sequence->round_times.begin(), sequence->round_times.end());
  sequence->round_times.clear();
}

// On this replica and on draft nodes, so far.
std::optional<double> Engine::EnergyOf(const Sequence& sequence) const {
  node::EnergyTally whole = sequence.energy;
  whole.Add(drafts_.EnergyOf(sequence.id, sequence.decoder->finished()));
  return whole.total();
}

void Engine::Send(proto::Progress progress) {
  const StepTrace::Part part = trace_.Time("send");
  proto::NodeMessage message;
  *message.mutable_progress() = std::move(progress);
  agent_->Send(message);
}

void Engine::Fail(Sequence* sequence, const Refusal& why) {
  proto::Progress progress;
  proto::SequenceUpdate* update = progress.add_updates();
  update->set_sequence_id(sequence->id);
  update->set_error_code(why.code);
  update->set_error_message(why.message);
  Send(std::move(progress));
  LogFields(spdlog::level::debug, "sequence fails",
            {{"sequence", absl::StrCat(sequence->id)},
             {"trace_id", TextOrNone(sequence->trace.trace_id)},
             {"code", why.code},
             {"reason", why.message}});
  Remove(sequence);
}

void Engine::FailRound(Sequence* sequence, const absl::Status& status) {
  const bool by_format = absl::IsResourceExhausted(status) || absl::IsFailedPrecondition(status);
  if (!by_format) return FailInternally(sequence, status);
  Fail(sequence, {"unsupported_combination", std::string(status.message())});
}

void Engine::FailInternally(Sequence* sequence, const absl::Status& status) {
  Fail(sequence, {"internal_error", std::string(status.message())});
}

void Engine::Remove(Sequence* sequence) {
  drafts_.Close(sequence->id);
  suffixes_.Forget(sequence);
  if (sequence->kv >= 0) runner_->blocks()->Close(sequence->kv);
  if (sequence->phase != SequencePhase::kWaiting) scheduler_.Release();
  sequences_.Erase(sequence->id);
  admits_ = true;
}

void Engine::PublishStatus() {
  trace_.Write();  // also while there are no steps
  const StepTrace::Part part = trace_.Time("status");
  last_status_s_ = clock_.Now();
  const model::BlockCounts blocks = runner_->blocks()->counts();
  proto::NodeStatus status;
  status.set_step(runner_->steps());
  status.set_running(scheduler_.running());
  status.set_waiting(sequences_.Count(SequencePhase::kWaiting));
  status.set_kv_blocks_used(blocks.used);
  status.set_kv_blocks_total(blocks.total);
  status.set_kv_blocks_cached(blocks.cached);
  counters_.set_prefix_cache_queries(runner_->blocks()->cache_queries());
  counters_.set_prefix_cache_hits(runner_->blocks()->cache_hits());
  counters_.set_plan_bytes(plans_->bytes());
  counters_.set_draft_bytes(drafts_.bytes());
  counters_.set_state_bytes(drafts_.state_bytes());
  for (const auto& [reason, count] : drafts_.dropped())
    (*counters_.mutable_drafts_dropped())[DroppedDraftName(reason)] = count;
  for (const auto& [reason, count] : drafts_.moves())
    (*counters_.mutable_draft_moves())[DraftMoveName(reason)] = count;
  for (const DraftNodeUse& use : drafts_.Nodes()) {
    proto::DraftNodeUse* reported = status.add_draft_nodes();
    reported->set_node_id(use.node_id);
    reported->set_sessions(use.sessions);
    reported->set_mean_reply_s(use.mean_reply_s);
  }
  for (const auto& [source, count] : suffixes_.counts()) {
    const char* name = decoding::SuffixSourceName(source);
    (*counters_.mutable_suffix_nodes_drafted())[name] = count.drafted;
    (*counters_.mutable_suffix_nodes_accepted())[name] = count.taken;
  }
  if (suffixes_.on()) {
    status.mutable_suffix_drafts()->set_index_bytes(suffixes_.index_bytes());
    status.mutable_suffix_drafts()->set_corpus_tokens(suffixes_.corpus_tokens());
    status.mutable_suffix_drafts()->set_used(!drafts_.configured());
  }
  counters_.set_weight_bytes_read(runner_->reads().weights);
  counters_.set_kv_bytes_read(runner_->reads().kv);
  if (collectives_ != nullptr) {
    counters_.set_collective_bytes(collectives_->bytes() + runner_->collective_bytes());
  }
  *status.mutable_counters() = counters_;
  if (const auto joules = meter_ == nullptr ? std::nullopt : meter_->Counted(last_status_s_)) {
    status.set_energy_joules(*joules);
    status.set_energy_source(meter_->kind());
  }
  agent_->SetStatus(status);
}

void Engine::CountStep(const StepPlanner::Planned& planned, int rows) {
  const auto decides = [&planned](const auto& entry) {
    return std::any_of(
        planned.participants.begin(), planned.participants.end(),
        [&entry](const Participant& p) { return p.sequence->id == entry.sequence_id; });
  };
  const bool prefills = !std::all_of(planned.rows.begin(), planned.rows.end(), decides);
  const char* kind = !prefills ? "verify" : planned.participants.empty() ? "prefill" : "mixed";
  step_counts_.Add(kind, rows, clock_.pass_s(), &counters_);
}

// The first round reads the prompt: it counts from the sequence's arrival, and only who watches
// the forests sees it.
void Engine::Trace(const Participant& participant, double now_s) {
  Sequence& sequence = *participant.sequence;
  const bool first = sequence.last_verdict_s == 0;
  if (first && !sequence.round_forest) return;
  const double round_s = now_s - (first ? sequence.arrival_s : sequence.last_verdict_s);
  const auto& needs = participant.rows.need;
  const auto rows = needs.size() - std::count(needs.begin(), needs.end(), -1);
  if (sequence.timeline || sequence.round_forest) {
    proto::RoundTimes& times = sequence.round_times.emplace_back();
    times.set_round(sequence.round);
    times.set_end_s(now_s - sequence.arrival_s);
    times.set_round_s(round_s);
    times.set_forward_s(clock_.pass_s());
    times.set_commit_s(clock_.since_pass_s());
    times.set_draft_wait_s(sequence.draft_wait_s);
    times.set_draft_s(sequence.draft_s);
    times.set_rows(static_cast<int>(rows));
    times.set_width(sequence.draft_shape.width);
    times.set_depth(sequence.draft_shape.depth);
    if (sequence.draft_came && sequence.forest.size() > 0)
      times.set_draft_source(sequence.suffix_draft ? proto::SUFFIX_DRAFT : proto::NODE_DRAFT);
    times.set_layers(static_cast<int>(participant.verdict->stats.layers));
    if (sequence.round_forest) *times.mutable_forest() = ShownForest(&sequence);
  }
  if (first || !trace_.on()) return;
  trace_.Add({"round",
              StepSpan::kOverlapping,
              now_s - round_s,
              round_s,
              sequence.id,
              {{"round", sequence.round},
               {"rows", static_cast<double>(rows)},
               {"width", sequence.draft_shape.width},
               {"depth", sequence.draft_shape.depth},
               {"layers", static_cast<double>(participant.verdict->stats.layers)},
               {"round_us", round_s * 1e6},
               {"forward_us", clock_.pass_s() * 1e6},
               {"draft_wait_us", sequence.draft_wait_s * 1e6},
               {"draft_us", sequence.draft_s * 1e6},
               {"draft_model_us", sequence.draft_model_s * 1e6}}});
}

// A draft from its request until it came, or until the sequence went on without it for a reason.
void Engine::TraceDraft(const Sequence& sequence, NoDraftReason failed) {
  if (!trace_.on()) return;
  trace_.Add({"draft",
              StepSpan::kOverlapping,
              sequence.draft_asked_s,
              sequence.draft_wait_s,
              sequence.id,
              {{"width", sequence.draft_shape.width},
               {"depth", sequence.draft_shape.depth},
               {failed == NoDraftReason::kNone ? "came" : NoDraftReasonName(failed), 1}}});
}

void Engine::TraceStep(double begin_s, int rows, const StepPlanner::Planned& planned) {
  if (!trace_.on()) return;
  trace_.Add({"step",
              StepSpan::kLoop,
              begin_s,
              clock_.Now() - begin_s,
              0,
              {{"rows", rows}, {"sequences", static_cast<double>(planned.participants.size())}}});
  trace_.Timed("trace", [&] { trace_.Write(); });
}

void Engine::SendTrace() {
  proto::NodeMessage message;
  *message.mutable_step_trace() = trace_.TakeRecord();
  agent_->Send(message);
}

}  // namespace coppice::worker
