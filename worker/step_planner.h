// Chooses the rows of the next step: forests that are ready, plain beams whose draft is late, and
// prefill chunks. Waiting prompts have a share of the rows; if not everything fits, clients take
// turns (docs/step.md). Called by the engine. Thread-compatible.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/model_runner.h"
#include "worker/fair_turns.h"
#include "worker/prompt_turns.h"
#include "worker/scheduler.h"
#include "worker/sequence_table.h"
#include "worker/verify_step.h"

namespace coppice::worker {

// A sequence whose roots (and forest) are in a step, and later its verdict.
struct Participant {
  Sequence* sequence;
  VerifyRows rows;
  absl::StatusOr<decoding::Verdict> verdict;
};

class StepPlanner {
 public:
  // All must outlive the planner.
  StepPlanner(const SchedulerOptions& options, model::ModelRunner* runner, SequenceTable* sequences)
      : options_(options), runner_(runner), sequences_(sequences) {}

  struct SequenceRows {
    uint64_t sequence_id;
    int rows;
  };
  // Rows whose prompt tokens are scored.
  struct PromptRows {
    uint64_t sequence_id;
    int begin, count;  // tokens of the prompt, from the second on: what the rows predict
    int first_need;
  };
  struct Planned {
    model::StepBuilder step;
    std::vector<Participant> participants;
    int prompt_rows = 0;             // rows of prompts
    std::vector<SequenceRows> rows;  // of every sequence in the step; one may have several entries
    std::vector<PromptRows> scored;
    std::vector<uint64_t> ended;  // sequences that only score their prompt, which ends in this step
    // Sequences for whose next rows the pool has no KV.
    std::vector<uint64_t> starved;
  };
  // A step of at most `most_rows` rows, from 1 to those of the options. Only the rows of a single
  // sequence may be more, up to those of the options.
  Planned Plan(int most_rows);
  // True if a step would have rows.
  bool HasWork() const;

 private:
  // Prompts in order of arrival, with the tokens that are missing if nothing more is cached.
  std::vector<WaitingPrompt> Prompts() const;
  // The share of prompts that wait, in a step of at most `most_rows`.
  int RowsForPrompts(absl::Span<const WaitingPrompt> prompts, int most_rows) const;
  // Adds the rows of the sequence to the step.
  void Join(Sequence* sequence, Planned* planned);
  void AddVerifications(int room, Planned* planned);
  // Adds sequences that do not all fit. Returns those that have not joined.
  std::vector<Sequence*> TakeTurns(absl::Span<Sequence* const> ready, int room, Planned* planned);
  // The part of a prompt that a step reads, or of what a preempted sequence reads again.
  struct Chunk {
    Sequence* sequence;
    int begin, count = 0;  // tokens: of its text, then its reread_paths
    bool last = false;     // all is read: the first round begins, it goes on, or it ends
  };
  std::vector<Chunk> ChooseChunks(absl::Span<const WaitingPrompt> prompts, int rows);
  void AddPrefills(absl::Span<const WaitingPrompt> prompts, int rows, Planned* planned);
  RowNeed NeedOfPrompt(const Sequence& sequence, int token, Planned* planned);
  // Adds the rows of the chunk for which the pool has blocks. Returns whether these are all.
  bool AddChunk(const Chunk& chunk, Planned* planned);
  // Return how many of the wanted rows they have added.
  int AddPrefix(Sequence* sequence, int begin, int wanted, Planned* planned);
  int AddReread(Sequence* sequence, int wanted, Planned* planned);

  const SchedulerOptions options_;
  model::ModelRunner* runner_;
  SequenceTable* sequences_;
  FairTurns row_turns_;
  PromptTurns prompt_turns_;
  // Whether the last step kept the prompts' share. If a sequence that does not fit beside the share
  // took it, prompts get it in this step.
  bool prompts_had_theirs_ = true;
};

}  // namespace coppice::worker
