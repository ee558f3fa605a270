#include "decoding/tree/block_verification.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "decoding/joint/draft_proposals.h"
#include "decoding/joint/residual.h"
#include "sampling/deterministic_math.h"

namespace coppice::decoding {
namespace {

LayerDistribution Scaled(const LayerDistribution& row, double factor) {
  LayerDistribution distribution = row;
  if (factor != 1) distribution.rows[0].log_weight += sampling::Log(factor);
  return distribution;
}

LayerDistribution ProposalDistribution(const sampling::Distribution& proposal) {
  LayerDistribution distribution;
  distribution.rows.resize(1);
  distribution.rows[0].sparse = &proposal;
  return distribution;
}

// sum of max(0, kept p - q).
double Excess(const LayerDistribution& row, const sampling::Distribution& proposal, double kept) {
  const LayerDistribution p = Scaled(row, kept);
  const LayerDistribution q = ProposalDistribution(proposal);
  return Residual(p, q).Excess();
}

}  // namespace

BlockChances FindBlockChances(absl::Span<const LayerDistribution> rows,
                              absl::Span<const sampling::Distribution* const> proposals,
                              absl::Span<const TokenId> draft) {
  const int gamma = static_cast<int>(draft.size());
  BlockChances chances;
  chances.kept = {1.0};
  for (int i = 1; i <= gamma; ++i) {
    const sampling::Distribution& q = *proposals[i - 1];
    const double p_x = sampling::Exp(LogMass(rows[i - 1], {0, draft[i - 1]}));
    const double q_x = sampling::Exp(q.log_probs[FindToken(q, draft[i - 1])]);
    chances.kept.push_back(std::min(1.0, chances.kept.back() * p_x / q_x));
  }
  for (int i = 1; i < gamma; ++i) {
    const double excess = Excess(rows[i], *proposals[i], chances.kept[i]);
    const double total = excess + (1 - chances.kept[i]);
    chances.passes.push_back(total > 0 ? excess / total : 1.0);
  }
  if (gamma > 0) chances.passes.push_back(chances.kept[gamma]);
  return chances;
}

LayerDistribution BlockResidual(const LayerDistribution& row,
                                const sampling::Distribution& proposal, double kept) {
  if (kept <= 0) return row;
  const LayerDistribution p = Scaled(row, kept);
  const LayerDistribution q = ProposalDistribution(proposal);
  Residual a(p, q);
  a.Reject();
  return a.Normalised();
}

absl::Status CheckPathForest(const DraftForest& forest) {
  if (absl::Status status = CheckSentDraws(forest, DrawKind::kIndependentChildren); !status.ok()) {
    return status;
  }
  for (int layer = 0; layer < forest.depth(); ++layer) {
    const int draws = forest.draws_begin[layer + 1] - forest.draws_begin[layer];
    if (draws == 1) continue;
    return absl::InvalidArgumentError(absl::StrCat("draft forest: draws: ", draws, " beside node ",
                                                   forest.layer_begin[layer], ", a path has one"));
  }
  return absl::OkStatus();
}

void BlockDecoder::DecideTokens(const DraftForest& forest, sampling::RowSource* rows,
                                RoundLedger* ledger) {
  // The drafted path: node i of the forest is x_{i+1}. A stop ends it.
  std::vector<TokenId> draft;
  std::vector<const sampling::Distribution*> proposals;
  std::vector<uint64_t> hashes = {state().paths().hash(beam().path)};
  const bool fits = CheckPathForest(forest).ok();
  const ProposalIndex index(forest);
  const int longest = fits ? std::min(forest.depth(), max_useful_depth()) : 0;
  bool ended = false;
  while (!ended && draft.size() < longest) {
    proposals.push_back(&index.Find(static_cast<int>(draft.size()))->row);
    draft.push_back(forest.token[draft.size()]);
    hashes.push_back(sampling::ExtendHash(hashes.back(), draft.back()));
    ended = state().Ends(beam().path, draft);
  }
  const int gamma = static_cast<int>(draft.size());

  std::vector<std::unique_ptr<sampling::ProcessedRow>> path_rows;
  std::vector<LayerDistribution> distributions;
  for (int i = 0; i < gamma + (ended ? 0 : 1); ++i) {
    path_rows.push_back(std::make_unique<sampling::ProcessedRow>(params()));
    path_rows[i]->Read(rows, i,
                       state().RowPathOf(beam().path, absl::MakeConstSpan(draft).subspan(0, i)));
    distributions.push_back(RowDistribution(*path_rows[i], hashes[i]));
  }

  const BlockChances chances = FindBlockChances(distributions, proposals, draft);
  int tau = 0;
  for (int i = 1; i <= gamma; ++i) {
    const Coin coin = choices()->Accept(hashes[i - 1], /*slot=*/0, chances.passes[i - 1], 1.0);
    ledger->AddMargin(coin.margin);
    if (coin.accepted) tau = i;
  }
  for (int i = 0; i <= std::min(tau, gamma - 1); ++i)
    ledger->AddOverlap(RowOverlap(distributions[i], *proposals[i]));
  for (int i = 0; i < tau; ++i) {
    if (!Emit(*path_rows[i], draft[i], ledger)) return;
  }
  const Draw extra =
      tau == gamma ? choices()->Choose(sampling::Domain::kDirect, /*slot=*/0, distributions[tau])
                   : choices()->Choose(
                         sampling::Domain::kResidual, /*slot=*/0,
                         BlockResidual(distributions[tau], *proposals[tau], chances.kept[tau]));
  ledger->AddMargin(extra.margin);
  Emit(*path_rows[tau], extra.entry.token, ledger);
}

std::unique_ptr<BeamDecoder> MakeBlockDecoder(const DecodingParams& params) {
  return std::make_unique<BlockDecoder>(params, std::make_shared<SeededChoices>(params.seed));
}

}  // namespace coppice::decoding
