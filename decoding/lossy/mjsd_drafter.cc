#include <algorithm>
#include <utility>

#include "base/check.h"
#include "decoding/lossy/mjsd.h"
#include "decoding/sequence/hypothesis_pool.h"
#include "decoding/sequence/tree_drafter.h"
#include "sampling/deterministic_math.h"

namespace coppice::decoding {
namespace {

// The search scores only drafted tokens, so the roots start with score 0.
DraftState Unscored(DraftState state) {
  state.root_score.assign(state.root_score.size(), 0.0);
  return state;
}

class MjsdDrafter : public TreeDrafter {
 public:
  MjsdDrafter(const DecodingParams& params, const DraftState& state)
      : TreeDrafter(params, Unscored(state), params.draft_beams) {}

  void Grow(absl::Span<const sampling::Distribution> rows) override;
  DraftForest Sent() const override;

 private:
  // A path that ended with the token `stop` after `place`.
  struct Ended {
    double score = sampling::kLogZero;  // ls / len^alpha of the drafted tokens
    TreePlace place;
    TokenId stop = -1;
  };
  double Score(double log_score, int length) const {
    return NormalisedScore(log_score, length, params().length_penalty);
  }
  void Append(TreePlace row_of, TokenId token, DraftForest* path) const;

  int length_ = 0;  // tokens of every live path
  Ended best_ended_;
  std::vector<sampling::Distribution> rows_;  // of the roots, then of every continued node
};

void MjsdDrafter::Grow(absl::Span<const sampling::Distribution> rows) {
  COPPICE_CHECK(rows.size() == level().size());
  rows_.insert(rows_.end(), rows.begin(), rows.end());
  std::vector<Child> live, ended;
  std::vector<double> costs;
  for (size_t n = 0; n < rows.size(); ++n) {
    for (size_t i = 0; i < rows[n].size(); ++i) {
      const TokenId token = rows[n].tokens[i];
      const double score = level()[n].score + rows[n].log_probs[i];
      costs.push_back(-score);
      const int node = static_cast<int>(n);
      (Ends(node, token) ? ended : live).push_back({-score, node, token, score, 0});
    }
  }
  ++length_;
  const size_t beams = static_cast<size_t>(width());
  // an end counts only if it is among the best W (docs/algorithms.md 8)
  if (!ended.empty() && costs.size() > beams) {
    std::nth_element(costs.begin(), costs.begin() + (beams - 1), costs.end());
    const double worst = costs[beams - 1];
    ended.erase(std::remove_if(ended.begin(), ended.end(),
                               [worst](const Child& child) { return child.cost > worst; }),
                ended.end());
  }
  for (const Child& child : ended) {
    const double score = Score(child.score, length_);
    if (score > best_ended_.score) best_ended_ = {score, frontier()[child.node], child.token};
  }
  AppendLayer(live);
}

// Adds a node at the end of a path. Its proposal is the row after `row_of`.
void MjsdDrafter::Append(TreePlace row_of, TokenId token, DraftForest* path) const {
  const TreePlace parent = path->size() > 0 ? TreePlace(NodeId{path->size() - 1}) : row_of;
  path->Add(parent, token);
  path->layer_begin.push_back(path->size());
  path->proposals.push_back({parent, /*log_weight=*/0, rows_[forest().RowOf(row_of)]});
}

DraftForest MjsdDrafter::Sent() const {
  const bool lives = length_ > 0 && !level().empty();  // the level is ordered best first
  const bool ends = !lives || best_ended_.score > Score(level()[0].score, length_);
  std::vector<int32_t> nodes;  // from the last node to the first
  for (TreePlace place = ends ? best_ended_.place : frontier()[0]; !place.is_root();
       place = forest().parent[nodes.back()]) {
    nodes.push_back(Index(place.node()));
  }
  DraftForest path = DraftForest::Empty(forest().num_roots);
  path.layer_begin = {0};
  for (size_t i = nodes.size(); i-- > 0;) {
    Append(forest().parent[nodes[i]], forest().token[nodes[i]], &path);
  }
  if (ends && best_ended_.stop >= 0) Append(best_ended_.place, best_ended_.stop, &path);
  return path;
}

}  // namespace

std::unique_ptr<Drafter> MakeMjsdDrafter(const DecodingParams& params, const DraftState& state,
                                         int /*width*/) {
  return std::make_unique<MjsdDrafter>(params, state);
}

}  // namespace coppice::decoding
