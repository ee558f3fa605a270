// Multinomial sampling verified on draft trees, docs/algorithms.md 4.6 (errata E23). From the root
// on, the node rule chooses a token at each node. If it is a drafted child, the walk continues
// there; otherwise the round ends with it. Distribution: multinomial sampling (3.1), whatever the
// draft model and the shape of the tree, if the rule matches the distribution of the children.
// Chains are trees: 4.1. Called through MakeBeamDecoder; drafts come from
// decoding/tree/topology_drafter.h. Thread-compatible.
#pragma once

#include <memory>

#include "decoding/sequence/single_sequence.h"
#include "decoding/tree/child_sampling.h"
#include "decoding/tree/node_rule.h"

namespace coppice::decoding {

class TreeDecoder : public SingleSequenceDecoder {
 public:
  // A forest that `children` cannot have drawn is ignored, and the round is plain.
  TreeDecoder(const DecodingParams& params, NodeRule rule, ChildSampling children,
              std::shared_ptr<ChoiceSource> choices)
      : SingleSequenceDecoder(params, std::move(choices)),
        rule_(rule),
        children_(children),
        row_(params) {}

 private:
  void DecideTokens(const DraftForest& forest, sampling::RowSource* rows,
                    RoundLedger* ledger) override;

  const NodeRule rule_;
  const ChildSampling children_;
  sampling::ProcessedRow row_;  // row of the current node
};

// Seeded.
template <NodeRule rule, ChildSampling children>
std::unique_ptr<BeamDecoder> MakeTreeDecoder(const DecodingParams& params) {
  return std::make_unique<TreeDecoder>(params, rule, children,
                                       std::make_shared<SeededChoices>(params.seed));
}

template <ChildSampling children>
absl::Status CheckTreeForest(const DraftForest& forest) {
  return CheckChildren(children, forest);
}

}  // namespace coppice::decoding
