// The engine's rounds with drafts: what is asked for, what has come, and rounds that go without.
#include <algorithm>
#include <utility>

#include "worker/engine.h"

namespace coppice::worker {
namespace {

// Factor on the expected time of a draft, after which it is overdue.
constexpr double kDraftPatience = 1.25;

}  // namespace

bool Engine::WorthPreparing(const Sequence& sequence) {
  return sizer_.WorthPreparing(sequence.params.method->name, scheduler_.ForestLimits(sequence));
}

void Engine::SendStates() {
  if (!drafts_.takes_states()) return;
  const StepTrace::Part part = trace_.Time("states");
  more_states_ = drafts_.SendStates(sequences_.Running());
}

void Engine::TakeForests() {
  const StepTrace::Part part = trace_.Time("drafts");
  const double now_s = clock_.Now();
  for (DraftArrival& arrival : drafts_.Receive(now_s, now_s - looked_s_))
    TakeForest(std::move(arrival), now_s);
  looked_s_ = now_s;
  GiveUpLateDrafts(now_s);
}

void Engine::TakeForest(DraftArrival arrival, double now_s) {
  Sequence* sequence = sequences_.Find(arrival.sequence_id);
  if (sequence == nullptr || sequence->phase != SequencePhase::kDrafting) return;
  sequence->draft_wait_s = now_s - sequence->draft_asked_s;
  sequence->stats.draft_wait_ms += sequence->draft_wait_s * 1e3;
  TraceDraft(*sequence, arrival.failed);
  if (arrival.failed != NoDraftReason::kNone) return GoPlain(sequence, arrival.failed);
  sequence->stats.draft_ms += arrival.draft_s * 1e3;
  sequence->draft_s = arrival.draft_s;
  sequence->draft_model_s = arrival.model_s;
  sequence->draft_came = true;
  sequence->forest = std::move(arrival.forest);
  sequences_.Move(sequence, SequencePhase::kReady);
  if (arrival.caught_up) RecordDraft(*sequence, arrival);
}

// If drafts were requested together, the last one counts, because a step that they share waits for
// it.
void Engine::RecordDraft(const Sequence& sequence, const DraftArrival& arrival) {
  const auto drafts = sequences_.DraftsAskedIn(sequence.draft_step);
  if (drafts.due > 0) return;
  drafting_ = drafts.asked;
  sizer_.costs()->RecordDraft({sequence.draft_shape.width, sequence.forest.depth()},
                              sequence.draft_wait_s, arrival.draft_s, drafting_);
}

void Engine::GiveUpLateDrafts(double now_s) {
  if (sequences_.EarliestDraftDeadline() > now_s) return;
  for (Sequence* sequence : sequences_.In(SequencePhase::kDrafting)) {
    if (sequence->draft_deadline_s > now_s) continue;
    sequence->draft_wait_s = now_s - sequence->draft_asked_s;
    sequence->stats.draft_wait_ms += sequence->draft_wait_s * 1e3;
    TraceDraft(*sequence, NoDraftReason::kLate);
    drafts_.GaveUp(sequence->id, now_s);
    GoPlain(sequence, NoDraftReason::kLate);
  }
}

void Engine::GoPlain(Sequence* sequence, NoDraftReason reason) {
  if (reason != NoDraftReason::kNone)
    ++(*counters_.mutable_rounds_without_draft())[NoDraftReasonName(reason)];
  sequence->forest =
      decoding::DraftForest::Empty(static_cast<int>(sequence->decoder->roots().size()));
  sequences_.Move(sequence, SequencePhase::kReady);
}

SizerLimits Engine::ForestLimits(const Sequence& sequence) const {
  SizerLimits limits = scheduler_.ForestLimits(sequence);
  limits.roots = rows_of_all_.roots;
  limits.plain_rows = rows_of_all_.plain;
  limits.prepared = sequence.draft_access == DraftAccess::kOpen;
  const int own_rows = static_cast<int>(sequence.decoder->roots().size());
  if (!limits.draft.chosen)
    limits.max_nodes = std::min(limits.max_nodes, std::max(0, MostRows() - own_rows));
  return limits;
}

// A sequence that began without a draft node gets one as soon as a draft would pay, or for a trial
// that finds out whether one does. Returns the reason why a wanted draft has no node.
NoDraftReason Engine::Prepare(Sequence* sequence, DraftShape shape, const SizerLimits& limits) {
  if (sequence->draft_access == DraftAccess::kNone) {
    if (!limits.draft.drafts || limits.max_depth < decoding::kAutoDraftDepth)
      return NoDraftReason::kNone;
    if (shape.depth == 0 && !WorthPreparing(*sequence)) return NoDraftReason::kNone;
  }
  bool read = false;
  const NoDraftReason why = drafts_.Prepare(*sequence, clock_.Now(), &read);
  sequence->draft_access = read                          ? DraftAccess::kOpen
                           : why == NoDraftReason::kNone ? DraftAccess::kReading
                                                         : DraftAccess::kNone;
  return shape.depth > 0 ? why : NoDraftReason::kNone;
}

void Engine::NextRound(Sequence* sequence) {
  ++sequence->round;
  sequence->draft_wait_s = sequence->draft_s = sequence->draft_model_s = 0;
  sequence->draft_came = sequence->suffix_draft = false;
  if (HasSuffixDrafts(*sequence)) return NextBySuffixes(sequence);
  const SizerLimits limits = ForestLimits(*sequence);
  DraftShape shape = sizer_.Choose(sequence->params.method->name, limits);
  NoDraftReason refused = NoDraftReason::kNone;
  if (sequence->draft_access != DraftAccess::kOpen) refused = Prepare(sequence, shape, limits);
  if (sequence->draft_access != DraftAccess::kOpen) shape = {};
  sequence->draft_shape = shape;
  if (shape.depth == 0) return GoPlain(sequence, refused);
  sequence->draft_asked_s = clock_.Now();
  sequence->draft_step = runner_->steps();
  sequence->draft_due_s =
      sequence->draft_asked_s + kDraftPatience * sizer_.costs()->Draft(shape, drafting_);
  // A request may come when the node has just begun a level for others.
  sequence->draft_overdue_s =
      sequence->draft_asked_s +
      kDraftPatience * sizer_.costs()->Draft({shape.width, shape.depth + 1}, drafting_);
  refused = drafts_.Ask(*sequence, shape.width, shape.depth, sequence->draft_asked_s,
                        &sequence->draft_deadline_s);
  if (refused != NoDraftReason::kNone) return GoPlain(sequence, refused);
  sequences_.Move(sequence, SequencePhase::kDrafting);
}

// Tells draft nodes that requests will follow, so that they wake up in time. Not done when the
// requests would come after they have gone back to sleep.
void Engine::AnnounceRequests(const std::vector<Participant>& participants) {
  asking_.clear();
  for (const Participant& participant : participants) {
    if (participant.sequence->draft_came && !participant.sequence->suffix_draft)
      asking_.push_back(participant.sequence->id);
  }
  if (asking_.empty() || !clock_.AnnouncementsComeInTime()) return;
  runner_->threads()->Post([this] { drafts_.Announce(asking_); });
}

}  // namespace coppice::worker
