#include "decoding/dsbd_drafter.h"

#include <algorithm>
#include <utility>

namespace coppice {

DsbdDrafter::DsbdDrafter(const DecodingParams& params, const DraftState& state, int width,
                         std::shared_ptr<ChoiceSource> choices)
    : stop_ids_(params.stop_ids), width_(width), choices_(std::move(choices)) {
  forest_ = DraftForest::Empty(static_cast<int>(state.root_hash.size()));
  forest_.layer_begin = {0};
  forest_.draws_begin = {0};
  for (int r = 0; r < state.root_hash.size(); ++r) {
    frontier_.push_back(-1 - r);
    beams_.push_back({state.root_hash[r], state.root_score[r], state.root_multiplicity[r]});
  }
  choices_->BeginRound(state.layers_committed);
}

void DsbdDrafter::Grow(absl::Span<const Distribution> rows) {
  std::vector<LawBeam> law_beams;
  for (int b = 0; b < beams_.size(); ++b) {
    law_beams.push_back({beams_[b].hash, beams_[b].score, beams_[b].multiplicity, &rows[b]});
  }
  const LayerLaw q = MakeLayerLaw(law_beams);
  for (int b = 0; b < beams_.size(); ++b)
    forest_.proposals.push_back({frontier_[b], q.rows[b].log_weight, rows[b]});

  const int begin = forest_.size();
  std::vector<Beam> beams;  // [new nodes]
  for (int j = 0; j < width_; ++j) {
    const Entry entry = choices_->Choose(Domain::kDraft, static_cast<uint32_t>(j), q).entry;
    const int32_t parent = frontier_[entry.beam];
    int node = begin;
    while (node < forest_.size() &&
           !(forest_.parent[node] == parent && forest_.token[node] == entry.token))
      ++node;
    if (node == forest_.size()) {
      forest_.token.push_back(entry.token);
      forest_.parent.push_back(parent);
      const double log_q = rows[entry.beam].log_probs[FindToken(rows[entry.beam], entry.token)];
      beams.push_back({ExtendHash(beams_[entry.beam].hash, entry.token),
                       beams_[entry.beam].score + log_q, /*multiplicity=*/0});
    }
    ++beams[node - begin].multiplicity;
    forest_.draws.push_back(node);
  }
  forest_.layer_begin.push_back(forest_.size());
  forest_.draws_begin.push_back(static_cast<int32_t>(forest_.draws.size()));

  frontier_.clear();
  beams_.clear();
  for (int node = begin; node < forest_.size(); ++node) {
    const bool ended =
        std::find(stop_ids_.begin(), stop_ids_.end(), forest_.token[node]) != stop_ids_.end();
    if (ended) continue;  // a finished path has no row and no children
    frontier_.push_back(node);
    beams_.push_back(beams[node - begin]);
  }
}

std::unique_ptr<Drafter> MakeDsbdDrafter(const DecodingParams& params, const DraftState& state,
                                         int width) {
  return std::make_unique<DsbdDrafter>(params, state, width,
                                       std::make_shared<SeededChoices>(params.seed));
}

}  // namespace coppice
