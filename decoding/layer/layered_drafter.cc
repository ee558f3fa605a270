#include "decoding/layer/layered_drafter.h"

#include <map>
#include <utility>

namespace coppice::decoding {

LayeredDrafter::LayeredDrafter(const DecodingParams& params, const DraftState& state, int width,
                               DrawKind draws, std::shared_ptr<ChoiceSource> choices)
    : ends_(params),
      set_semantics_(params.set_semantics),
      width_(width),
      draws_(draws),
      choices_(std::move(choices)),
      joint_distribution_(params.sampling) {
  forest_ = DraftForest::Empty(static_cast<int>(state.root_hash.size()));
  forest_.layer_begin = {0};
  forest_.draws_begin = {0};
  for (int r = 0; r < state.root_hash.size(); ++r) {
    frontier_.push_back(RootId{r});
    beams_.push_back({state.root_hash[r], ends_.Root(state, r), state.root_score[r],
                      state.root_multiplicity[r]});
  }
  choices_->BeginRound(state.layers_committed);
}

std::vector<Entry> LayeredDrafter::DrawLayer(const LayerDistribution& q) {
  if (draws_ == DrawKind::kDistinct)
    return choices_->ChooseDistinct(sampling::Domain::kDraft, 0, q, width_);
  std::vector<Entry> draws;
  draws.reserve(width_);
  for (int j = 0; j < width_; ++j)
    draws.push_back(choices_->Choose(sampling::Domain::kDraft, static_cast<uint32_t>(j), q).entry);
  return draws;
}

void LayeredDrafter::Grow(absl::Span<const sampling::Distribution> rows) {
  std::vector<WeightedBeam> beams;
  beams.reserve(beams_.size());
  for (int b = 0; b < beams_.size(); ++b) {
    beams.push_back({beams_[b].hash, beams_[b].score, beams_[b].multiplicity, &rows[b]});
  }
  const LayerDistribution q = joint_distribution_.Make(beams);
  for (int b = 0; b < beams_.size(); ++b) {
    if (q.rows[b].sparse != nullptr)
      forest_.proposals.push_back({frontier_[b], q.rows[b].log_weight, *q.rows[b].sparse});
  }
  const int begin = forest_.size();
  std::map<std::pair<TreePlace, TokenId>, NodeId> node_of;
  std::vector<DraftBeam> grown;  // [new nodes]
  std::vector<bool> ends;        // [new nodes]
  for (const Entry& entry : DrawLayer(q)) {
    const auto [known, is_new] =
        node_of.emplace(std::pair(frontier_[entry.beam], entry.token), NodeId{forest_.size()});
    if (is_new) {
      forest_.Add(frontier_[entry.beam], entry.token);
      const sampling::Distribution& row = rows[entry.beam];
      const DraftBeam& above = beams_[entry.beam];
      grown.push_back({sampling::ExtendHash(above.hash, entry.token),
                       ends_.Next(above.format_state, entry.token),
                       above.score + row.log_probs[FindToken(row, entry.token)], 1});
      ends.push_back(ends_.Has(above.format_state, entry.token));
    } else if (!set_semantics_) {
      ++grown[Index(known->second) - begin].multiplicity;
    }
    forest_.draws.push_back(known->second);
  }
  forest_.layer_begin.push_back(forest_.size());
  forest_.draws_begin.push_back(static_cast<int32_t>(forest_.draws.size()));

  frontier_.clear();
  beams_.clear();
  for (int node = begin; node < forest_.size(); ++node) {
    if (ends[node - begin]) continue;  // it gets no row and no children
    frontier_.push_back(NodeId{node});
    beams_.push_back(grown[node - begin]);
  }
}

}  // namespace coppice::decoding
