// Decides which sequences are admitted and how large a forest may be. Needs no socket and no model.
// Admission goes by the KV that sequences are expected to need. When more is needed and the pool has
// none, the engine preempts (worker/preemption.h).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/outranked_share.h"
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

// KV in blocks; with windows, in pages.
struct KvRoom {
  int64_t blocks = 0;  // can be had, and no running sequence is expected to take them
  // What a waiting sequence is expected to take, beside blocks that running ones have as well.
  absl::FunctionRef<int64_t(const Sequence&)> needs;
  // Can be had, whatever running sequences are expected to take. A client without a running sequence
  // may have these for its first one, so that it need not wait for the large ones of another.
  int64_t unclaimed = 0;
  absl::Span<Sequence* const> running = {};
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerOptions& options) : options_(options) {}

  // The most blocks that the sequence can need: KvPagesBound.
  int64_t BlocksBound(const Sequence& sequence) const;
  // The most blocks that one step adds to the sequence, besides a forest.
  int64_t BlocksOfStep(const Sequence& sequence) const;
  // ResourceExhausted when the sequence can never fit; names the blocks needed and available, or
  // its beams and the rows of a step.
  absl::Status CheckFits(const Sequence& sequence) const;
  // Admits sequences of `waiting`, in order of arrival, that fit into the room; the first one in any
  // case if none runs. Lower values of `priority` go first; within a priority clients take turns.
  // Of the blocks that go to sequences with a lower value than others that came before them, these
  // get an eighth. Others may pass the first sequence that does not fit until they have taken as
  // many blocks as the pool has. Then all wait for it.
  std::vector<Sequence*> AdmitByTurns(absl::Span<Sequence* const> waiting, KvRoom room);
  // An admitted sequence has ended or was preempted.
  void Release() { --running_; }
  int running() const { return running_; }

  // The bounds of this sequence's next forest: the request's own numbers, the layers that it can
  // still use, and its share of a step. The rows of all sequences are left to the caller.
  SizerLimits ForestLimits(const Sequence& sequence) const;

  const SchedulerOptions& options() const { return options_; }

 private:
  struct Round;  // one call of AdmitByTurns
  bool Admit(Sequence* sequence, Round* round);
  static Sequence* FirstBelow(int priority, absl::Span<Sequence* const> waiting,
                              const Round& round);
  void AdmitClass(absl::Span<Sequence* const> waiting, Round* round);
  // Whether all wait for the sequence that was passed over.
  bool AllWait() const { return passed_over_ && passed_by_blocks_ >= options_.kv_blocks; }

  SchedulerOptions options_;
  int running_ = 0;
  FairTurns turns_;                      // turns of clients, by blocks
  std::optional<uint64_t> passed_over_;  // the sequence that later ones may pass
  int64_t passed_by_blocks_ = 0;         // blocks admitted meanwhile
  OutrankedShare outranked_;
};

}  // namespace coppice::worker
