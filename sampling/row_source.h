// The rows of logits of one round, as a decoder reads them. The worker's rows are implemented in
// worker/verify_step.
#pragma once

#include "absl/types/span.h"
#include "base/host_threads.h"
#include "plan/candidate_row.h"

namespace coppice::sampling {

// Raw target logits of the rows of one round, f32 [vocab], numbered as in DraftForest. A decoder
// asks for a row when it needs it, and at most once. The span is valid until the next call; with
// lent threads, until the end of the round.
class RowSource {
 public:
  virtual ~RowSource() = default;
  // Threads on which rows may be read in parallel. A source that lends threads accepts calls from
  // all of them.
  virtual HostThreads* threads() { return HostThreads::Serial(); }
  virtual absl::Span<const float> Logits(int row) = 0;
  // Rows in f64 (golden files, test models): raw logits or log-probabilities [vocab]. Called
  // first; an empty span means "use Logits".
  virtual absl::Span<const double> LogProbs(int /*row*/) { return {}; }
  // The row as the candidate list that the decoder said it needs (row_need); nullptr means "use
  // Logits". Lives as long as the source.
  virtual const CandidateRow* Listed(int /*row*/) { return nullptr; }
  // The reader of a whole row has formed the log-sum-exp of its raw logits, nats. A scorer of
  // tokens need not form it again.
  virtual void TellLogSum(int /*row*/, double /*log_sum*/) {}
};

}  // namespace coppice::sampling
