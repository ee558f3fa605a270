#include "worker/step_planner.h"

#include <algorithm>
#include <utility>

#include "model/prefix_readers.h"

namespace coppice::worker {

bool StepPlanner::HasWork() const {
  return sequences_->First(SequencePhase::kReady) != nullptr ||
         sequences_->First(SequencePhase::kPrefill) != nullptr;
}

StepPlanner::Planned StepPlanner::Plan() {
  Planned planned{runner_->NewStep(), {}, {}, {}, {}, {}};
  AddVerifications(&planned);
  AddPrefills(&planned);
  return planned;
}

// A sequence that does not fit stays ready and comes first in the next step. If it would fit into
// no step, it gives up its forest.
bool StepPlanner::Join(Sequence* sequence, Planned* planned) {
  const int roots = static_cast<int>(sequence->decoder->roots().size());
  const int rows = roots + sequence->forest.size();
  if (planned->step.rows() + rows > options_.max_rows) {
    if (rows > options_.max_rows) sequence->forest = decoding::DraftForest::Empty(roots);
    return false;
  }
  auto reserved = ReserveRows(sequence, runner_->blocks());
  if (!reserved.ok()) {
    planned->failed.emplace_back(sequence, std::string(reserved.status().message()));
    return true;
  }
  planned->participants.push_back(
      {sequence, *std::move(reserved), absl::UnknownError("not verified")});
  const int before = planned->step.rows();
  AppendRows(*sequence, &planned->step, &planned->participants.back().rows);
  planned->rows.push_back({sequence->id, planned->step.rows() - before});
  return true;
}

void StepPlanner::AddVerifications(Planned* planned) {
  for (Sequence* sequence : sequences_->In(SequencePhase::kReady)) Join(sequence, planned);
}

// What the row before this token of the prompt must give to score it.
RowNeed StepPlanner::NeedOfPrompt(const Sequence& sequence, int token, Planned* planned) {
  RowNeed need = decoding::RawScoreNeed(*sequence.scores.top);
  const auto asked_for = planned->step.AddBias({{sequence.prompt[token], 0.0}});
  need.bias_begin = asked_for.begin;
  need.bias_end = asked_for.end;
  return need;
}

bool StepPlanner::AddPrefill(Sequence* sequence, int begin, int count, Planned* planned) {
  const auto chunk = absl::MakeConstSpan(sequence->prompt).subspan(begin, count);
  auto slots = runner_->blocks()->AppendPrefix(sequence->kv, chunk);
  if (!slots.ok()) {
    planned->failed.emplace_back(sequence, std::string(slots.status().message()));
    return false;
  }
  if (sequence->scores.of_prompt) {
    const auto need_of = [&](int i) { return NeedOfPrompt(*sequence, begin + i + 1, planned); };
    planned->scored.push_back({sequence->id, begin + 1, count,
                               planned->step.AddPrefixRows(sequence->kv, chunk, *slots, need_of)});
  } else {
    planned->step.AddPrefixRows(sequence->kv, chunk, *slots);
  }
  planned->rows.push_back({sequence->id, count});
  return true;
}

void StepPlanner::AddPrefills(Planned* planned) {
  int budget = options_.prefill_chunk;
  model::PrefixReaders readers;
  for (Sequence* sequence : sequences_->In(SequencePhase::kPrefill)) {
    if (!sequence->scores.of_prompt) {
      model::BlockManager* blocks = runner_->blocks();
      sequence->stats.cached_tokens += blocks->Adopt(sequence->kv, sequence->prompt);
      if (readers.MustWait(sequence->prompt, blocks->prefix_length(sequence->kv))) continue;
      sequence->stats.cached_tokens +=
          blocks->AdoptBeginning(sequence->kv, sequence->prompt, runner_->commits());
    }
    // The last prompt token is the root of the first round: it is a trie node, not a prefix token.
    const int begin = runner_->blocks()->prefix_length(sequence->kv);
    const int left = static_cast<int>(sequence->prompt.size()) - 1 - begin;
    const int room = options_.max_rows - planned->step.rows() - 1;
    const int count = std::min({left, budget, room});
    if (count > 0) {
      if (!AddPrefill(sequence, begin, count, planned)) continue;
      budget -= count;
    }
    if (count >= left && sequence->score_only) {
      planned->ended.push_back(sequence->id);
    } else if (count >= left && room >= 0 && !Join(sequence, planned)) {
      return;
    }
    if (budget <= 0) return;
  }
}

}  // namespace coppice::worker
