// Decisions of the leader that need no socket and no model: who is admitted, how large a forest may
// be, and in which order sequences enter a pass. Admission reserves the most KV that a sequence can
// ever need, so the pool never runs out under way and nothing is preempted.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "worker/forest_sizer.h"
#include "worker/sequence.h"

namespace coppice::worker {

struct SchedulerOptions {
  int64_t kv_blocks = 0;  // usable blocks of the pool
  int scratch_blocks =
      4;  // private token-granular blocks of a sequence before chains spill to branch runs
  int max_rows = 512;       // of one pass
  int prefill_chunk = 256;  // prefill tokens of one pass
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerOptions& options) : options_(options) {}

  // What admission reserves for it: KvBlocksBound.
  int64_t BlocksNeeded(const Sequence& sequence) const;
  // ResourceExhausted with needed and available blocks, or beams and rows, when it can never fit.
  absl::Status CheckFits(const Sequence& sequence) const;
  // Reserves and returns true when its blocks are free now.
  bool Admit(Sequence* sequence);
  void Release(Sequence* sequence);
  int64_t reserved_blocks() const { return reserved_; }
  int running() const { return running_; }

  // What bounds the next forest of this sequence: the request's own numbers, what it can still use,
  // and its share of a pass.
  SizerLimits ForestLimits(const Sequence& sequence) const;

  const SchedulerOptions& options() const { return options_; }

 private:
  SchedulerOptions options_;
  int64_t reserved_ = 0;
  int running_ = 0;
};

}  // namespace coppice::worker
