// One layer whose drafts were drawn without replacement. A draft that was read can be used again
// for later outputs, since the residual keeps its target mass (docs/algorithms.md 5.5).
// Distribution, whatever the drafts: outputs iid from P (3.3), or, with a target without
// replacement (3.4), what the walk of docs/algorithms.md 8 takes from a sequential sample of P. The
// layer rule of decoding/layer/dsbd_wor.cc, and of each parent's slots in beam recursive rejection.
// Pure except for the ChoiceSource.
#pragma once

#include <vector>

#include "decoding/joint/choice_source.h"
#include "decoding/joint/layer_distribution.h"
#include "decoding/layer/layer_rule.h"

namespace coppice::decoding {

// outputs[i].draft is the accepted draft; -1 for a draft that a residual draw hit. full: every
// output is a drafted node, accepted or hit by a draw.
LayerResult VerifyWithReuse(const LayerInput& input, RemovedParents rule, ChoiceSource* choices);

// For a target without replacement. Ranks 0..W-1 are outputs. For each of them that ends one
// more output is drawn among the entries that do not end (docs/algorithms.md 8). Fewer
// outputs when P has fewer entries.
LayerResult VerifyDistinctWithReuse(const LayerInput& input, RemovedParents rule,
                                    const LayerEnds& ends, ChoiceSource* choices);
// The same distribution without drafts.
LayerResult DrawDistinctLayer(const LayerDistribution& p, int width, const LayerEnds& ends,
                              ChoiceSource* choices);

class DsbdWorRule : public LayerRule {
 public:
  explicit DsbdWorRule(RemovedParents rule) : rule_(rule) {}
  LayerResult Verify(const LayerInput& input, ChoiceSource* choices) const override;
  LayerResult Draw(const LayerDistribution& p, int width, const LayerEnds& ends,
                   ChoiceSource* choices) const override;

 private:
  const RemovedParents rule_;
};

class DistinctDsbdWorRule : public LayerRule {
 public:
  explicit DistinctDsbdWorRule(RemovedParents rule) : rule_(rule) {}
  LayerResult Verify(const LayerInput& input, ChoiceSource* choices) const override;
  LayerResult Draw(const LayerDistribution& p, int width, const LayerEnds& ends,
                   ChoiceSource* choices) const override;

 private:
  const RemovedParents rule_;
};

}  // namespace coppice::decoding
