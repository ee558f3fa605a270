// p_beam of one layer in every warp mode (docs/algorithms.md 1): ROW and ROW_RAW weight rows that
// are warped already, ROWCUT weights cut rows by their flat scores, JOINT cuts the flat scores of
// the whole layer. Decoders and drafters of the methods that serve JOINT and ROWCUT get their laws
// here. Equal paths must be merged; the multiplicity enters before the warp. Thread-compatible.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "decoding/law/layer_law.h"
#include "decoding/params.h"
#include "sampling/distribution.h"

namespace coppice::decoding {

class JointLaw {
 public:
  explicit JointLaw(const sampling::WarpParams& warp) : warp_(warp) {}
  JointLaw(const JointLaw&) = delete;
  JointLaw& operator=(const JointLaw&) = delete;

  // The law over the beams' rows, in their order. A beam without entries after a joint cut has
  // neither row. `warped`: read with the same parameters. `sparse`: a row as DraftRow makes it. The
  // law refers to the given rows and to this object's, until the next Make.
  LayerLaw Make(absl::Span<const LawBeam> beams);

 private:
  double FlatScore(const LawBeam& beam) const;
  double Floor(absl::Span<const LawBeam> beams) const;
  LayerLaw WeighRows(absl::Span<const LawBeam> beams);
  LayerLaw CutLayer(absl::Span<const LawBeam> beams);

  const sampling::WarpParams warp_;
  std::vector<sampling::Distribution> rows_;  // [beams] the rows that a warp made here
};

}  // namespace coppice::decoding
