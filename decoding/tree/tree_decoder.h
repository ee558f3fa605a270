// Multinomial sampling verified on draft trees, docs/algorithms.md 4.6 (errata E23). From the root
// on, the node rule chooses a token at each node. If it is a drafted child, the walk continues
// there; otherwise the round ends with it. Law: multinomial sampling (3.1), whatever the draft
// model and the shape of the tree, if the rule matches the law of the children. Chains are trees:
// 4.1. Called through MakeBeamDecoder; drafts come from decoding/tree/topology_drafter.h.
// Thread-compatible.
#pragma once

#include <memory>

#include "decoding/sequence/single_sequence.h"
#include "decoding/tree/child_law.h"
#include "decoding/tree/node_rule.h"

namespace coppice::decoding {

class TreeDecoder : public SingleSequenceDecoder {
 public:
  // A forest that `law` cannot have drawn is ignored and the round is a plain step.
  TreeDecoder(const DecodingParams& params, NodeRule rule, ChildLaw law,
              std::shared_ptr<ChoiceSource> choices)
      : SingleSequenceDecoder(params, std::move(choices)), rule_(rule), law_(law), row_(params) {}

 private:
  void DecideTokens(const DraftForest& forest, sampling::RowSource* rows,
                    RoundLedger* ledger) override;

  const NodeRule rule_;
  const ChildLaw law_;
  sampling::WarpedRow row_;  // of the current node
};

// Seeded.
template <NodeRule rule, ChildLaw law>
std::unique_ptr<BeamDecoder> MakeTreeDecoder(const DecodingParams& params) {
  return std::make_unique<TreeDecoder>(params, rule, law,
                                       std::make_shared<SeededChoices>(params.seed));
}

template <ChildLaw law>
absl::Status CheckTreeForest(const DraftForest& forest) {
  return CheckChildren(law, forest);
}

}  // namespace coppice::decoding
