#include "decoding/gumbel_slots.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/rng.h"
#include "decoding/choice_source.h"
#include "decoding/layer_beams.h"
#include "decoding/sequence_state.h"
#include "decoding/target_row.h"

namespace coppice {
namespace {

double Key(const LayerLaw& p, uint64_t seed, Entry entry) {
  return LogMass(p, entry) + Gumbel(seed, Domain::kToken, p.rows[entry.beam].hash, /*slot=*/0,
                                    static_cast<uint32_t>(entry.token));
}

class GumbelSlotsDecoder : public BeamDecoder {
 public:
  explicit GumbelSlotsDecoder(const DecodingParams& params)
      : state_(params), beams_(params), slots_(params.beam_width) {}

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
  void DecideLayer(RowSource* rows, RoundLedger* ledger);

  SequenceState state_;
  LayerBeams beams_;
  int slots_;  // of the next layer, with replacement
};

void GumbelSlotsDecoder::DecideLayer(RowSource* rows, RoundLedger* ledger) {
  const LayerLaw p = beams_.Read(rows, state_.paths(), state_.layers());
  const SlotDraws drawn = params().kind == DecodingKind::kBeamSampling
                              ? DrawSlots(p, params(), slots_)
                              : DrawDistinct(p, params());
  ledger->AddMargin(drawn.margin);
  std::vector<Beam> live;
  std::vector<LayerOutput> outputs;
  for (const Entry& entry : drawn.entries) {
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

SlotDraws DrawSlots(const LayerLaw& p, const DecodingParams& params, int slots) {
  SeededChoices noise(params.seed);
  SlotDraws drawn;
  for (int w = 0; w < slots; ++w) {
    const Draw draw = noise.Choose(Domain::kToken, static_cast<uint32_t>(w), p);
    drawn.margin = std::min(drawn.margin, draw.margin);
    drawn.entries.push_back(draw.entry);
  }
  return drawn;
}

SlotDraws DrawDistinct(const LayerLaw& p, const DecodingParams& params) {
  const size_t width = static_cast<size_t>(params.beam_width);
  const size_t ends = params.stop_ids.size() * p.rows.size();
  const std::vector<Entry> ranked =
      SeededChoices(params.seed)
          .ChooseDistinct(Domain::kToken, /*slot=*/0, p, static_cast<int>(width + ends + 1));
  SlotDraws drawn;
  size_t live = 0;
  for (size_t rank = 0; rank < ranked.size() && live < width; ++rank) {
    const bool ended = IsStopId(params, ranked[rank].token);
    if (ended && rank >= width) continue;
    drawn.entries.push_back(ranked[rank]);
    live += ended ? 0 : 1;
    if (live == width && rank + 1 < ranked.size()) {
      drawn.margin = Key(p, params.seed, ranked[rank]) - Key(p, params.seed, ranked[rank + 1]);
    }
  }
  return drawn;
}

std::unique_ptr<BeamDecoder> MakeGumbelSlotsDecoder(const DecodingParams& params) {
  return std::make_unique<GumbelSlotsDecoder>(params);
}

}  // namespace coppice
