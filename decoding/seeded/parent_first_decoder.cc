#include "decoding/seeded/parent_first_decoder.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "sampling/deterministic_math.h"
#include "sampling/gumbel_kernels.h"

namespace coppice::decoding {

ParentFirstDecoder::ParentFirstDecoder(const DecodingParams& params) : SequenceDecoder(params) {
  // In the first layer, every slot is drawn from the root. Its multiplicity cancels out.
  parents_.push_back(Beam{});
  picks_.assign(params.beam_width, 0);
  multiplicity_.assign(1, params.beam_width);
}

bool ParentFirstDecoder::RowsKnown() const {
  return std::all_of(parents_.begin(), parents_.end(),
                     [](const Beam& parent) { return parent.row >= 0; });
}

DraftState ParentFirstDecoder::draft_state() const {
  DraftState draft = SequenceDecoder::draft_state();
  draft.root_multiplicity.assign(multiplicity_.begin(), multiplicity_.end());
  draft.slot_root = picks_;
  return draft;
}

// The next layer's parents: b_w = argmax ls(b) + log m_b + G(PARENT, w, H(b), 0) over the distinct
// paths of the slots.
void ParentFirstDecoder::PickParents(absl::Span<const Beam> slots, RoundLedger* ledger) {
  std::vector<Beam> beams;
  std::vector<int> counts;
  absl::flat_hash_map<PathId, size_t> place;  // index into beams
  for (const Beam& slot : slots) {
    const auto [same, is_new] = place.try_emplace(slot.path, beams.size());
    if (is_new) {
      beams.push_back(slot);
      counts.push_back(1);
    } else if (!params().set_semantics) {
      ++counts[same->second];
    }
  }
  std::vector<uint64_t> hashes;
  std::vector<double> weights, noise(beams.size());
  for (size_t b = 0; b < beams.size(); ++b) {
    hashes.push_back(paths().hash(beams[b].path));
    weights.push_back(beams[b].log_score + sampling::Log(counts[b]));
  }
  const size_t num_slots = params().refill ? params().beam_width : slots.size();
  std::vector<int> root_of(beams.size(), -1);
  parents_.clear();
  multiplicity_.clear();
  picks_.clear();
  for (size_t w = 0; w < num_slots; ++w) {
    size_t best = 0;
    double best_key = sampling::kLogZero, second_key = best_key;
    sampling::GumbelOfHashes(
        {params().seed, sampling::Domain::kParent, 0, static_cast<uint32_t>(w)}, hashes,
        noise.data());
    for (size_t b = 0; b < beams.size(); ++b) {
      const double key = weights[b] + noise[b];
      if (key > best_key) {
        second_key = best_key;
        best_key = key;
        best = b;
      } else if (key > second_key) {
        second_key = key;
      }
    }
    ledger->AddMargin(best_key - second_key);
    if (root_of[best] < 0) {
      root_of[best] = static_cast<int>(parents_.size());
      parents_.push_back(beams[best]);
      multiplicity_.push_back(counts[best]);
    }
    picks_.push_back(root_of[best]);
  }
}

void ParentFirstDecoder::Decide(const DraftForest& forest, sampling::RowSource* rows,
                                RoundLedger* ledger) {
  for (size_t r = 0; r < parents_.size(); ++r) parents_[r].BecomeRoot(r);
  const bool use_forest = BeginRound(forest);
  bool go_on = true;
  while (go_on && !finished() && RowsKnown()) {
    go_on = use_forest;
    std::vector<Beam> slots = DrawSlots(rows, ledger);
    std::vector<LayerOutput> outputs;
    outputs.reserve(slots.size());
    for (const Beam& slot : slots) {
      const bool ends = state().Ends(paths().parent(slot.path), paths().token(slot.path));
      outputs.push_back({slot.path, slot.log_score, ends});
    }
    ledger->AddLayer();
    if (!mutable_state()->EndLayer(outputs)) {
      parents_.clear();
      multiplicity_.clear();
      picks_.clear();
      break;
    }
    std::vector<Beam> active;
    for (size_t w = 0; w < slots.size(); ++w) {
      if (!outputs[w].finished) active.push_back(slots[w]);
    }
    PickParents(active, ledger);
  }
  if (!finished()) EndRound(rows);
}

}  // namespace coppice::decoding
