// The decoder of one sequence: a pure state machine that turns target rows into beams, layer by
// layer, with or without a draft forest. The worker owns one per sequence. It asks which rows the
// decoder needs, runs the target, and calls Advance.
//
//   while (!decoder->finished()) {
//     forest = draft of decoder->roots()  (or DraftForest::Empty)
//     logits = target pass over roots and forest nodes
//     verdict = decoder->Advance(forest, rows);
//   }
//
// Thread-compatible. Implementations: the rows of decoding/method.h.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/host_threads.h"
#include "base/listed_row.h"
#include "base/step_plan.h"
#include "decoding/forest.h"
#include "decoding/params.h"
#include "decoding/path_tree.h"

namespace coppice::decoding {

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
  // Rows in f64 (golden files, test models): unwarped logits or log-probabilities [vocab]. Called
  // first; an empty span means "use Logits".
  virtual absl::Span<const double> LogProbs(int /*row*/) { return {}; }
  // The row as the shortlist that the decoder said it needs (row_need); nullptr means "use Logits".
  // Lives as long as the source.
  virtual const ListedRow* Listed(int /*row*/) { return nullptr; }
  // The reader of a whole row has formed the log-sum-exp of its unwarped logits, nats. Who scores
  // tokens need not form it again.
  virtual void TellLogSum(int /*row*/, double /*log_sum*/) {}
};

// One output of a layer: a beam, or a slot of beam sampling.
struct LayerOutput {
  PathId path = kRootPath;
  double log_score = 0;   // ls, nats
  bool finished = false;  // ends in a stop id
};

struct Hypothesis {
  std::vector<TokenId> tokens;       // EOS / stop id included
  double joint_log_probability = 0;  // ls
  double score = 0;                  // ls / len^alpha
  bool finished = false;             // ended by a stop id (not by max_tokens)
};

class BeamDecoder {
 public:
  virtual ~BeamDecoder() = default;

  virtual const PathTree& paths() const = 0;
  // Paths whose rows the next layer needs. Only their KV and that of their ancestors must be kept.
  // Not empty until finished. PF-Gumbel: only the distinct picked parents.
  virtual absl::Span<const PathId> roots() const = 0;
  virtual DraftState draft_state() const = 0;
  // What it needs of every target row. The caller fills in the fields that differ from row to row
  // (decoding/rows/row_need.h). Whole rows are always enough.
  virtual RowNeed row_need() const { return {}; }
  // Deepest useful draft now: max_tokens - 1 - layers committed, at least 0.
  virtual int max_useful_depth() const = 0;
  // Decides as many layers as the rows allow, at least one. `forest` has roots().size() roots in
  // the order of roots().
  virtual Verdict Advance(const DraftForest& forest, RowSource* rows) = 0;

  virtual bool finished() const = 0;
  virtual int layers_committed() const = 0;
  // Outputs of the last decided layer in slot or rank order, finished ones included (slots: with
  // repetitions). Before the first layer: the root alone.
  virtual absl::Span<const LayerOutput> last_layer() const = 0;
  // Longest token prefix shared by every hypothesis that can still be ranked first
  // (docs/api.md 3.2). Never shrinks.
  virtual std::vector<TokenId> StablePrefix() const = 0;
  // Best first, at most num_hypotheses; after finished().
  virtual std::vector<Hypothesis> Result() const = 0;
};

// InvalidArgument for a combination that no decoder serves.
absl::StatusOr<std::unique_ptr<BeamDecoder>> MakeBeamDecoder(const DecodingParams& params);

}  // namespace coppice::decoding
