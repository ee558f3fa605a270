#include "decoding/tree/topology_drafter.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "sampling/rng.h"
#include "sampling/target_row.h"

namespace coppice::decoding {

TopologyDrafter::TopologyDrafter(const DecodingParams& params, const DraftState& state,
                                 Topology topology, ChildSampling sampling,
                                 std::shared_ptr<ChoiceSource> choices)
    : topology_(std::move(topology)),
      sampling_(sampling),
      drawing_(params.sampling.temperature == 0 ? ChildSampling::kMostLikely : sampling),
      ends_(params),
      choices_(std::move(choices)),
      frontier_{RootId{0}},
      level_{{state.root_hash[0], ends_.Root(state, 0), false, {0}}},
      forest_(DraftForest::Empty(1)) {
  COPPICE_CHECK(state.root_hash.size() == 1);
  forest_.layer_begin = {0};
  if (sampling_ != ChildSampling::kMostLikely) forest_.draws_begin = {0};
  choices_->BeginRound(state.layers_committed);
}

// The places of the node's children, in drawing order.
std::vector<int> TopologyDrafter::PlacesBelow(const Node& node) const {
  std::vector<int> places;
  const int level = forest_.depth();
  for (int place : node.places) {
    const int first = topology_.FirstChild(level, place);
    for (int c = 0; c < topology_.Children(level, place); ++c) places.push_back(first + c);
  }
  return places;
}

void TopologyDrafter::Grow(absl::Span<const sampling::Distribution> rows) {
  COPPICE_CHECK(rows.size() == level_.size());
  const bool sends_draws = sampling_ != ChildSampling::kMostLikely;
  const int begin = forest_.size();
  std::vector<Node> nodes;  // nodes of the new layer
  for (size_t i = 0; i < level_.size(); ++i) {
    const std::vector<int> places = PlacesBelow(level_[i]);
    const std::vector<TokenId> drafts = DrawChildren(
        drawing_, rows[i], level_[i].hash, static_cast<int>(places.size()), choices_.get());
    if (sends_draws) forest_.proposals.push_back({frontier_[i], /*log_weight=*/0, rows[i]});
    const int first = forest_.size();
    for (size_t j = 0; j < drafts.size(); ++j) {
      const auto twin = std::find(forest_.token.begin() + first, forest_.token.end(), drafts[j]);
      const int node = static_cast<int>(twin - forest_.token.begin());
      if (node == forest_.size()) {
        forest_.Add(frontier_[i], drafts[j]);
        nodes.push_back({sampling::ExtendHash(level_[i].hash, drafts[j]),
                         ends_.Next(level_[i].format_state, drafts[j]),
                         ends_.Has(level_[i].format_state, drafts[j]),
                         {}});
      }
      nodes[node - begin].places.push_back(places[j]);
      if (sends_draws) forest_.draws.push_back(NodeId{node});
    }
  }
  forest_.layer_begin.push_back(forest_.size());
  if (sends_draws) forest_.draws_begin.push_back(static_cast<int32_t>(forest_.draws.size()));

  frontier_.clear();
  level_.clear();
  for (int node = begin; node < forest_.size(); ++node) {
    if (nodes[node - begin].ends || PlacesBelow(nodes[node - begin]).empty()) continue;
    frontier_.push_back(NodeId{node});
    level_.push_back(std::move(nodes[node - begin]));
  }
}

namespace {

std::unique_ptr<Drafter> SeededDrafter(const DecodingParams& params, const DraftState& state,
                                       absl::string_view tree, int width, ChildSampling sampling) {
  const int most = sampling == ChildSampling::kSpecHub ? 2 : kMaxTopologyNodes;
  return std::make_unique<TopologyDrafter>(params, state,
                                           ParseTopology(tree, std::min(width, most)).value(),
                                           sampling, std::make_shared<SeededChoices>(params.seed));
}

}  // namespace

template <ChildSampling sampling>
std::unique_ptr<Drafter> MakeTreeDrafter(const DecodingParams& params, const DraftState& state,
                                         int width) {
  return SeededDrafter(params, state, params.draft_tree, width, sampling);
}

template std::unique_ptr<Drafter> MakeTreeDrafter<ChildSampling::kIid>(const DecodingParams&,
                                                                       const DraftState&, int);
template std::unique_ptr<Drafter> MakeTreeDrafter<ChildSampling::kWithoutReplacement>(
    const DecodingParams&, const DraftState&, int);
template std::unique_ptr<Drafter> MakeTreeDrafter<ChildSampling::kMostLikely>(const DecodingParams&,
                                                                              const DraftState&,
                                                                              int);
template std::unique_ptr<Drafter> MakeTreeDrafter<ChildSampling::kGreedy>(const DecodingParams&,
                                                                          const DraftState&, int);
template std::unique_ptr<Drafter> MakeTreeDrafter<ChildSampling::kSpecHub>(const DecodingParams&,
                                                                           const DraftState&, int);

std::unique_ptr<Drafter> MakePathDrafter(const DecodingParams& params, const DraftState& state,
                                         int /*width*/) {
  return SeededDrafter(params, state, "chain", /*width=*/1, ChildSampling::kIid);
}

std::unique_ptr<Drafter> MakeSequencesDrafter(const DecodingParams& params, const DraftState& state,
                                              int width) {
  return SeededDrafter(params, state, /*tree=*/"", width, ChildSampling::kIid);
}

}  // namespace coppice::decoding
