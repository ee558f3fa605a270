// One layer of DSBD (dynamic-width speculative beam decoding): rejection of a layer's iid drafts
// against the target's joint distribution, docs/algorithms.md 5.1-5.3. Distribution: given the
// width, the outputs are iid draws from P (3.3), whatever the drafts. The layer rule of
// decoding/layer/dsbd.cc. Pure except for the ChoiceSource.
#pragma once

#include "decoding/joint/choice_source.h"
#include "decoding/joint/layer_distribution.h"
#include "decoding/layer/layer_rule.h"

namespace coppice::decoding {

// W^(l): input.width, or 5.3's max(minimum, Wt) capped at maximum.
struct WidthRule {
  double threshold = 0;  // t of 5.3, 0 = fixed width
  int minimum = 1;       // W_min
  int maximum = 1;       // W_max, >= minimum
};

// The mass that q proposes in its first `beams` rows (s of 5.2).
double ProposalMass(const LayerDistribution& q, int beams);

// In the result, outputs lists accepted drafts first; full means that every output is an accepted
// draft.
LayerResult VerifyDsbdLayer(const LayerInput& input, RemovedParents rule, const WidthRule& width,
                            ChoiceSource* choices);
// `width` iid draws from p.
LayerResult DrawLayer(const LayerDistribution& p, int width, ChoiceSource* choices);

class DsbdRule : public LayerRule {
 public:
  DsbdRule(RemovedParents rule, WidthRule width) : rule_(rule), width_(width) {}
  LayerResult Verify(const LayerInput& input, ChoiceSource* choices) const override {
    return VerifyDsbdLayer(input, rule_, width_, choices);
  }
  LayerResult Draw(const LayerDistribution& p, int width, const LayerEnds&,
                   ChoiceSource* choices) const override {
    return DrawLayer(p, width, choices);
  }

 private:
  const RemovedParents rule_;
  const WidthRule width_;
};

}  // namespace coppice::decoding
