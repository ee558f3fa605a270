// The engine's part in sharing the KV pool: admission by expected need, preemption when KV runs short
// (docs/step.md, "Who gets the KV").
#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "worker/engine.h"
#include "worker/preemption.h"

namespace coppice::worker {

void Engine::AdmitWaiting() {
  const StepTrace::Part part = trace_.Time("admission");
  if (scheduler_.running() == 0 && sequences_.First(SequencePhase::kWaiting) != nullptr) {
    last_step_end_s_ = clock_.Now();
    energy_.Idle(last_step_end_s_);
  }
  if (!std::exchange(admits_, false)) return;
  absl::flat_hash_map<const Sequence*, int64_t> known;  // a prompt is looked up once
  const auto needs = [&](const Sequence& sequence) {
    const auto [place, is_new] = known.try_emplace(&sequence, 0);
    if (is_new) {
      const int64_t shared =
          sequence.scores_prompt() ? 0 : runner_->blocks()->InUse(sequence.text());
      place->second = std::max<int64_t>(1, sequence.expected_blocks - shared);
    }
    return place->second;
  };
  const std::vector<Sequence*> admitted =
      scheduler_.AdmitByTurns(sequences_.In(SequencePhase::kWaiting),
                              {UnexpectedBlocks(), needs, FreeBlocks(), sequences_.Running()});
  std::vector<Sequence*> begin;
  for (Sequence* sequence : admitted) {
    int cached_tokens = 0;
    sequence->kv = runner_->blocks()->Open(
        sequence->scores_prompt() ? absl::Span<const TokenId>() : sequence->text(), &cached_tokens);
    sequences_.Move(sequence, SequencePhase::kPrefill);
    if (sequence->admitted_s > 0) continue;  // it was preempted
    sequence->admitted_s = clock_.Now();
    sequence->stats.queue_ms = (sequence->admitted_s - sequence->arrival_s) * 1e3;
    sequence->stats.cached_tokens = cached_tokens;
    sequence->forest = decoding::DraftForest::Empty(1);
    begin.push_back(sequence);
  }
  for (Sequence* sequence : begin) {  // only now the number of admitted sequences is known
    if (!sequence->draft.drafts || !WorthPreparing(*sequence)) continue;
    drafts_.Open(*sequence);
    sequence->draft_access = DraftAccess::kOpen;
  }
}

int64_t Engine::FreeBlocks() const {
  return scheduler_.options().kv_blocks - runner_->blocks()->counts().used;
}

// The blocks that can be had and that no running sequence is expected to take.
int64_t Engine::UnexpectedBlocks() {
  int64_t free = FreeBlocks();
  for (Sequence* sequence : sequences_.Running()) free -= ExpectMore(sequence);
  return free;
}

// The blocks that a running sequence is expected to take from now on: at least those of a step.
int64_t Engine::ExpectMore(Sequence* sequence) {
  const int64_t held = runner_->blocks()->held(sequence->kv);
  const int64_t next = std::min(held + scheduler_.BlocksOfStep(*sequence),
                                std::max(held, scheduler_.BlocksBound(*sequence)));
  sequence->expected_blocks = std::max(sequence->expected_blocks, next);
  return sequence->expected_blocks - held;
}

// Preempts until the sequences that found no KV for their rows can have it, best priority first.
void Engine::MakeRoom() {
  if (starved_.empty()) return;
  model::BlockManager* blocks = runner_->blocks();
  std::vector<Sequence*> starved;
  for (const uint64_t id : std::exchange(starved_, {})) {
    if (Sequence* sequence = sequences_.Find(id)) starved.push_back(sequence);
  }
  std::sort(starved.begin(), starved.end(),
            [](const Sequence* a, const Sequence* b) { return Outranks(*a, *b); });
  int64_t wanted = 0;
  bool must = stalled_;  // nothing else moves on
  for (Sequence* sequence : starved) {
    if (sequence->phase == SequencePhase::kWaiting) continue;  // preempted here
    wanted += scheduler_.BlocksOfStep(*sequence);
    const auto free = [&] { return blocks->counts().total - blocks->counts().used; };
    while (std::exchange(must, false) || free() < wanted) {
      Sequence* victim = FirstToPreempt(sequences_.Running());
      if (scheduler_.running() == 1 && victim->preempted_at == victim->decoder->layers_committed())
        return FailInternally(victim, absl::InternalError("the KV pool is too small for it alone"));
      Preempt(victim);
      blocks->EndRound();
      if (victim == sequence) break;
    }
  }
}

void Engine::Preempt(Sequence* sequence) {
  // Admitted again only for a step more than it has now, it would soon be here again.
  const int64_t held = runner_->blocks()->held(sequence->kv);
  const int64_t more = std::max(held + scheduler_.BlocksOfStep(*sequence), held + held / 4);
  sequence->expected_blocks =
      std::max(sequence->expected_blocks, std::min(more, scheduler_.BlocksBound(*sequence)));
  if (sequence->phase == SequencePhase::kDrafting) {
    drafts_.Withdraw(sequence->id);
    sequence->draft_wait_s = clock_.Now() - sequence->draft_asked_s;
    sequence->stats.draft_wait_ms += sequence->draft_wait_s * 1e3;
  }
  sequence->draft_shape = {};
  suffixes_.Forget(sequence);
  worker::Preempt(sequence, runner_->blocks());
  scheduler_.Release();
  sequences_.Move(sequence, SequencePhase::kWaiting);
  admits_ = true;
  sequence->preempted_at = sequence->decoder->layers_committed();
  ++sequence->stats.preemptions;
  counters_.set_preemptions(counters_.preemptions() + 1);
  LogFields(spdlog::level::debug, "sequence preempted",
            {{"sequence", absl::StrCat(sequence->id)},
             {"trace_id", TextOrNone(sequence->trace.trace_id)},
             {"kv_blocks", sequence->expected_blocks}});
}

}  // namespace coppice::worker
