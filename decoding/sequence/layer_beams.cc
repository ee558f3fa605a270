#include "decoding/sequence/layer_beams.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"

namespace coppice::decoding {

LayerBeams::LayerBeams(const DecodingParams& params)
    : params_(params), distribution_(params.sampling) {
  // In the first layer, every slot is drawn from the root. Its multiplicity cancels out.
  const bool slots = params.kind == sampling::DecodingKind::kBeamSampling;
  Set(std::vector<Beam>(slots ? params.beam_width : 1));
}

void LayerBeams::Set(absl::Span<const Beam> slots) {
  beams_.clear();
  paths_.clear();
  multiplicity_.clear();
  slot_root_.clear();
  absl::flat_hash_map<PathId, size_t> beam_of;
  for (const Beam& slot : slots) {
    const auto [place, is_new] = beam_of.try_emplace(slot.path, paths_.size());
    const size_t b = place->second;
    slot_root_.push_back(static_cast<int32_t>(b));
    if (is_new) {
      beams_.push_back(slot);
      paths_.push_back(slot.path);
      multiplicity_.push_back(1);
    } else if (!params_.set_semantics) {
      ++multiplicity_[b];
    }
  }
}

void LayerBeams::BeginRound() {
  for (size_t r = 0; r < beams_.size(); ++r) beams_[r].BecomeRoot(r);
}

bool LayerBeams::RowsKnown() const {
  return std::all_of(beams_.begin(), beams_.end(), [](const Beam& beam) { return beam.row >= 0; });
}

LayerDistribution LayerBeams::Read(sampling::RowSource* rows, const PathTree& paths) {
  std::vector<WeightedBeam> distribution;
  for (size_t b = 0; b < beams_.size(); ++b) {
    if (b == rows_.size()) rows_.push_back(std::make_unique<sampling::ProcessedRow>(params_));
    distribution.push_back({paths.hash(beams_[b].path), beams_[b].log_score, multiplicity_[b],
                            nullptr, rows_[b].get()});
  }
  rows->threads()->RunJobs(static_cast<int>(beams_.size()), [&](int b) {
    rows_[b]->Read(rows, beams_[b].row, MakeRowPath(params_, paths, beams_[b].path));
  });
  return distribution_.Make(distribution);
}

double LayerBeams::ScoreLogProb(Entry entry) const {
  return rows_[entry.beam]->Find(entry.token).score_log_prob;
}

DraftState LayerBeams::State(const PathTree& paths, int layers) const {
  DraftState state;
  for (size_t b = 0; b < beams_.size(); ++b) {
    state.root_hash.push_back(paths.hash(beams_[b].path));
    state.root_score.push_back(beams_[b].log_score);
    state.root_multiplicity.push_back(multiplicity_[b]);
    state.root_format_state.push_back(paths.format_state(beams_[b].path));
  }
  state.slot_root = slot_root_;
  state.layers_committed = static_cast<uint32_t>(layers);
  return state;
}

}  // namespace coppice::decoding
