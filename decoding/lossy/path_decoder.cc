#include "decoding/lossy/path_decoder.h"

#include <algorithm>

#include "sampling/target_row.h"

namespace coppice::decoding {

DecodingParams LikelihoodParams(const DecodingParams& params) {
  DecodingParams out = params;
  if (params.sampling.temperature <= 0) out.sampling = sampling::Uncut(params.sampling);
  return out;
}

// The tokens of the forest's path from root 0, at most those that are useful. It ends at a layer
// with more than one node, or with the sequence. Node i of the forest is token i.
std::vector<TokenId> PathDecoder::DraftedPath(const DraftForest& forest) const {
  const int longest = max_useful_depth();
  std::vector<TokenId> path;
  for (int layer = 0; layer < forest.depth() && layer < longest; ++layer) {
    if (forest.layer_begin[layer] != layer || forest.layer_begin[layer + 1] != layer + 1) break;
    path.push_back(forest.token[layer]);
    if (Ends(path)) break;
  }
  return path;
}

TokenId PathDecoder::DrawFrom(const sampling::ProcessedRow& row, RoundLedger* ledger) {
  if (params().sampling.temperature <= 0) {
    if (row.whole()) return row.log_sum().argmax;
    // Log-probabilities of the few allowed tokens.
    const std::vector<double>& log_probs = row.sparse().log_probs;
    return row.sparse()
        .tokens[std::max_element(log_probs.begin(), log_probs.end()) - log_probs.begin()];
  }
  const LayerDistribution p = RowDistribution(row, state().paths().hash(beam().path));
  const Draw draw = choices()->Choose(sampling::Domain::kDirect, /*slot=*/0, p);
  ledger->AddMargin(draw.margin);
  return draw.entry.token;
}

void PathDecoder::DecideTokens(const DraftForest& forest, sampling::RowSource* rows,
                               RoundLedger* ledger) {
  const std::vector<TokenId> path = DraftedPath(forest);
  const Kept kept = Keep(forest, path, rows);
  for (size_t i = 0; i < kept.scores.size(); ++i) Emit(path[i], kept.scores[i], ledger);
  if (!finished()) Emit(*kept.next, DrawFrom(*kept.next, ledger), ledger);
}

}  // namespace coppice::decoding
