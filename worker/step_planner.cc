#include "worker/step_planner.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/check.h"
#include "model/kv/prefix_readers.h"
#include "worker/client_queues.h"
#include "worker/preemption.h"

namespace coppice::worker {
namespace {

// Beams and forest. Rows that are known already are not subtracted.
int MostRows(const Sequence& sequence) {
  return static_cast<int>(sequence.decoder->roots().size()) + sequence.forest.size();
}

// The tokens of the prefix that a sequence in kPrefill reads. The last one of the text is a root, or
// a node above one: it is a trie node, not a prefix token.
int PrefixOf(const Sequence& sequence) { return static_cast<int>(sequence.text().size()) - 1; }

// Tokens to prefill after the first `count`.
int LeftAfter(const Sequence& sequence, int count) {
  return PrefixOf(sequence) + static_cast<int>(sequence.reread_paths.size()) - count;
}

}  // namespace

bool StepPlanner::HasWork() const {
  return sequences_->First(SequencePhase::kReady) != nullptr ||
         sequences_->First(SequencePhase::kPrefill) != nullptr;
}

StepPlanner::Planned StepPlanner::Plan(int most_rows) {
  Planned planned{runner_->NewStep(), {}, 0, {}, {}, {}, {}};
  const std::vector<WaitingPrompt> prompts = Prompts();
  const int room = most_rows - RowsForPrompts(prompts, most_rows);
  if (prompts.empty()) prompts_had_theirs_ = true;
  AddVerifications(room, &planned);
  prompts_had_theirs_ = planned.step.rows() <= room;
  AddPrefills(prompts, most_rows - planned.step.rows(), &planned);
  return planned;
}

std::vector<WaitingPrompt> StepPlanner::Prompts() const {
  std::vector<WaitingPrompt> prompts;
  for (Sequence* sequence : sequences_->In(SequencePhase::kPrefill)) {
    prompts.push_back(
        {sequence, LeftAfter(*sequence, runner_->blocks()->prefix_length(sequence->kv) +
                                            sequence->reread_done)});
  }
  return prompts;
}

int StepPlanner::RowsForPrompts(absl::Span<const WaitingPrompt> prompts, int most_rows) const {
  if (prompts.empty()) return 0;
  const int share = static_cast<int>(std::ceil(options_.prefill_share * most_rows));
  const int most = std::min(options_.prefill_chunk, share);
  int wanted = 0;
  for (const WaitingPrompt& prompt : prompts) {
    if (wanted >= most) break;
    wanted += prompt.left + 1;
  }
  return std::min(most, wanted);
}

void StepPlanner::Join(Sequence* sequence, Planned* planned) {
  auto reserved = ReserveRows(sequence, runner_->blocks());
  if (!reserved.ok()) {
    planned->starved.push_back(sequence->id);
    return;
  }
  planned->participants.push_back(
      {sequence, *std::move(reserved), absl::UnknownError("not verified")});
  const int before = planned->step.rows();
  AppendRows(*sequence, &planned->step, &planned->participants.back().rows);
  planned->rows.push_back({sequence->id, planned->step.rows() - before});
}

void StepPlanner::AddVerifications(int room, Planned* planned) {
  const std::vector<Sequence*> ready = sequences_->In(SequencePhase::kReady);
  int wanted = 0;
  for (Sequence* sequence : ready) {
    if (MostRows(*sequence) > options_.max_rows) {  // it would fit into no step
      const int roots = static_cast<int>(sequence->decoder->roots().size());
      sequence->forest = decoding::DraftForest::Empty(roots);
    }
    wanted += MostRows(*sequence);
  }
  if (wanted <= room) {
    for (Sequence* sequence : ready) Join(sequence, planned);
    return;
  }
  // The room that the turns leave goes to sequences that fit there. No client is charged for it.
  for (Sequence* sequence : TakeTurns(ready, room, planned)) {
    if (planned->step.rows() + MostRows(*sequence) <= room) Join(sequence, planned);
  }
}

// The turns end at the first sequence that does not fit, so its client is first in the next step.
// The first sequence of a step always fits, at the latest when prompts have had their share.
std::vector<Sequence*> StepPlanner::TakeTurns(absl::Span<Sequence* const> ready, int room,
                                              Planned* planned) {
  const std::vector<ClientQueue> queues = ByClient(ready);
  std::vector<size_t> joined(queues.size());
  row_turns_.Begin(Askers(queues));
  while (const std::optional<int> next = row_turns_.First()) {
    const std::vector<Sequence*>& its = queues[*next].sequences;
    Sequence* sequence = its[joined[*next]];
    const int rows = MostRows(*sequence);
    const bool fits = planned->step.rows() + rows <= room;
    if (!fits && !(planned->step.rows() == 0 && prompts_had_theirs_)) break;
    Join(sequence, planned);
    row_turns_.Give(*next, rows);
    if (++joined[*next] == its.size()) {
      row_turns_.Leave(*next, /*waits=*/false);
    } else {
      row_turns_.AsksSince(*next, its[joined[*next]]->phase_order);
    }
  }
  row_turns_.End();
  std::vector<Sequence*> rest;
  for (size_t i = 0; i < queues.size(); ++i)
    rest.insert(rest.end(), queues[i].sequences.begin() + joined[i], queues[i].sequences.end());
  std::sort(rest.begin(), rest.end(),
            [](const Sequence* a, const Sequence* b) { return a->phase_order < b->phase_order; });
  return rest;
}

// What the row before this prompt token must give to score the token.
RowNeed StepPlanner::NeedOfPrompt(const Sequence& sequence, int token, Planned* planned) {
  RowNeed need = sampling::RawScoreNeed(*sequence.scores.top);
  const auto asked_for = planned->step.AddBias({{sequence.prompt[token], 0.0}});
  need.bias_begin = asked_for.begin;
  need.bias_end = asked_for.end;
  return need;
}

int StepPlanner::AddPrefix(Sequence* sequence, int begin, int wanted, Planned* planned) {
  const int count = runner_->blocks()->MostAppended(sequence->kv, wanted);
  if (count == 0) return 0;
  const auto chunk = absl::MakeConstSpan(sequence->text()).subspan(begin, count);
  const auto slots = runner_->blocks()->AppendPrefix(sequence->kv, chunk);
  COPPICE_CHECK(slots.ok());
  if (sequence->scores_prompt()) {
    const auto need_of = [&](int i) { return NeedOfPrompt(*sequence, begin + i + 1, planned); };
    planned->scored.push_back({sequence->id, begin + 1, count,
                               planned->step.AddPrefixRows(sequence->kv, chunk, *slots, need_of)});
  } else {
    planned->step.AddPrefixRows(sequence->kv, chunk, *slots);
  }
  planned->rows.push_back({sequence->id, count});
  planned->prompt_rows += count;
  return count;
}

int StepPlanner::AddReread(Sequence* sequence, int wanted, Planned* planned) {
  for (int i = 0; i < wanted; ++i) {
    const TokenId token =
        sequence->decoder->paths().token(sequence->reread_paths[sequence->reread_done]);
    const auto node = ReserveReread(sequence, runner_->blocks());
    if (!node.ok()) return i;
    planned->step.AddNodeRow(sequence->kv, *node, token);
    planned->rows.push_back({sequence->id, 1});
    ++planned->prompt_rows;
  }
  return wanted;
}

bool StepPlanner::AddChunk(const Chunk& chunk, Planned* planned) {
  const int prefix = std::clamp(PrefixOf(*chunk.sequence) - chunk.begin, 0, chunk.count);
  int added = prefix == 0 ? 0 : AddPrefix(chunk.sequence, chunk.begin, prefix, planned);
  if (added == prefix) added += AddReread(chunk.sequence, chunk.count - prefix, planned);
  if (added == 0 && chunk.count > 0) planned->starved.push_back(chunk.sequence->id);
  return added == chunk.count;
}

std::vector<StepPlanner::Chunk> StepPlanner::ChooseChunks(absl::Span<const WaitingPrompt> prompts,
                                                          int rows) {
  model::PrefixReaders readers;
  model::BlockManager* blocks = runner_->blocks();
  std::vector<Chunk> chunks;
  absl::flat_hash_map<const Sequence*, size_t> chunk_of;
  const auto read = [&](Sequence* sequence, int tokens, int room) -> PromptTurns::Read {
    const auto [place, is_new] = chunk_of.try_emplace(sequence, chunks.size());
    if (is_new) {
      if (sequence->reread_done == 0 && !sequence->scores_prompt()) {
        int adopted = blocks->Adopt(sequence->kv, sequence->text());
        const bool waits = readers.MustWait(sequence->text(), blocks->prefix_length(sequence->kv));
        if (!waits) {
          adopted += blocks->AdoptBeginning(sequence->kv, sequence->text(), runner_->commits());
        }
        if (sequence->reread.empty()) sequence->stats.cached_tokens += adopted;
        if (waits) return {};
      }
      chunks.push_back({sequence, blocks->prefix_length(sequence->kv) + sequence->reread_done});
    }
    Chunk& chunk = chunks[place->second];
    const int left = LeftAfter(*sequence, chunk.begin + chunk.count);
    const int count = std::min({left, tokens, room});
    chunk.count += count;
    const int root = sequence->score_only || !sequence->reread.empty() ? 0 : 1;
    chunk.last = count == left && count + root <= room;
    return {count, count + (chunk.last ? root : 0), !chunk.last, left - count};
  };
  prompt_turns_.Run(prompts, options_.prefill_chunk, rows, read);
  return chunks;
}

void StepPlanner::AddPrefills(absl::Span<const WaitingPrompt> prompts, int rows, Planned* planned) {
  for (const Chunk& chunk : ChooseChunks(prompts, rows)) {
    Sequence* sequence = chunk.sequence;
    if (!AddChunk(chunk, planned)) continue;
    if (!chunk.last) continue;
    if (!sequence->reread.empty()) {
      sequences_->Move(sequence, SequencePhase::kReady);  // its round is in the next step
    } else if (sequence->score_only) {
      planned->ended.push_back(sequence->id);
    } else {
      Join(sequence, planned);
    }
  }
}

}  // namespace coppice::worker
