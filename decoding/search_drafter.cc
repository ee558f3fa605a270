#include <algorithm>
#include <functional>

#include "base/check.h"
#include "decoding/hierarchical_gumbel.h"
#include "decoding/search.h"
#include "decoding/tree_drafter.h"

namespace coppice {
namespace {

// Draft of 5.9 (by draft score) and of 5.8 (by draft key). A node below the W-th of its level is a
// hedge; its children pay hedge_cost times its distance.
class SearchDrafter : public TreeDrafter {
 public:
  SearchDrafter(const DecodingParams& params, const DraftState& state, int width, double hedge_cost)
      : TreeDrafter(params, state, width),
        noisy_(params.kind == DecodingKind::kBeamSamplingWithoutReplacement),
        hedge_cost_(hedge_cost) {}

  void Grow(absl::Span<const Distribution> rows) override;

 private:
  std::vector<double> Keys(const Node& node, const Distribution& row) const;

  bool noisy_;
  double hedge_cost_;
};

std::vector<double> SearchDrafter::Keys(const Node& node, const Distribution& row) const {
  if (noisy_) {
    return ChildKeys(params().seed, node.hash, node.score,
                     BeamKey(params().seed, node.hash, node.score), row.tokens, row.log_probs,
                     row.size());
  }
  std::vector<double> keys = row.log_probs;
  for (double& key : keys) key += node.score;
  return keys;
}

void SearchDrafter::Grow(absl::Span<const Distribution> rows) {
  COPPICE_CHECK(rows.size() == level().size());
  std::vector<Child> children;
  for (size_t n = 0; n < rows.size(); ++n) {
    if (rows[n].size() == 0) continue;
    const std::vector<double> keys = Keys(level()[n], rows[n]);
    for (size_t i = 0; i < keys.size(); ++i) {
      if (is_stop(rows[n].tokens[i])) continue;
      children.push_back({hedge_cost_ * level()[n].cost - keys[i], static_cast<int>(n),
                          rows[n].tokens[i], level()[n].score + rows[n].log_probs[i], 0});
    }
  }
  const size_t beams = params().beam_width;
  if (children.size() > beams) {
    std::vector<double> costs;
    for (const Child& child : children) costs.push_back(child.cost);
    std::nth_element(costs.begin(), costs.begin() + (beams - 1), costs.end());
    for (Child& child : children) child.penalty = std::max(0.0, child.cost - costs[beams - 1]);
  }
  AppendLayer(children);
}

}  // namespace

std::unique_ptr<Drafter> MakeSearchDrafter(const DecodingParams& params, const DraftState& state,
                                           int width, double hedge_cost) {
  return std::make_unique<SearchDrafter>(params, state, width, hedge_cost);
}

}  // namespace coppice
