// p_beam of one layer in every sampling scope (docs/algorithms.md 1): ROW and ROW_RAW weight rows
// that are processed already, ROWCUT weights cut rows by their flat scores, JOINT cuts the flat
// scores of the whole layer. Decoders and drafters of the methods that serve JOINT and ROWCUT get
// their distributions here. Equal paths must be merged; the multiplicity enters before logits
// processing. Thread-compatible.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "decoding/joint/layer_distribution.h"
#include "decoding/params.h"
#include "sampling/distribution.h"

namespace coppice::decoding {

class JointDistribution {
 public:
  explicit JointDistribution(const sampling::SamplingParams& sampling) : sampling_(sampling) {}
  JointDistribution(const JointDistribution&) = delete;
  JointDistribution& operator=(const JointDistribution&) = delete;

  // The distribution over the beams' rows, in their order. A beam without entries after a joint cut
  // has neither row. `processed`: read with the same parameters. `sparse`: a row as DraftRow makes
  // it. The distribution refers to the given rows and to this object's, until the next Make.
  LayerDistribution Make(absl::Span<const WeightedBeam> beams);

 private:
  double FlatScore(const WeightedBeam& beam) const;
  double Floor(absl::Span<const WeightedBeam> beams) const;
  LayerDistribution WeighRows(absl::Span<const WeightedBeam> beams);
  LayerDistribution CutLayer(absl::Span<const WeightedBeam> beams);

  const sampling::SamplingParams sampling_;
  std::vector<sampling::Distribution> rows_;  // [beams] rows processed by this object
};

}  // namespace coppice::decoding
