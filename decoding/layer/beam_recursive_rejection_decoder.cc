#include <algorithm>
#include <limits>
#include <utility>

#include "decoding/joint/draft_proposals.h"
#include "decoding/layer/beam_recursive_rejection.h"
#include "decoding/layer/dsbd_wor_layer.h"
#include "decoding/seeded/parent_first_decoder.h"
#include "sampling/processed_row.h"

namespace coppice::decoding {
namespace {

class BeamRecursiveRejectionDecoder : public ParentFirstDecoder {
 public:
  BeamRecursiveRejectionDecoder(const DecodingParams& params, std::shared_ptr<ChoiceSource> choices)
      : ParentFirstDecoder(params), choices_(std::move(choices)), row_(params) {}

 private:
  struct Drafts {  // the drafts of one parent
    const sampling::Distribution* row = nullptr;
    std::vector<Entry> entries;  // drawing order
  };

  bool BeginRound(const DraftForest& forest) override;
  std::vector<Beam> DrawSlots(sampling::RowSource* rows, RoundLedger* ledger) override;
  LayerResult DrawTokens(const Beam& parent, int slots);

  const std::shared_ptr<ChoiceSource> choices_;
  const DsbdWorRule rule_{RemovedParents::kReject};
  sampling::ProcessedRow row_;
  std::vector<Drafts> drafts_;  // [rows of the forest]
};

bool BeamRecursiveRejectionDecoder::BeginRound(const DraftForest& forest) {
  choices_->BeginRound(static_cast<uint64_t>(state().layers()));
  drafts_.assign(forest.rows(), Drafts());
  if (!CheckBeamRecursiveRejectionForest(forest).ok()) return false;
  for (const Proposal& proposal : forest.proposals)
    drafts_[forest.RowOf(proposal.place)].row = &proposal.row;
  for (const NodeId draw : forest.draws) {
    const int32_t node = Index(draw);
    drafts_[forest.RowOf(forest.parent[node])].entries.push_back({0, forest.token[node]});
  }
  return true;
}

// Draws the tokens of the slots that picked one parent. Its row has been read. This is a layer with
// one beam.
LayerResult BeamRecursiveRejectionDecoder::DrawTokens(const Beam& parent, int slots) {
  WeightedBeam beam;
  beam.hash = paths().hash(parent.path);
  beam.processed = &row_;
  const LayerDistribution p = MakeLayerDistribution({beam});
  const Drafts& drafts = drafts_[parent.row];
  if (drafts.entries.empty()) return rule_.Draw(p, slots, {}, choices_.get());
  LayerDistribution q;
  q.rows.resize(1);
  q.rows[0].hash = beam.hash;
  q.rows[0].sparse = drafts.row;
  return rule_.Verify({&p, &q, drafts.entries, slots}, choices_.get());
}

std::vector<Beam> BeamRecursiveRejectionDecoder::DrawSlots(sampling::RowSource* rows,
                                                           RoundLedger* ledger) {
  std::vector<Beam> slots(picks().size());
  double overlap = 0;
  bool drafted = false;
  for (int r = 0; r < parents().size(); ++r) {
    const Beam& parent = parents()[r];
    const int picked = static_cast<int>(std::count(picks().begin(), picks().end(), r));
    row_.Read(rows, parent.row, state().RowPathOf(parent.path));
    const LayerResult result = DrawTokens(parent, picked);
    ledger->AddMargin(result.min_margin);
    overlap += result.overlap * picked / static_cast<double>(picks().size());
    drafted = drafted || !drafts_[parent.row].entries.empty();
    auto output = result.outputs.begin();
    for (int w = 0; w < picks().size(); ++w) {
      if (picks()[w] != r) continue;
      const TokenId token = (output++)->entry.token;
      slots[w] = ledger->Extend(&mutable_state()->paths(), parent, token,
                                parent.log_score + row_.Find(token).score_log_prob);
    }
  }
  if (drafted) ledger->AddOverlap(overlap);
  return slots;
}

}  // namespace

absl::Status CheckBeamRecursiveRejectionForest(const DraftForest& forest) {
  return CheckSentDraws(forest, DrawKind::kDistinctChildren);
}

std::unique_ptr<BeamDecoder> MakeBeamRecursiveRejectionDecoder(
    const DecodingParams& params, std::shared_ptr<ChoiceSource> choices) {
  return std::make_unique<BeamRecursiveRejectionDecoder>(params, std::move(choices));
}

std::unique_ptr<BeamDecoder> MakeBeamRecursiveRejectionDecoder(const DecodingParams& params) {
  return MakeBeamRecursiveRejectionDecoder(params, std::make_shared<SeededChoices>(params.seed));
}

}  // namespace coppice::decoding
