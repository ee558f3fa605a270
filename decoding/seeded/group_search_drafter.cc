#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/check.h"
#include "decoding/seeded/search.h"
#include "decoding/seeded/taken_tokens.h"
#include "decoding/sequence/tree_drafter.h"

namespace coppice::decoding {
namespace {

// Draft of 8.2: every group ranks the children of its nodes by the draft, less the diversity
// penalty for the beams that the groups before it are predicted to choose. A level has the best
// child of every group, then the second of every group, and so on, up to W_S nodes.
class GroupSearchDrafter : public TreeDrafter {
 public:
  GroupSearchDrafter(const DecodingParams& params, const DraftState& state, int width);

  void Grow(absl::Span<const sampling::Distribution> rows) override;

 private:
  struct Member {  // a node of the level that a beam of the group may be
    int node;      // index into level()
    double key;    // dls less what was taken for diversity, nats
  };
  struct Ranked {
    double key;
    int member;  // its parent among the members
    int node;
    TokenId token;
    double score;  // dls
  };
  using Group = std::vector<Member>;
  using Place = std::pair<int, TokenId>;  // a child of a node of the level

  std::vector<Ranked> Rank(const Group& group, absl::Span<const sampling::Distribution> rows,
                           const TakenTokens& taken, size_t beams) const;

  int layer_;         // the last one that was drafted
  size_t predicted_;  // the first members of each group are the beams that are predicted
  std::vector<Group> groups_;
};

GroupSearchDrafter::GroupSearchDrafter(const DecodingParams& params, const DraftState& state,
                                       int width)
    : TreeDrafter(params, state, width),
      layer_(static_cast<int>(state.layers_committed)),
      predicted_(params.beam_width),
      groups_(params.num_beam_groups) {
  for (const DraftState::GroupBeam& beam : state.group_beams)
    groups_[beam.group].push_back({beam.root, state.root_score[beam.root] - beam.penalty});
}

// At most W_S children of the group: the best of the predicted beams, which are the next predicted
// beams, then the others. Ties in the order of members and tokens, like those of beams.
std::vector<GroupSearchDrafter::Ranked> GroupSearchDrafter::Rank(
    const Group& group, absl::Span<const sampling::Distribution> rows, const TakenTokens& taken,
    size_t beams) const {
  std::vector<Ranked> ranked;
  for (size_t m = 0; m < group.size(); ++m) {
    const Member& member = group[m];
    const sampling::Distribution& row = rows[member.node];
    for (size_t i = 0; i < row.size(); ++i) {
      const TokenId token = row.tokens[i];
      if (Ends(member.node, token)) continue;
      const double key =
          member.key + row.log_probs[i] - params().diversity_penalty * taken.Count(token);
      const double score = level()[member.node].score + row.log_probs[i];
      ranked.push_back({key, static_cast<int>(m), member.node, token, score});
    }
  }
  const auto better = [](const Ranked& a, const Ranked& b) {
    if (a.key != b.key) return a.key > b.key;
    return a.member != b.member ? a.member < b.member : a.token < b.token;
  };
  const auto hedges = std::partition(ranked.begin(), ranked.end(), [this](const Ranked& child) {
    return child.member < static_cast<int>(predicted_);
  });
  const auto next = ranked.begin() + std::min<size_t>(beams, hedges - ranked.begin());
  std::partial_sort(ranked.begin(), next, hedges, better);
  const auto kept = ranked.begin() + std::min<size_t>(ranked.size(), width());
  if (next < kept) std::partial_sort(next, kept, ranked.end(), better);
  ranked.erase(kept, ranked.end());
  return ranked;
}

void GroupSearchDrafter::Grow(absl::Span<const sampling::Distribution> rows) {
  COPPICE_CHECK(rows.size() == level().size());
  const size_t beams = LayerWidth(params(), ++layer_) / groups_.size();
  std::vector<std::vector<Ranked>> ranked;  // [groups]
  TakenTokens taken;
  size_t deepest = 0;
  for (const Group& group : groups_) {
    ranked.push_back(Rank(group, rows, taken, beams));
    deepest = std::max(deepest, ranked.back().size());
    for (size_t i = 0; i < std::min(beams, ranked.back().size()); ++i)
      taken.Add(ranked.back()[i].token);
  }
  std::vector<Child> children;
  absl::flat_hash_map<Place, int> index;  // of a child in the next level
  for (size_t rank = 0; rank < deepest && children.size() < width(); ++rank) {
    for (const std::vector<Ranked>& of_group : ranked) {
      if (rank >= of_group.size() || children.size() == width()) continue;
      const Ranked& child = of_group[rank];
      const int next = static_cast<int>(children.size());
      if (index.try_emplace({child.node, child.token}, next).second)
        children.push_back({static_cast<double>(next), child.node, child.token, child.score, 0});
    }
  }
  AppendLayer(children);
  predicted_ = beams;
  for (size_t g = 0; g < groups_.size(); ++g) {
    groups_[g].clear();
    for (const Ranked& child : ranked[g]) {
      const auto found = index.find({child.node, child.token});
      if (found != index.end()) groups_[g].push_back({found->second, child.key});
    }
  }
}

}  // namespace

std::unique_ptr<Drafter> MakeGroupSearchDrafter(const DecodingParams& params,
                                                const DraftState& state, int width) {
  return std::make_unique<GroupSearchDrafter>(params, state, width);
}

}  // namespace coppice::decoding
