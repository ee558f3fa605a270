// The engine's part in `echo` with `logprobs`: the scores of prompt tokens, read chunk by chunk
// from the rows of prefill.
#include <algorithm>
#include <utility>

#include "worker/engine.h"
#include "worker/report.h"

namespace coppice::worker {

absl::StatusOr<std::vector<TokenScore>> Engine::Scores(const kernels::StepRows& rows,
                                                       const StepPlanner::PromptRows& prompt) {
  const Sequence& sequence = *sequences_.Find(prompt.sequence_id);
  std::vector<absl::StatusOr<TokenScore>> scores(prompt.count, absl::UnknownError("not scored"));
  runner_->threads()->RunJobs(prompt.count, [&](int i) {
    scores[i] = ScorePromptToken(rows, prompt.first_need + i, sequence.prompt[prompt.begin + i],
                                 *sequence.scores.top);
  });
  std::vector<TokenScore> values;
  for (absl::StatusOr<TokenScore>& score : scores) {
    if (!score.ok()) return score.status();
    values.push_back(*std::move(score));
  }
  return values;
}

void Engine::ScorePrompts(const kernels::StepRows& rows, StepPlanner::Planned* planned,
                          proto::Progress* progress) {
  for (const StepPlanner::PromptRows& prompt : planned->scored) {
    Sequence* sequence = sequences_.Find(prompt.sequence_id);
    if (sequence == nullptr) continue;  // it failed while the step was planned
    const auto scores = Scores(rows, prompt);
    if (scores.ok()) {  // a sequence that was preempted meanwhile has reported some already
      const int known = std::clamp(sequence->scored_tokens + 1 - prompt.begin, 0, prompt.count);
      if (known == prompt.count) continue;
      sequence->scored_tokens = prompt.begin - 1 + prompt.count;
      FillPromptScores(absl::MakeConstSpan(*scores).subspan(known), sequence,
                       progress->add_updates());
      continue;
    }
    auto& participants = planned->participants;
    participants.erase(
        std::remove_if(participants.begin(), participants.end(),
                       [&](const Participant& one) { return one.sequence == sequence; }),
        participants.end());
    FailInternally(sequence, scores.status());
  }
}

void Engine::EndScored(const std::vector<uint64_t>& ended, proto::Progress* progress) {
  for (const uint64_t id : ended) {
    Sequence* sequence = sequences_.Find(id);
    if (sequence == nullptr) continue;
    sequence->stats.prefill_ms = (clock_.Now() - sequence->admitted_s) * 1e3;
    proto::SequenceUpdate* update = progress->add_updates();
    FillScored(sequence, update);
    if (const auto joules = EnergyOf(*sequence)) update->set_energy_joules(*joules);
    Remove(sequence);
  }
}

}  // namespace coppice::worker
