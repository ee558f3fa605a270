// Decides which sequences are admitted and how large a forest may be. Needs no socket and no model.
// Admission reserves the most KV that a sequence can ever need, so the pool never runs out later
// and no sequence is preempted.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "plan/kv_storage.h"
#include "plan/step_limits.h"
#include "worker/fair_turns.h"
#include "worker/forest_sizer.h"
#include "worker/sequence.h"

namespace coppice::worker {

struct SchedulerOptions {
  int64_t kv_blocks = 0;  // usable blocks of the pool; with windows, pages
  KvStorage kv_storage = {};
  // The most rows of one step. Raise it for many concurrent sequences on a machine where additional
  // rows are cheap.
  int max_rows = kDefaultMaxRows;
  // The share of a step's rows that waiting prompts get. Beams and forests get the others first,
  // and prefill gets the rows that they leave.
  double prefill_share = 0.25;
  // The most prefill tokens of one step, for all sequences together. A larger chunk finishes
  // prompts sooner. A smaller one delays running sequences less.
  int prefill_chunk = kDefaultPrefillChunk;
  // While several clients have sequences, a step has only as many rows as are expected to take this
  // long, so that the small request of one is not slowed down by the large ones of another. 0: no
  // limit.
  double max_step_s = 0.25;
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerOptions& options) : options_(options) {}

  // Blocks that admission reserves for the sequence: KvPagesBound.
  int64_t BlocksNeeded(const Sequence& sequence) const;
  // ResourceExhausted when the sequence can never fit; names the blocks needed and available, or
  // its beams and the rows of a step.
  absl::Status CheckFits(const Sequence& sequence) const;
  // Reserves the sequence's blocks. Returns false if they are not free now.
  bool Admit(Sequence* sequence);
  // Admits sequences of `waiting` that fit now, in order of arrival and by turns between clients.
  // Others may pass the first one that does not fit until they have taken as many blocks as the
  // pool has. Then all wait for it.
  std::vector<Sequence*> AdmitByTurns(absl::Span<Sequence* const> waiting);
  void Release(Sequence* sequence);
  int64_t reserved_blocks() const { return reserved_; }
  int running() const { return running_; }

  // The bounds of this sequence's next forest: the request's own numbers, the layers that it can
  // still use, and its share of a step. The rows of all sequences are left to the caller.
  SizerLimits ForestLimits(const Sequence& sequence) const;

  const SchedulerOptions& options() const { return options_; }

 private:
  bool AdmitInTurn(Sequence* sequence);

  SchedulerOptions options_;
  int64_t reserved_ = 0;
  int running_ = 0;
  FairTurns turns_;                      // turns of clients, by blocks
  std::optional<uint64_t> passed_over_;  // the sequence that later ones may pass
  int64_t passed_by_blocks_ = 0;         // blocks admitted meanwhile
};

}  // namespace coppice::worker
