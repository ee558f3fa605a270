#include <algorithm>
#include <limits>

#include "base/deterministic_math.h"
#include "decoding/pf_gumbel.h"
#include "decoding/sequence_state.h"
#include "decoding/warped_row.h"

namespace coppice {
namespace {

class PfGumbelDecoder : public BeamDecoder {
 public:
  explicit PfGumbelDecoder(const DecodingParams& params) : state_(params), row_(params) {
    // The first layer draws every slot from the root; its multiplicity cancels.
    roots_.push_back(Beam{});
    picks_.assign(params.beam_width, 0);
    multiplicity_.assign(1, params.beam_width);
    PublishRoots();
  }

  const PathTree& paths() const override { return state_.paths(); }
  absl::Span<const PathId> roots() const override { return root_paths_; }
  DraftState draft_state() const override;
  int max_useful_depth() const override { return state_.max_useful_depth(); }
  Verdict Advance(const DraftForest& forest, RowSource* rows) override;
  bool finished() const override { return state_.finished(); }
  int layers_committed() const override { return state_.layers(); }
  absl::Span<const LayerOutput> last_layer() const override { return state_.last_layer(); }
  // Beams that were not picked are gone for good, so the roots are all that lives.
  std::vector<TokenId> StablePrefix() const override { return state_.StablePrefix(roots_); }
  std::vector<Hypothesis> Result() const override { return state_.Result(); }

 private:
  bool RowsKnown() const {
    return std::all_of(roots_.begin(), roots_.end(),
                       [](const Beam& root) { return root.row >= 0; });
  }
  std::vector<Beam> DrawSlots(RowSource* rows, RoundLedger* ledger);
  void PickParents(absl::Span<const Beam> slots, RoundLedger* ledger);
  void PublishRoots();

  SequenceState state_;
  WarpedRow row_;
  std::vector<Beam> roots_;  // distinct picked parents of the next layer, in order of first pick
  std::vector<int> multiplicity_;  // [roots] slots that held the beam; set semantics: 1
  std::vector<int32_t> picks_;     // [slots of the next layer] index into roots_
  std::vector<PathId> root_paths_;
};

DraftState PfGumbelDecoder::draft_state() const {
  DraftState state;
  for (size_t r = 0; r < roots_.size(); ++r) {
    state.root_hash.push_back(state_.paths().hash(roots_[r].path));
    state.root_score.push_back(roots_[r].log_score);
    state.root_multiplicity.push_back(multiplicity_[r]);
  }
  state.slot_root = picks_;
  state.layers_committed = state_.layers();
  return state;
}

// One layer's tokens: v_w = argmax log pt(v|b_w) + G(TOKEN, w, H(b_w), v).
std::vector<Beam> PfGumbelDecoder::DrawSlots(RowSource* rows, RoundLedger* ledger) {
  std::vector<Beam> slots(picks_.size());
  for (size_t r = 0; r < roots_.size(); ++r) {
    row_.Read(rows, roots_[r].row, state_.layers());
    const uint64_t hash = state_.paths().hash(roots_[r].path);
    for (size_t w = 0; w < picks_.size(); ++w) {
      if (picks_[w] != static_cast<int32_t>(r)) continue;
      const WarpedRow::Draw draw =
          row_.DrawToken({state_.params().seed, Domain::kToken, hash, static_cast<uint32_t>(w)});
      ledger->AddMargin(draw.margin);
      slots[w] = ledger->Extend(&state_.paths(), roots_[r], draw.winner.token,
                                roots_[r].log_score + draw.winner.score_log_prob);
    }
  }
  return slots;
}

// The next layer's parents: b_w = argmax ls(b) + log m_b + G(PARENT, w, H(b), 0) over the distinct
// paths of the slots.
void PfGumbelDecoder::PickParents(absl::Span<const Beam> slots, RoundLedger* ledger) {
  std::vector<Beam> beams;
  std::vector<int> counts;
  for (const Beam& slot : slots) {
    const auto same = std::find_if(beams.begin(), beams.end(),
                                   [&](const Beam& b) { return b.path == slot.path; });
    if (same == beams.end()) {
      beams.push_back(slot);
      counts.push_back(1);
    } else if (!state_.params().set_semantics) {
      ++counts[same - beams.begin()];
    }
  }
  const size_t num_slots = state_.params().refill ? state_.params().beam_width : slots.size();
  std::vector<int> root_of(beams.size(), -1);
  roots_.clear();
  multiplicity_.clear();
  picks_.clear();
  for (size_t w = 0; w < num_slots; ++w) {
    size_t best = 0;
    double best_key = -std::numeric_limits<double>::infinity(), second_key = best_key;
    for (size_t b = 0; b < beams.size(); ++b) {
      const double key =
          beams[b].log_score + Log(counts[b]) +
          Gumbel(state_.params().seed, Domain::kParent, state_.paths().hash(beams[b].path), w, 0);
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
      root_of[best] = static_cast<int>(roots_.size());
      roots_.push_back(beams[best]);
      multiplicity_.push_back(counts[best]);
    }
    picks_.push_back(root_of[best]);
  }
}

void PfGumbelDecoder::PublishRoots() {
  root_paths_.clear();
  for (const Beam& root : roots_) root_paths_.push_back(root.path);
}

Verdict PfGumbelDecoder::Advance(const DraftForest& forest, RowSource* rows) {
  RoundLedger ledger(forest, roots_.size());
  for (size_t r = 0; r < roots_.size(); ++r) {
    roots_[r].row = static_cast<int>(r);
    roots_[r].parent_row = -1;
  }
  while (!state_.finished() && RowsKnown()) {
    std::vector<Beam> slots = DrawSlots(rows, &ledger);
    std::vector<LayerOutput> outputs;
    for (const Beam& slot : slots) {
      outputs.push_back(
          {slot.path, slot.log_score, state_.is_stop(state_.paths().token(slot.path))});
    }
    ledger.AddLayer();
    if (!state_.EndLayer(outputs)) {
      roots_.clear();
      multiplicity_.clear();
      picks_.clear();
      break;
    }
    std::vector<Beam> active;
    for (size_t w = 0; w < slots.size(); ++w) {
      if (!outputs[w].finished) active.push_back(slots[w]);
    }
    PickParents(active, &ledger);
  }
  PublishRoots();
  return std::move(ledger).Finish(roots_);
}

}  // namespace

std::unique_ptr<BeamDecoder> MakePfGumbelDecoder(const DecodingParams& params) {
  return std::make_unique<PfGumbelDecoder>(params);
}

}  // namespace coppice
