#include <algorithm>
#include <functional>

#include "base/check.h"
#include "decoding/seeded/hierarchical_gumbel.h"
#include "decoding/seeded/search.h"
#include "decoding/sequence/tree_drafter.h"
#include "sampling/deterministic_math.h"
#include "sampling/rng.h"

namespace coppice::decoding {
namespace {

constexpr double kKeyDistanceCost = 2;     // cost of a nat below the W-th key, in nats of the bound
constexpr double kShareThatMatters = 0.3;  // rough share of the beams: docs/decisions.md

// Draft of 5.9 (by draft score) and of 5.8 (by draft key). Look-ahead (5.8 only): the bound M_b on
// a beam's children is known before its row. A beam with a low bound need not be a node, because
// the certificate does not need its row.
class SearchDrafter : public TreeDrafter {
 public:
  SearchDrafter(const DecodingParams& params, const DraftState& state, int width, bool look_ahead)
      : TreeDrafter(params, state, width),
        noisy_(params.kind == sampling::DecodingKind::kBeamSamplingWithoutReplacement),
        look_ahead_(look_ahead && noisy_),
        known_roots_(state.known_roots),
        known_children_(state.known_children) {}

  void Grow(absl::Span<const sampling::Distribution> rows) override;

 private:
  std::vector<double> Keys(const Node& node, const sampling::Distribution& row) const;
  // No child of the node has a larger key.
  double KeyBound(const Node& node) const {
    return noisy_ ? BeamKey(params().seed, node.hash, node.score) : node.score;
  }
  bool IsKnown(int root) const {
    return std::binary_search(known_roots_.begin(), known_roots_.end(), root);
  }
  std::vector<Child> KnownChildren();
  void RankByBounds(std::vector<Child>* children) const;

  bool noisy_;
  bool look_ahead_;
  std::vector<int32_t> known_roots_;  // known roots of the first level; empty below it
  std::vector<DraftState::KnownChild> known_children_;
};

std::vector<double> SearchDrafter::Keys(const Node& node, const sampling::Distribution& row) const {
  if (noisy_) {
    return ChildKeys(params().seed, node.hash, node.score, KeyBound(node), row.tokens,
                     row.log_probs, row.size());
  }
  std::vector<double> keys = row.log_probs;
  for (double& key : keys) key += node.score;
  return keys;
}

void SearchDrafter::Grow(absl::Span<const sampling::Distribution> rows) {
  COPPICE_CHECK(rows.size() == level().size());
  std::vector<Child> children = KnownChildren();
  const double least = children.size() < static_cast<size_t>(params().beam_width)
                           ? sampling::kLogZero
                           : -children.back().cost;
  for (size_t n = 0; n < rows.size(); ++n) {
    const bool decided = IsKnown(static_cast<int>(n)) || KeyBound(level()[n]) < least;
    if (rows[n].size() == 0 || decided) continue;
    const int node = static_cast<int>(n);
    const std::vector<double> keys = Keys(level()[n], rows[n]);
    for (size_t i = 0; i < keys.size(); ++i) {
      if (Ends(node, rows[n].tokens[i])) continue;
      children.push_back(
          {-keys[i], node, rows[n].tokens[i], level()[n].score + rows[n].log_probs[i], 0});
    }
  }
  if (look_ahead_ && !children.empty()) RankByBounds(&children);
  AppendLayer(children);
  known_roots_.clear();
  known_children_.clear();
}

// The target has given the children of these roots that can be beams of the next layer, best first.
// If they are W, no child of another root with a smaller key can be one.
std::vector<SearchDrafter::Child> SearchDrafter::KnownChildren() {
  std::vector<Child> children;
  for (const DraftState::KnownChild& known : known_children_)
    children.push_back({-known.key, known.root, known.token, known.score, 0});
  return children;
}

// Cost = kKeyDistanceCost times the distance of the key below the W-th key, plus the distance of
// the bound below that of the k-th predicted beam. For equal costs, the larger key comes first.
void SearchDrafter::RankByBounds(std::vector<Child>* children) const {
  const size_t listed = std::min<size_t>(children->size(), 4 * width() + params().beam_width);
  std::partial_sort(children->begin(), children->begin() + listed, children->end(),
                    [](const Child& a, const Child& b) { return a.cost < b.cost; });
  children->resize(listed);
  const size_t beams = std::min<size_t>(listed, params().beam_width);
  std::vector<double> bound;
  for (const Child& child : *children) {
    const uint64_t hash = sampling::ExtendHash(level()[child.node].hash, child.token);
    bound.push_back(BeamKey(params().seed, hash, child.score));
  }
  std::vector<double> predicted(bound.begin(), bound.begin() + beams);
  const size_t kth =
      std::min(beams - 1, std::max<size_t>(1, static_cast<size_t>(kShareThatMatters * beams)));
  std::nth_element(predicted.begin(), predicted.begin() + kth, predicted.end(), std::greater<>());
  const double last_key = (*children)[beams - 1].cost;
  for (size_t c = 0; c < listed; ++c) {
    double& cost = (*children)[c].cost;
    cost = kKeyDistanceCost * std::max(0.0, cost - last_key) +
           std::max(0.0, predicted[kth] - bound[c]);
  }
}

}  // namespace

std::unique_ptr<Drafter> MakeSearchDrafter(const DecodingParams& params, const DraftState& state,
                                           int width, bool look_ahead) {
  return std::make_unique<SearchDrafter>(params, state, width, look_ahead);
}

}  // namespace coppice::decoding
