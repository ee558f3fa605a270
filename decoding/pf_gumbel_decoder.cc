#include <algorithm>
#include <optional>

#include "decoding/parent_first_decoder.h"
#include "decoding/pf_gumbel.h"
#include "decoding/warped_row.h"

namespace coppice {
namespace {

class PfGumbelDecoder : public ParentFirstDecoder {
 public:
  explicit PfGumbelDecoder(const DecodingParams& params)
      : ParentFirstDecoder(params), row_(params) {}
  DraftState draft_state() const override;

 private:
  std::vector<Beam> DrawSlots(RowSource* rows, RoundLedger* ledger) override;
  void EndRound(RowSource* rows) override;
  void DrawTokens(RowSource* rows, size_t parent);

  WarpedRow row_;
  // [slots] what a slot of the next layer outputs; nothing where the row of its parent is not known
  // yet.
  std::vector<std::optional<WarpedRow::Draw>> draws_;
};

// The tokens of the slots that picked a parent b: v_w = argmax log pt(v|b) + G(TOKEN, w, H(b), v).
void PfGumbelDecoder::DrawTokens(RowSource* rows, size_t parent) {
  row_.Read(rows, parents()[parent].row, state()->layers());
  const uint64_t hash = state()->paths().hash(parents()[parent].path);
  for (size_t w = 0; w < picks().size(); ++w) {
    if (picks()[w] != static_cast<int32_t>(parent)) continue;
    draws_[w] =
        row_.DrawToken({state()->params().seed, Domain::kToken, hash, static_cast<uint32_t>(w)});
  }
}

std::vector<Beam> PfGumbelDecoder::DrawSlots(RowSource* rows, RoundLedger* ledger) {
  draws_.resize(picks().size());
  std::vector<bool> drawn(parents().size(), false);
  for (size_t w = 0; w < picks().size(); ++w) drawn[picks()[w]] = draws_[w].has_value();
  for (size_t r = 0; r < parents().size(); ++r) {
    if (!drawn[r]) DrawTokens(rows, r);
  }
  std::vector<Beam> slots;
  for (size_t w = 0; w < picks().size(); ++w) {
    const Beam& parent = parents()[picks()[w]];
    const WarpedRow::Draw& draw = *draws_[w];
    ledger->AddMargin(draw.margin);
    slots.push_back(ledger->Extend(&state()->paths(), parent, draw.winner.token,
                                   parent.log_score + draw.winner.score_log_prob));
  }
  draws_.clear();
  return slots;
}

void PfGumbelDecoder::EndRound(RowSource* rows) {
  draws_.assign(picks().size(), std::nullopt);
  for (size_t r = 0; r < parents().size(); ++r) {
    if (parents()[r].row >= 0) DrawTokens(rows, r);
  }
}

DraftState PfGumbelDecoder::draft_state() const {
  DraftState state = ParentFirstDecoder::draft_state();
  const auto known = [](const auto& draw) { return draw.has_value(); };
  if (std::none_of(draws_.begin(), draws_.end(), known)) return state;
  for (const auto& draw : draws_) {
    state.slot_token.push_back(draw ? draw->winner.token : -1);
    state.slot_log_prob.push_back(draw ? draw->winner.score_log_prob : 0);
  }
  return state;
}

}  // namespace

std::unique_ptr<BeamDecoder> MakePfGumbelDecoder(const DecodingParams& params) {
  return std::make_unique<PfGumbelDecoder>(params);
}

}  // namespace coppice
