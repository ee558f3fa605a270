// Chooses the rows of the next step: forests that are ready, plain beams whose draft is late, and
// prefill chunks in the remaining room. Called by the engine. Thread-compatible.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/model_runner.h"
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
    std::vector<SequenceRows> rows;  // of every sequence in the step; one may have several entries
    std::vector<PromptRows> scored;
    std::vector<uint64_t> ended;  // sequences that only score their prompt, which ends in this step
    // Sequences that cannot continue, and why. They have no rows.
    std::vector<std::pair<Sequence*, std::string>> failed;
  };
  Planned Plan();
  // True if a step would have rows.
  bool HasWork() const;

 private:
  // Adds the rows of the sequence to the step. Returns false if there is no room left for them.
  bool Join(Sequence* sequence, Planned* planned);
  void AddVerifications(Planned* planned);
  void AddPrefills(Planned* planned);
  RowNeed NeedOfPrompt(const Sequence& sequence, int token, Planned* planned);
  // Adds the next `count` prompt tokens. Returns false if the sequence has failed.
  bool AddPrefill(Sequence* sequence, int begin, int count, Planned* planned);

  const SchedulerOptions options_;
  model::ModelRunner* runner_;
  SequenceTable* sequences_;
};

}  // namespace coppice::worker
