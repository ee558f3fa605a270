// The drafter of static trees (docs/algorithms.md 4.6): every node gets as many children as its
// place in the topology says, drawn by one law. A token that is drawn twice is one node, which goes
// on with all of its places. The draft node owns one per round; thread-compatible.
#pragma once

#include <memory>
#include <vector>

#include "decoding/child_law.h"
#include "decoding/choice_source.h"
#include "decoding/drafter.h"
#include "decoding/topology.h"

namespace coppice {

class TopologyDrafter : public Drafter {
 public:
  // One root. `choices` decides the draws (SeededChoices in production). At temperature 0 the
  // children are the most likely ones: every rule emits the target's argmax, whatever the drafts.
  TopologyDrafter(const DecodingParams& params, const DraftState& state, Topology topology,
                  ChildLaw law, std::shared_ptr<ChoiceSource> choices);

  absl::Span<const int32_t> frontier() const override { return frontier_; }
  void Grow(absl::Span<const Distribution> rows) override;
  const DraftForest& forest() const override { return forest_; }

 private:
  struct Node {
    uint64_t hash = 0;        // H(path)
    std::vector<int> places;  // nodes of the topology's level that it stands for
  };
  std::vector<int> PlacesBelow(const Node& node) const;

  const Topology topology_;
  const ChildLaw law_;      // what the verifier relies on
  const ChildLaw drawing_;  // how children are drawn
  const std::vector<TokenId> stop_ids_;
  std::shared_ptr<ChoiceSource> choices_;
  std::vector<int32_t> frontier_;
  std::vector<Node> level_;  // [frontier]
  DraftForest forest_;
};

// Seeded; the tree of params.draft_tree, which has been checked, with `width` children below the
// root when it names none. kSpecHub: at most two.
template <ChildLaw law>
std::unique_ptr<Drafter> MakeTreeDrafter(const DecodingParams& params, const DraftState& state,
                                         int width);
// One path, whatever the width.
std::unique_ptr<Drafter> MakePathDrafter(const DecodingParams& params, const DraftState& state,
                                         int width);
// `width` iid sequences (SpecTr), whatever tree is named.
std::unique_ptr<Drafter> MakeSequencesDrafter(const DecodingParams& params, const DraftState& state,
                                              int width);

}  // namespace coppice
