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
#include "decoding/forest.h"
#include "decoding/params.h"
#include "decoding/path_tree.h"
#include "plan/step_plan.h"
#include "sampling/row_source.h"

namespace coppice::decoding {

// One output of a layer: a beam, or a slot of beam sampling.
struct LayerOutput {
  PathId path = kRootPath;
  double log_score = 0;   // ls, nats
  bool finished = false;  // its last token ends it (SequenceState::Ends)
};

struct Hypothesis {
  std::vector<TokenId> tokens;       // EOS / stop id included
  double joint_log_probability = 0;  // ls
  double score = 0;                  // ls / len^alpha
  bool finished = false;             // ended by its last token, not by max_tokens
};

class BeamDecoder {
 public:
  virtual ~BeamDecoder() = default;

  virtual const PathTree& paths() const = 0;
  // Paths whose rows the next layer needs. Only their KV and that of their ancestors must be kept.
  // Not empty until finished. Gumbel coupling: only the distinct picked parents.
  virtual absl::Span<const PathId> roots() const = 0;
  virtual DraftState draft_state() const = 0;
  // What it needs of every target row. The caller fills in the fields that differ from row to row
  // (decoding/row_need.h). Whole rows are always enough.
  virtual RowNeed row_need() const { return {}; }
  // Deepest useful draft now: max_tokens - 1 - layers committed, at least 0.
  virtual int max_useful_depth() const = 0;
  // Decides as many layers as the rows allow, at least one. `forest` has roots().size() roots in
  // the order of roots().
  virtual Verdict Advance(const DraftForest& forest, sampling::RowSource* rows) = 0;

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
