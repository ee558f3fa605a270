#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "decoding/seeded/gumbel_coupling.h"
#include "decoding/seeded/parent_first_decoder.h"
#include "sampling/processed_row.h"

namespace coppice::decoding {
namespace {

class GumbelCouplingDecoder : public ParentFirstDecoder {
 public:
  explicit GumbelCouplingDecoder(const DecodingParams& params) : ParentFirstDecoder(params) {}
  DraftState draft_state() const override;

 private:
  RowUse row_use() const override { return {RowUse::Kind::kDraws}; }
  std::vector<Beam> DrawSlots(sampling::RowSource* rows, RoundLedger* ledger) override;
  void EndRound(sampling::RowSource* rows) override;
  void DrawTokens(sampling::RowSource* rows, absl::Span<const size_t> chosen);

  std::vector<std::unique_ptr<sampling::ProcessedRow>>
      rows_;  // buffers for the rows that are read together
  // [slots] The output of each slot of the next layer; nothing if the row of its parent is not
  // known yet.
  std::vector<std::optional<sampling::ProcessedRow::Draw>> draws_;
};

// Draws the tokens of the slots that picked one of these parents b: v_w = argmax log pt(v|b) +
// G(TOKEN, w, H(b), v). Rows are read in parallel, and slots are drawn in parallel.
void GumbelCouplingDecoder::DrawTokens(sampling::RowSource* rows, absl::Span<const size_t> chosen) {
  std::vector<int> place(parents().size(), -1);  // index into rows_
  for (size_t i = 0; i < chosen.size(); ++i) {
    place[chosen[i]] = static_cast<int>(i);
    if (i == rows_.size()) rows_.push_back(std::make_unique<sampling::ProcessedRow>(params()));
  }
  std::vector<uint32_t> slots;
  for (size_t w = 0; w < picks().size(); ++w) {
    if (place[picks()[w]] >= 0) slots.push_back(static_cast<uint32_t>(w));
  }
  HostThreads* threads = rows->threads();
  threads->RunJobs(static_cast<int>(chosen.size()), [&](int i) {
    const Beam& parent = parents()[chosen[i]];
    rows_[i]->Read(rows, parent.row, state().RowPathOf(parent.path));
  });
  threads->RunJobs(static_cast<int>(slots.size()), [&](int i) {
    const uint32_t w = slots[i];
    const uint64_t hash = paths().hash(parents()[picks()[w]].path);
    draws_[w] =
        rows_[place[picks()[w]]]->DrawToken({params().seed, sampling::Domain::kToken, hash, w});
  });
}

std::vector<Beam> GumbelCouplingDecoder::DrawSlots(sampling::RowSource* rows, RoundLedger* ledger) {
  draws_.resize(picks().size());
  std::vector<bool> drawn(parents().size(), false);
  for (size_t w = 0; w < picks().size(); ++w) drawn[picks()[w]] = draws_[w].has_value();
  std::vector<size_t> missing;
  for (size_t r = 0; r < parents().size(); ++r) {
    if (!drawn[r]) missing.push_back(r);
  }
  DrawTokens(rows, missing);
  std::vector<Beam> slots;
  for (size_t w = 0; w < picks().size(); ++w) {
    const Beam& parent = parents()[picks()[w]];
    const sampling::ProcessedRow::Draw& draw = *draws_[w];
    ledger->AddMargin(draw.margin);
    slots.push_back(ledger->Extend(&mutable_state()->paths(), parent, draw.winner.token,
                                   parent.log_score + draw.winner.score_log_prob));
  }
  draws_.clear();
  return slots;
}

void GumbelCouplingDecoder::EndRound(sampling::RowSource* rows) {
  draws_.assign(picks().size(), std::nullopt);
  std::vector<size_t> known;
  for (size_t r = 0; r < parents().size(); ++r) {
    if (parents()[r].row >= 0) known.push_back(r);
  }
  DrawTokens(rows, known);
}

DraftState GumbelCouplingDecoder::draft_state() const {
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

std::unique_ptr<BeamDecoder> MakeGumbelCouplingDecoder(const DecodingParams& params) {
  return std::make_unique<GumbelCouplingDecoder>(params);
}

}  // namespace coppice::decoding
