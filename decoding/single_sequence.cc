#include "decoding/single_sequence.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/deterministic_math.h"

namespace coppice {

SingleSequenceDecoder::SingleSequenceDecoder(const DecodingParams& params,
                                             std::shared_ptr<ChoiceSource> choices)
    : state_(params), choices_(std::move(choices)) {}

void SingleSequenceDecoder::StartFrom(absl::Span<const TokenId> tokens, double log_score) {
  COPPICE_CHECK(state_.layers() == 0);
  for (TokenId token : tokens) beam_.path = state_.paths().Extend(beam_.path, token);
  beam_.log_score = log_score;
  state_.StartFrom({{beam_.path, log_score, false}}, static_cast<int>(tokens.size()));
}

absl::Span<const PathId> SingleSequenceDecoder::roots() const {
  return finished() ? absl::Span<const PathId>() : absl::MakeConstSpan(&beam_.path, 1);
}

DraftState SingleSequenceDecoder::draft_state() const {
  DraftState state;
  state.root_hash = {state_.paths().hash(beam_.path)};
  state.root_score = {beam_.log_score};
  state.root_multiplicity = {1};
  state.layers_committed = static_cast<uint32_t>(state_.layers());
  return state;
}

Verdict SingleSequenceDecoder::Advance(const DraftForest& forest, RowSource* rows) {
  COPPICE_CHECK(!finished());
  RoundLedger ledger(forest, /*num_roots=*/1);
  choices_->BeginRound(static_cast<uint64_t>(state_.layers()));
  beam_.row = 0;
  beam_.parent_row = -1;
  Decide(forest, rows, &ledger);
  return std::move(ledger).Finish(finished() ? absl::Span<const Beam>()
                                             : absl::MakeConstSpan(&beam_, 1));
}

LayerLaw SingleSequenceDecoder::RowLaw(const WarpedRow& row, uint64_t hash) {
  LayerLaw law;
  law.rows.resize(1);
  law.rows[0].hash = hash;
  if (row.whole()) {
    law.rows[0].whole = &row;
  } else {
    law.rows[0].sparse = &row.sparse();
  }
  return law;
}

bool SingleSequenceDecoder::Emit(const WarpedRow& row, TokenId token, RoundLedger* ledger) {
  return Emit(token, row.Find(token).score_log_prob, ledger);
}

bool SingleSequenceDecoder::Emit(TokenId token, double score, RoundLedger* ledger) {
  beam_ = ledger->Extend(&state_.paths(), beam_, token, beam_.log_score + score);
  ledger->AddLayer();
  return state_.EndLayer({{beam_.path, beam_.log_score, state_.is_stop(token)}});
}

double RowOverlap(const LayerLaw& p, const Distribution& q) {
  double sum = 0;
  for (int i = 0; i < q.size(); ++i) {
    sum += std::min(Exp(LogMass(p, {0, q.tokens[i]})), Exp(q.log_probs[i]));
  }
  return sum;
}

}  // namespace coppice
