// The drafter of static trees (docs/algorithms.md 4.6): each node gets as many children as the
// topology gives its place, drawn by one distribution. A token that is drawn twice becomes one node
// that stands for both places. The draft node owns one per round. Thread-compatible.
#pragma once

#include <memory>
#include <vector>

#include "decoding/draft_ends.h"
#include "decoding/drafter.h"
#include "decoding/joint/choice_source.h"
#include "decoding/topology.h"
#include "decoding/tree/child_sampling.h"

namespace coppice::decoding {

class TopologyDrafter : public Drafter {
 public:
  // For one root. `choices` makes the draws (SeededChoices in production). At temperature 0 the
  // children are the most likely tokens: every rule then emits the target's argmax, for any drafts.
  TopologyDrafter(const DecodingParams& params, const DraftState& state, Topology topology,
                  ChildSampling sampling, std::shared_ptr<ChoiceSource> choices);

  absl::Span<const TreePlace> frontier() const override { return frontier_; }
  void Grow(absl::Span<const sampling::Distribution> rows) override;
  const DraftForest& forest() const override { return forest_; }

 private:
  struct Node {
    uint64_t hash = 0;  // H(path)
    DraftEnds::State format_state = 0;
    bool ends = false;        // it ends its path
    std::vector<int> places;  // places in the topology's level that it stands for
  };
  std::vector<int> PlacesBelow(const Node& node) const;

  const Topology topology_;
  const ChildSampling sampling_;  // what the verifier relies on
  const ChildSampling drawing_;   // how children are drawn
  const DraftEnds ends_;
  std::shared_ptr<ChoiceSource> choices_;
  std::vector<TreePlace> frontier_;
  std::vector<Node> level_;  // [frontier]
  DraftForest forest_;
};

// A seeded drafter for the tree of params.draft_tree, which must be valid; without one, for a tree
// with `width` children below the root. kSpecHub: at most two.
template <ChildSampling sampling>
std::unique_ptr<Drafter> MakeTreeDrafter(const DecodingParams& params, const DraftState& state,
                                         int width);
// Drafts one path, for any width.
std::unique_ptr<Drafter> MakePathDrafter(const DecodingParams& params, const DraftState& state,
                                         int width);
// Drafts `width` iid sequences (SpecTr), whatever draft_tree says.
std::unique_ptr<Drafter> MakeSequencesDrafter(const DecodingParams& params, const DraftState& state,
                                              int width);

}  // namespace coppice::decoding
