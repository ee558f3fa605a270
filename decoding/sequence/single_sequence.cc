#include "decoding/sequence/single_sequence.h"

#include <algorithm>
#include <utility>

#include "sampling/deterministic_math.h"

namespace coppice::decoding {

SingleSequenceDecoder::SingleSequenceDecoder(const DecodingParams& params,
                                             std::shared_ptr<ChoiceSource> choices)
    : SequenceDecoder(params), choices_(std::move(choices)) {}

void SingleSequenceDecoder::StartFrom(absl::Span<const TokenId> tokens, double log_score) {
  for (TokenId token : tokens) beam_.path = mutable_state()->paths().Extend(beam_.path, token);
  beam_.log_score = log_score;
  ContinueFrom({{beam_.path, log_score, false}}, static_cast<int>(tokens.size()));
}

void SingleSequenceDecoder::Decide(const DraftForest& forest, sampling::RowSource* rows,
                                   RoundLedger* ledger) {
  choices_->BeginRound(static_cast<uint64_t>(state().layers()));
  beam_.BecomeRoot(0);
  DecideTokens(forest, rows, ledger);
}

LayerDistribution SingleSequenceDecoder::RowDistribution(const sampling::ProcessedRow& row,
                                                         uint64_t hash) {
  LayerDistribution distribution;
  distribution.rows.resize(1);
  distribution.rows[0].hash = hash;
  if (row.whole()) {
    distribution.rows[0].whole = &row;
  } else {
    distribution.rows[0].sparse = &row.sparse();
  }
  return distribution;
}

bool SingleSequenceDecoder::Emit(const sampling::ProcessedRow& row, TokenId token,
                                 RoundLedger* ledger) {
  return Emit(token, row.Find(token).score_log_prob, ledger);
}

bool SingleSequenceDecoder::Emit(TokenId token, double score, RoundLedger* ledger) {
  const bool ends = state().Ends(beam_.path, token);
  beam_ = ledger->Extend(&mutable_state()->paths(), beam_, token, beam_.log_score + score);
  ledger->AddLayer();
  return mutable_state()->EndLayer({{beam_.path, beam_.log_score, ends}});
}

double RowOverlap(const LayerDistribution& p, const sampling::Distribution& q) {
  double sum = 0;
  for (int i = 0; i < q.size(); ++i) {
    sum += std::min(sampling::Exp(LogMass(p, {0, q.tokens[i]})), sampling::Exp(q.log_probs[i]));
  }
  return sum;
}

}  // namespace coppice::decoding
