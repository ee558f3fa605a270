// Drafter of the methods that verify joint layers by rejection: each layer is W_S draws from
// q_beam, the joint distribution of the draft beams (docs/algorithms.md 5.1, 5.5). The roots start
// with the target's scores and multiplicities. Ships the draws in drawing order, the distinct nodes
// and the proposals. The draft node owns one per round; thread-compatible.
#pragma once

#include <memory>
#include <vector>

#include "decoding/draft_ends.h"
#include "decoding/drafter.h"
#include "decoding/joint/choice_source.h"
#include "decoding/joint/draft_proposals.h"
#include "decoding/joint/joint_distribution.h"

namespace coppice::decoding {

class LayeredDrafter : public Drafter {
 public:
  // width = W_S >= 1. draws: kIndependent or kDistinct. `choices` makes the draws
  // (SeededChoices in production).
  LayeredDrafter(const DecodingParams& params, const DraftState& state, int width, DrawKind draws,
                 std::shared_ptr<ChoiceSource> choices);

  absl::Span<const TreePlace> frontier() const override { return frontier_; }
  void Grow(absl::Span<const sampling::Distribution> rows) override;
  const DraftForest& forest() const override { return forest_; }

 private:
  struct DraftBeam {  // a draft beam that can be continued
    uint64_t hash;    // H(path)
    DraftEnds::State format_state;
    double score;      // dls, nats: the target's ls, then + log q
    int multiplicity;  // copies among the draws; set semantics: 1
  };
  std::vector<Entry> DrawLayer(const LayerDistribution& q);

  const DraftEnds ends_;
  const bool set_semantics_;
  const int width_;
  const DrawKind draws_;
  const std::shared_ptr<ChoiceSource> choices_;
  JointDistribution joint_distribution_;
  std::vector<TreePlace> frontier_;
  std::vector<DraftBeam> beams_;  // [frontier]
  DraftForest forest_;
};

}  // namespace coppice::decoding
