// Grows one draft forest level by level from the draft model's rows. The draft node owns one per
// round:
//
//   auto drafter = MakeDrafter(params, state, width);
//   for (level = 0; level < depth && !drafter->frontier().empty(); ++level)
//     drafter->Grow(rows of frontier())
//
// Level 0 = the roots; level l >= 1 = nodes of layer l-1. A node that ends its path (draft_ends)
// has no row and no children.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "decoding/forest.h"
#include "decoding/params.h"
#include "decoding/row_path.h"
#include "plan/candidate_row.h"
#include "sampling/distribution.h"

namespace coppice::decoding {

class Drafter {
 public:
  virtual ~Drafter() = default;
  // The places whose draft rows the next Grow needs: at level 0 every root, later nodes.
  virtual absl::Span<const TreePlace> frontier() const = 0;
  // rows[i] is the draft distribution after frontier()[i]. Appends the next layer to forest().
  virtual void Grow(absl::Span<const sampling::Distribution> rows) = 0;
  virtual const DraftForest& forest() const = 0;
  // What the verifier receives after the last Grow: the forest, or a part of it.
  virtual DraftForest Sent() const { return forest(); }
};

absl::StatusOr<std::unique_ptr<Drafter>> MakeDrafter(const DecodingParams& params,
                                                     const DraftState& state, int width);

// The proposal of a draft row: processed like a target row (temperature, top-k, top-p, min-p, bias,
// penalties, stop ids banned before min_tokens), cut to the `params.draft_top_k` most likely tokens
// and renormalised. JOINT and ROWCUT: only bias and bans; the drafter processes all rows of a level
// together (JointDistribution).
sampling::Distribution DraftRow(absl::Span<const float> logits, const DecodingParams& params,
                                const sampling::RowPath& path);  // logits [vocab]
sampling::Distribution DraftRow(const CandidateRow& row, const DecodingParams& params,
                                const sampling::RowPath& path);
// The sampling parameters of DraftRow, if `sampling` is that of a target row.
sampling::SamplingParams DraftSampling(sampling::SamplingParams sampling,
                                       const DecodingParams& params);

}  // namespace coppice::decoding
