#include "decoding/path_decoder.h"

#include <utility>

#include "base/check.h"
#include "decoding/target_row.h"

namespace coppice {

DecodingParams LikelihoodParams(const DecodingParams& params) {
  DecodingParams out = params;
  if (params.warp.temperature <= 0) out.warp = Uncut(params.warp);
  return out;
}

std::vector<TokenId> DraftedPath(const DraftForest& forest, const DecodingParams& params,
                                 int longest) {
  std::vector<TokenId> path;
  for (int layer = 0; layer < forest.depth() && layer < longest; ++layer) {
    if (forest.layer_begin[layer] != layer || forest.layer_begin[layer + 1] != layer + 1) break;
    path.push_back(forest.token[layer]);
    if (IsStopId(params, path.back())) break;
  }
  return path;
}

PathDecoder::PathDecoder(const DecodingParams& params, std::shared_ptr<ChoiceSource> choices)
    : state_(params), choices_(std::move(choices)) {}

absl::Span<const PathId> PathDecoder::roots() const {
  return finished() ? absl::Span<const PathId>() : absl::MakeConstSpan(&beam_.path, 1);
}

DraftState PathDecoder::draft_state() const {
  DraftState state;
  state.root_hash = {state_.paths().hash(beam_.path)};
  state.root_score = {beam_.log_score};
  state.root_multiplicity = {1};
  state.layers_committed = static_cast<uint32_t>(state_.layers());
  return state;
}

bool PathDecoder::Commit(TokenId token, double score, RoundLedger* ledger) {
  beam_ = ledger->Extend(&state_.paths(), beam_, token, beam_.log_score + score);
  ledger->AddLayer();
  return state_.EndLayer({{beam_.path, beam_.log_score, state_.is_stop(token)}});
}

WarpedRow::Candidate PathDecoder::DrawFrom(const WarpedRow& row, RoundLedger* ledger) {
  if (params().warp.temperature <= 0) {
    return row.Find(row.whole() ? row.log_sum().argmax : row.sparse().tokens[0]);
  }
  LawBeam beam;
  beam.hash = state_.paths().hash(beam_.path);
  beam.warped = &row;
  const Draw draw = choices_->Choose(Domain::kDirect, /*slot=*/0, MakeLayerLaw({beam}));
  ledger->AddMargin(draw.margin);
  return row.Find(draw.entry.token);
}

Verdict PathDecoder::Advance(const DraftForest& forest, RowSource* rows) {
  COPPICE_CHECK(!finished());
  RoundLedger ledger(forest, /*num_roots=*/1);
  choices_->BeginRound(static_cast<uint64_t>(state_.layers()));
  beam_.row = 0;
  beam_.parent_row = -1;
  const std::vector<TokenId> path = DraftedPath(forest, params(), max_useful_depth());
  const Kept kept = Decide(forest, path, rows);
  bool goes_on = true;
  for (size_t i = 0; i < kept.scores.size(); ++i) {
    goes_on = Commit(path[i], kept.scores[i], &ledger);
  }
  if (goes_on) {
    const WarpedRow::Candidate extra = DrawFrom(*kept.next, &ledger);
    Commit(extra.token, extra.score_log_prob, &ledger);
  }
  return std::move(ledger).Finish(finished() ? absl::Span<const Beam>()
                                             : absl::MakeConstSpan(&beam_, 1));
}

}  // namespace coppice
