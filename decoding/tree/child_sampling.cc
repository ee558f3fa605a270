#include "decoding/tree/child_sampling.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "decoding/joint/draft_proposals.h"
#include "decoding/joint/layer_distribution.h"
#include "decoding/tree/greedy_multi_draft.h"

namespace coppice::decoding {
namespace {

LayerDistribution RowDistribution(const sampling::Distribution& row, uint64_t hash) {
  LayerDistribution distribution;
  distribution.rows.resize(1);
  distribution.rows[0].hash = hash;
  distribution.rows[0].sparse = &row;
  return distribution;
}

TokenId DrawOne(const sampling::Distribution& row, uint64_t hash, int slot, ChoiceSource* choices) {
  return choices
      ->Choose(sampling::Domain::kDraft, static_cast<uint32_t>(slot), RowDistribution(row, hash))
      .entry.token;
}

// The tokens of T, most likely first, then one token drawn from the rest.
std::vector<TokenId> DrawGreedy(const sampling::Distribution& q, uint64_t hash, int n,
                                ChoiceSource* choices) {
  GreedyProposal proposal = SplitProposal(q, n);
  std::vector<TokenId> drafts = std::move(proposal.top);
  if (proposal.rest.size() > 0) drafts.push_back(DrawOne(proposal.rest, hash, n - 1, choices));
  return drafts;
}

// x ~ q, then the most likely token, or one of the others if x is that token.
std::vector<TokenId> DrawSpecHub(const sampling::Distribution& q, uint64_t hash, int n,
                                 ChoiceSource* choices) {
  std::vector<TokenId> drafts = {DrawOne(q, hash, /*slot=*/0, choices)};
  const GreedyProposal proposal = SplitProposal(q, 2);
  if (n == 1) return drafts;
  if (drafts[0] != proposal.top[0]) {
    drafts.push_back(proposal.top[0]);
  } else if (proposal.rest.size() > 0) {
    drafts.push_back(DrawOne(proposal.rest, hash, /*slot=*/1, choices));
  }
  return drafts;
}

// True if the drafts are T and one more token, or all tokens of q.
bool IsGreedyDraw(const sampling::Distribution& q, const std::vector<TokenId>& drafts) {
  if (drafts.size() >= q.size()) return true;  // they are distinct, so they are all tokens of q
  const std::vector<TokenId> top = MostLikelyTokens(q, static_cast<int>(drafts.size()) - 1);
  return std::all_of(top.begin(), top.end(),
                     [&](TokenId token) { return FindDraft(drafts, token) >= 0; });
}

absl::Status CheckGreedyDraws(const DraftForest& forest) {
  const ProposalIndex proposals(forest);
  for (int layer = 0; layer < forest.depth(); ++layer) {
    for (int row = ParentRowsBegin(forest, layer); row < ParentRowsEnd(forest, layer); ++row) {
      const std::vector<TokenId> drafts = DraftsBelow(forest, row, layer);
      if (!drafts.empty() && !IsGreedyDraw(proposals.Find(row)->row, drafts)) {
        return absl::InvalidArgumentError(
            absl::StrCat("draft forest: draws: the children of node ", forest.PlaceOf(row).code(),
                         " are not the most likely tokens and one more"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<TokenId> DrawChildren(ChildSampling kind, const sampling::Distribution& q,
                                  uint64_t hash, int n, ChoiceSource* choices) {
  std::vector<TokenId> drafts;
  switch (kind) {
    case ChildSampling::kIid:
      for (int j = 0; j < n; ++j) drafts.push_back(DrawOne(q, hash, j, choices));
      return drafts;
    case ChildSampling::kWithoutReplacement:
      for (const Entry& entry : choices->ChooseDistinct(sampling::Domain::kDraft, /*slot=*/0,
                                                        RowDistribution(q, hash), n)) {
        drafts.push_back(entry.token);
      }
      return drafts;
    case ChildSampling::kMostLikely:
      return MostLikelyTokens(q, n);
    case ChildSampling::kGreedy:
      return DrawGreedy(q, hash, n, choices);
    case ChildSampling::kSpecHub:
      return DrawSpecHub(q, hash, n, choices);
  }
  return drafts;
}

std::vector<TokenId> DraftsBelow(const DraftForest& forest, int row, int layer) {
  std::vector<TokenId> drafts;
  if (layer + 1 >= static_cast<int>(forest.draws_begin.size())) return drafts;
  for (int i = forest.draws_begin[layer]; i < forest.draws_begin[layer + 1]; ++i) {
    const int32_t node = Index(forest.draws[i]);
    if (forest.RowOf(forest.parent[node]) == row) drafts.push_back(forest.token[node]);
  }
  return drafts;
}

absl::Status CheckChildren(ChildSampling kind, const DraftForest& forest) {
  switch (kind) {
    case ChildSampling::kMostLikely:  // draws would need proposals, which are not sent
      return forest.draws.empty() ? absl::OkStatus()
                                  : absl::InvalidArgumentError(absl::StrCat(
                                        "draft forest: draws[0]: node ", Index(forest.draws[0]),
                                        " is said to be drawn, want the tree alone"));
    case ChildSampling::kIid:
      return CheckSentDraws(forest, DrawKind::kIndependentChildren);
    case ChildSampling::kWithoutReplacement:
      return CheckSentDraws(forest, DrawKind::kDistinctChildren);
    case ChildSampling::kGreedy:
    case ChildSampling::kSpecHub:
      COPPICE_RETURN_IF_ERROR(CheckSentDraws(forest, DrawKind::kDistinctChildren));
      return CheckGreedyDraws(forest);
  }
  return absl::OkStatus();
}

}  // namespace coppice::decoding
