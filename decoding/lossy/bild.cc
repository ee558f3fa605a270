#include "decoding/lossy/bild.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "decoding/lossy/path_decoder.h"
#include "decoding/sequence/tree_drafter.h"
#include "sampling/deterministic_math.h"
#include "sampling/target_row.h"

namespace coppice::decoding {
namespace {

class BildDecoder : public PathDecoder {
 public:
  BildDecoder(const DecodingParams& params, std::shared_ptr<ChoiceSource> choices)
      : PathDecoder(params, std::move(choices)), row_(LikelihoodParams(params)) {}

 private:
  Kept Keep(const DraftForest& forest, absl::Span<const TokenId> path,
            sampling::RowSource* rows) override;

  sampling::ProcessedRow row_;
};

PathDecoder::Kept BildDecoder::Keep(const DraftForest&, absl::Span<const TokenId> path,
                                    sampling::RowSource* rows) {
  Kept kept;
  kept.next = &row_;
  row_.Read(rows, 0, PathAfter({}));
  for (TokenId token : path) {
    if (-row_.LogProb(token) > params().rollback_threshold) break;
    kept.scores.push_back(row_.Find(token).score_log_prob);
    const int row = static_cast<int>(kept.scores.size());
    if (Ends(path.subspan(0, row))) break;
    row_.Read(rows, row, PathAfter(path.subspan(0, row)));
  }
  return kept;
}

class BildDrafter : public TreeDrafter {
 public:
  BildDrafter(const DecodingParams& params, const DraftState& state,
              std::shared_ptr<ChoiceSource> choices)
      : TreeDrafter(params, state, /*width=*/1), choices_(std::move(choices)) {
    choices_->BeginRound(state.layers_committed);
  }

  void Grow(absl::Span<const sampling::Distribution> rows) override;

 private:
  std::shared_ptr<ChoiceSource> choices_;
};

void BildDrafter::Grow(absl::Span<const sampling::Distribution> rows) {
  COPPICE_CHECK(rows.size() == level().size());
  std::vector<Child> next;  // at most one
  if (!rows.empty() && rows[0].size() > 0) {
    const sampling::Distribution& q = rows[0];
    size_t at = std::max_element(q.log_probs.begin(), q.log_probs.end()) - q.log_probs.begin();
    if (q.log_probs[at] >= sampling::Log(params().fallback_threshold)) {
      if (params().sampling.temperature > 0) {
        WeightedBeam beam;
        beam.hash = level()[0].hash;
        beam.sparse = &q;
        const Draw draw =
            choices_->Choose(sampling::Domain::kDraft, /*slot=*/0, MakeLayerDistribution({beam}));
        at = FindToken(q, draw.entry.token);
      }
      next.push_back({/*cost=*/0, /*node=*/0, q.tokens[at], level()[0].score + q.log_probs[at], 0});
    }
  }
  AppendLayer(next);
}

}  // namespace

std::unique_ptr<BeamDecoder> MakeBildDecoder(const DecodingParams& params,
                                             std::shared_ptr<ChoiceSource> choices) {
  return std::make_unique<BildDecoder>(params, std::move(choices));
}

std::unique_ptr<BeamDecoder> MakeBildDecoder(const DecodingParams& params) {
  return MakeBildDecoder(params, std::make_shared<SeededChoices>(params.seed));
}

std::unique_ptr<Drafter> MakeBildDrafter(const DecodingParams& params, const DraftState& state,
                                         std::shared_ptr<ChoiceSource> choices) {
  return std::make_unique<BildDrafter>(params, state, std::move(choices));
}

std::unique_ptr<Drafter> MakeBildDrafter(const DecodingParams& params, const DraftState& state,
                                         int /*width*/) {
  return MakeBildDrafter(params, state, std::make_shared<SeededChoices>(params.seed));
}

}  // namespace coppice::decoding
