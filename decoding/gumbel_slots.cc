#include "decoding/gumbel_slots.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/rng.h"
#include "decoding/choice_source.h"
#include "decoding/layer_beams.h"
#include "decoding/sequence_state.h"

namespace coppice {
namespace {

class GumbelSlotsDecoder : public BeamDecoder {
 public:
  explicit GumbelSlotsDecoder(const DecodingParams& params)
      : state_(params), beams_(params), noise_(params.seed), slots_(params.beam_width) {}

  const PathTree& paths() const override { return state_.paths(); }
  absl::Span<const PathId> roots() const override { return beams_.paths(); }
  DraftState draft_state() const override { return beams_.State(state_.paths(), state_.layers()); }
  int max_useful_depth() const override { return state_.max_useful_depth(); }
  Verdict Advance(const DraftForest& forest, RowSource* rows) override;
  bool finished() const override { return state_.finished(); }
  int layers_committed() const override { return state_.layers(); }
  absl::Span<const LayerOutput> last_layer() const override { return state_.last_layer(); }
  std::vector<TokenId> StablePrefix() const override { return state_.StablePrefix(beams_.beams()); }
  std::vector<Hypothesis> Result() const override { return state_.Result(); }

 private:
  const DecodingParams& params() const { return state_.params(); }
  std::vector<Entry> DrawSlots(const LayerLaw& p, RoundLedger* ledger);
  std::vector<Entry> DrawDistinct(const LayerLaw& p, RoundLedger* ledger);
  double Key(const LayerLaw& p, Entry entry) const;
  void DecideLayer(RowSource* rows, RoundLedger* ledger);

  SequenceState state_;
  LayerBeams beams_;
  SeededChoices noise_;
  int slots_;  // of the next layer, with replacement
};

// argmax over the entries of log P + G(TOKEN, w), for every slot w.
std::vector<Entry> GumbelSlotsDecoder::DrawSlots(const LayerLaw& p, RoundLedger* ledger) {
  std::vector<Entry> drawn;
  for (int w = 0; w < slots_; ++w) {
    const Draw draw = noise_.Choose(Domain::kToken, static_cast<uint32_t>(w), p);
    ledger->AddMargin(draw.margin);
    drawn.push_back(draw.entry);
  }
  return drawn;
}

double GumbelSlotsDecoder::Key(const LayerLaw& p, Entry entry) const {
  return LogMass(p, entry) + Gumbel(params().seed, Domain::kToken, p.rows[entry.beam].hash,
                                    /*slot=*/0, static_cast<uint32_t>(entry.token));
}

// The entries with the largest log P + G(TOKEN, 0) in decreasing order, walked as section 8 says:
// an end of rank below W is an output, the others fill the next beams until there are W.
std::vector<Entry> GumbelSlotsDecoder::DrawDistinct(const LayerLaw& p, RoundLedger* ledger) {
  const int width = params().beam_width;
  const int ends = static_cast<int>(params().stop_ids.size() * p.rows.size());
  const std::vector<Entry> ranked =
      noise_.ChooseDistinct(Domain::kToken, /*slot=*/0, p, width + ends + 1);
  std::vector<Entry> drawn;
  int live = 0;
  for (size_t rank = 0; rank < ranked.size() && live < width; ++rank) {
    const bool ended = state_.is_stop(ranked[rank].token);
    if (ended && rank >= static_cast<size_t>(width)) continue;
    drawn.push_back(ranked[rank]);
    live += ended ? 0 : 1;
    if (live == width && rank + 1 < ranked.size()) {
      ledger->AddMargin(Key(p, ranked[rank]) - Key(p, ranked[rank + 1]));
    }
  }
  return drawn;
}

void GumbelSlotsDecoder::DecideLayer(RowSource* rows, RoundLedger* ledger) {
  const LayerLaw p = beams_.Read(rows, state_.paths(), state_.layers());
  const bool with_replacement = params().kind == DecodingKind::kBeamSampling;
  std::vector<Beam> live;
  std::vector<LayerOutput> outputs;
  for (const Entry& entry : with_replacement ? DrawSlots(p, ledger) : DrawDistinct(p, ledger)) {
    const Beam& beam = beams_.beams()[entry.beam];
    const Beam child = ledger->Extend(&state_.paths(), beam, entry.token,
                                      beam.log_score + beams_.ScoreLogProb(entry));
    const bool ended = state_.is_stop(entry.token);
    outputs.push_back({child.path, child.log_score, ended});
    if (!ended) live.push_back(child);
  }
  ledger->AddLayer();
  if (!state_.EndLayer(std::move(outputs))) live.clear();
  if (!params().refill) slots_ = static_cast<int>(live.size());
  beams_.Set(live);
}

Verdict GumbelSlotsDecoder::Advance(const DraftForest& forest, RowSource* rows) {
  COPPICE_CHECK(!finished());
  RoundLedger ledger(forest, beams_.beams().size());
  beams_.BeginRound();
  do {
    DecideLayer(rows, &ledger);
  } while (!finished() && beams_.RowsKnown());
  return std::move(ledger).Finish(beams_.beams());
}

}  // namespace

std::unique_ptr<BeamDecoder> MakeGumbelSlotsDecoder(const DecodingParams& params) {
  return std::make_unique<GumbelSlotsDecoder>(params);
}

}  // namespace coppice
