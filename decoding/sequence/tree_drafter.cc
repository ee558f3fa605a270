#include "decoding/sequence/tree_drafter.h"

#include <algorithm>
#include <numeric>

#include "sampling/rng.h"

namespace coppice::decoding {

TreeDrafter::TreeDrafter(const DecodingParams& params, const DraftState& state, int width)
    : params_(params),
      ends_(params),
      width_(width),
      forest_(DraftForest::Empty(static_cast<int>(state.root_hash.size()))) {
  for (size_t r = 0; r < state.root_hash.size(); ++r) {
    level_.push_back({state.root_hash[r], ends_.Root(state, r), state.root_score[r], 0});
    frontier_.push_back(RootId{static_cast<int32_t>(r)});
  }
}

std::vector<TreeDrafter::Child> TreeDrafter::AppendLayer(absl::Span<const Child> children) {
  std::vector<int> order(children.size());
  std::iota(order.begin(), order.end(), 0);
  const size_t kept = std::min(children.size(), static_cast<size_t>(width_));
  std::partial_sort(order.begin(), order.begin() + kept, order.end(), [&](int a, int b) {
    return children[a].cost != children[b].cost ? children[a].cost < children[b].cost : a < b;
  });
  std::vector<Child> best;
  for (size_t i = 0; i < kept; ++i) best.push_back(children[order[i]]);
  std::vector<Node> next;
  std::vector<TreePlace> next_frontier;
  if (!best.empty() && forest_.layer_begin.empty()) forest_.layer_begin.push_back(0);
  for (const Child& child : best) {
    const NodeId node = forest_.Add(frontier_[child.node], child.token);
    if (Ends(child.node, child.token)) continue;
    next_frontier.push_back(node);
    const Node& above = level_[child.node];
    next.push_back({sampling::ExtendHash(above.hash, child.token),
                    ends_.Next(above.format_state, child.token), child.score, child.penalty});
  }
  if (!best.empty()) forest_.layer_begin.push_back(forest_.size());
  level_ = std::move(next);
  frontier_ = std::move(next_frontier);
  return best;
}

}  // namespace coppice::decoding
