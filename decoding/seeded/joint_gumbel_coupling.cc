#include "decoding/seeded/joint_gumbel_coupling.h"

#include <algorithm>
#include <utility>

#include "decoding/joint/choice_source.h"
#include "decoding/sequence/layer_beams.h"
#include "decoding/sequence/layer_ends.h"
#include "decoding/sequence/sequence_decoder.h"
#include "sampling/rng.h"
#include "sampling/target_row.h"

namespace coppice::decoding {
namespace {

double Key(const LayerDistribution& p, uint64_t seed, Entry entry) {
  return LogMass(p, entry) + sampling::Gumbel(seed, sampling::Domain::kToken,
                                              p.rows[entry.beam].hash, /*slot=*/0,
                                              static_cast<uint32_t>(entry.token));
}

class JointGumbelCouplingDecoder : public SequenceDecoder {
 public:
  explicit JointGumbelCouplingDecoder(const DecodingParams& params)
      : SequenceDecoder(params), beams_(params), slots_(params.beam_width) {}

  DraftState draft_state() const override { return beams_.State(paths(), state().layers()); }

 private:
  void Decide(const DraftForest& forest, sampling::RowSource* rows, RoundLedger* ledger) override;
  std::vector<Beam> LiveBeams() const override { return beams_.beams(); }
  void DecideLayer(sampling::RowSource* rows, RoundLedger* ledger);

  LayerBeams beams_;
  int slots_;  // slots of the next layer, with replacement
};

void JointGumbelCouplingDecoder::DecideLayer(sampling::RowSource* rows, RoundLedger* ledger) {
  const LayerDistribution p = beams_.Read(rows, paths());
  const SlotDraws drawn = params().kind == sampling::DecodingKind::kBeamSampling
                              ? DrawSlots(p, params(), slots_)
                              : DrawDistinct(p, params(), LayerEnds(&state(), beams_.paths()));
  ledger->AddMargin(drawn.margin);
  std::vector<Beam> live;
  std::vector<LayerOutput> outputs;
  for (const Entry& entry : drawn.entries) {
    const Beam& beam = beams_.beams()[entry.beam];
    const Beam child = ledger->Extend(&mutable_state()->paths(), beam, entry.token,
                                      beam.log_score + beams_.ScoreLogProb(entry));
    const bool ended = state().Ends(beam.path, entry.token);
    outputs.push_back({child.path, child.log_score, ended});
    if (!ended) live.push_back(child);
  }
  ledger->AddLayer();
  if (!mutable_state()->EndLayer(std::move(outputs))) live.clear();
  if (!params().refill) slots_ = static_cast<int>(live.size());
  beams_.Set(live);
}

void JointGumbelCouplingDecoder::Decide(const DraftForest&, sampling::RowSource* rows,
                                        RoundLedger* ledger) {
  beams_.BeginRound();
  do {
    DecideLayer(rows, ledger);
  } while (!finished() && beams_.RowsKnown());
  beams_.EndRound();
}

}  // namespace

SlotDraws DrawSlots(const LayerDistribution& p, const DecodingParams& params, int slots) {
  SeededChoices noise(params.seed);
  SlotDraws drawn;
  for (int w = 0; w < slots; ++w) {
    const Draw draw = noise.Choose(sampling::Domain::kToken, static_cast<uint32_t>(w), p);
    drawn.margin = std::min(drawn.margin, draw.margin);
    drawn.entries.push_back(draw.entry);
  }
  return drawn;
}

SlotDraws DrawDistinct(const LayerDistribution& p, const DecodingParams& params,
                       const LayerEnds& layer_ends) {
  SeededChoices noise(params.seed);
  // Ranks one more than is taken, for the margin.
  std::vector<Entry> ranked =
      noise.ChooseDistinct(sampling::Domain::kToken, /*slot=*/0, p, params.beam_width + 1);
  size_t taken = std::min<size_t>(ranked.size(), params.beam_width);
  const auto ends = std::count_if(ranked.begin(), ranked.begin() + taken,
                                  [&](const Entry& entry) { return layer_ends.Has(entry); });
  if (ends > 0) {
    ranked.resize(taken);
    LayerDistribution left = p;  // noise belongs to entries, so the rest keeps its order
    for (const Entry& entry : ranked) RemoveEntry(entry, &left);
    layer_ends.RemoveFrom(&left);
    const std::vector<Entry> rest = noise.ChooseDistinct(sampling::Domain::kToken, /*slot=*/0, left,
                                                         static_cast<int>(ends + 1));
    ranked.insert(ranked.end(), rest.begin(), rest.end());
    taken += std::min<size_t>(rest.size(), ends);
  }
  SlotDraws drawn;
  if (taken < ranked.size()) {
    drawn.margin = Key(p, params.seed, ranked[taken - 1]) - Key(p, params.seed, ranked[taken]);
  }
  ranked.resize(taken);
  drawn.entries = std::move(ranked);
  return drawn;
}

std::unique_ptr<BeamDecoder> MakeJointGumbelCouplingDecoder(const DecodingParams& params) {
  return std::make_unique<JointGumbelCouplingDecoder>(params);
}

}  // namespace coppice::decoding
