#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/deterministic_math.h"
#include "base/rng.h"
#include "decoding/pf_gumbel.h"
#include "decoding/row_kernels.h"
#include "decoding/tree_drafter.h"

namespace coppice {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kHedgeCost = 1;     // hc
constexpr size_t kNodesPerSlot = 4;  // "its 4 cheapest n"

// The draft rule of 5.7: replay the target's picks and draws with the draft's rows, and hedge
// around them by the gap to each winner.
class PfGumbelDrafter : public TreeDrafter {
 public:
  PfGumbelDrafter(const DecodingParams& params, const DraftState& state, int width)
      : TreeDrafter(params, state, width),
        predicted_(state.slot_root.begin(), state.slot_root.end()) {}

  void Grow(absl::Span<const Distribution> rows) override;

 private:
  struct Reach {  // a node that a slot may pick
    double cost;  // pc
    int node;
  };
  struct Prediction {
    int node;
    TokenId token;
  };

  std::vector<Reach> PickNodes(int slot) const;
  void DrawTokens(int slot, const Reach& reach, const Distribution& row, bool is_prediction);

  int depth_ = 0;
  std::vector<int>
      predicted_;  // [slots] node of the level that the slot is predicted to hold, or -1
  std::vector<std::vector<double>> costs_;  // [nodes][support] least cost over the slots
  std::vector<Prediction> predictions_;     // this level's, [slots]
  std::vector<double> noise_;
};

// The nodes that slot w may pick, cheapest first. Level 0: the exact pick alone. The first one is
// the prediction.
std::vector<PfGumbelDrafter::Reach> PfGumbelDrafter::PickNodes(int slot) const {
  if (depth_ == 0) return {{0.0, predicted_[slot]}};
  std::vector<int> multiplicity(level().size(), 0);
  bool any = false;
  for (int node : predicted_) {
    if (node < 0) continue;
    ++multiplicity[node];
    any = true;
  }
  std::vector<double> key(level().size());
  int best = -1;
  for (size_t n = 0; n < level().size(); ++n) {
    key[n] = level()[n].score + Log(std::max(1, multiplicity[n])) +
             Gumbel(params().seed, Domain::kParent, level()[n].hash, slot, 0);
    if ((multiplicity[n] > 0 || !any) && (best < 0 || key[n] > key[best]))
      best = static_cast<int>(n);
  }
  std::vector<Reach> reaches;
  for (size_t n = 0; n < level().size(); ++n) {
    const bool is_best = static_cast<int>(n) == best;
    reaches.push_back(
        {is_best ? -1.0 : std::max(0.0, key[best] - key[n]) + kHedgeCost * level()[n].cost,
         static_cast<int>(n)});
  }
  std::stable_sort(reaches.begin(), reaches.end(),
                   [](const Reach& a, const Reach& b) { return a.cost < b.cost; });
  if (reaches.size() > kNodesPerSlot) reaches.resize(kNodesPerSlot);
  reaches[0].cost = 0;
  return reaches;
}

void PfGumbelDrafter::DrawTokens(int slot, const Reach& reach, const Distribution& row,
                                 bool is_prediction) {
  noise_.resize(row.size());
  GumbelMany({params().seed, Domain::kToken, level()[reach.node].hash, static_cast<uint32_t>(slot)},
             row.tokens, noise_.data());
  size_t best = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    noise_[i] += row.log_probs[i];
    if (noise_[i] > noise_[best]) best = i;
  }
  std::vector<double>& costs = costs_[reach.node];
  for (size_t i = 0; i < row.size(); ++i)
    costs[i] = std::min(costs[i], reach.cost + (noise_[best] - noise_[i]));
  if (is_prediction) predictions_.push_back({reach.node, row.tokens[best]});
}

void PfGumbelDrafter::Grow(absl::Span<const Distribution> rows) {
  COPPICE_CHECK(rows.size() == level().size());
  costs_.clear();
  for (const Distribution& row : rows) costs_.emplace_back(row.size(), kInfinity);
  predictions_.clear();
  const int slots = level().empty() ? 0 : static_cast<int>(predicted_.size());
  for (int slot = 0; slot < slots; ++slot) {
    const std::vector<Reach> reaches = PickNodes(slot);
    for (size_t i = 0; i < reaches.size(); ++i) {
      if (rows[reaches[i].node].size() == 0) continue;
      DrawTokens(slot, reaches[i], rows[reaches[i].node], /*is_prediction=*/i == 0);
    }
  }
  std::vector<Child> children;
  for (size_t n = 0; n < level().size(); ++n) {
    for (size_t i = 0; i < rows[n].size(); ++i) {
      const double cost = costs_[n][i];
      if (cost == kInfinity || is_stop(rows[n].tokens[i])) continue;
      children.push_back({cost, static_cast<int>(n), rows[n].tokens[i],
                          level()[n].score + rows[n].log_probs[i], cost});
    }
  }
  const std::vector<Child> layer = AppendLayer(children);
  // The slots of the next level: a slot predicted to end is refilled, or gone.
  std::vector<int> next;
  for (const Prediction& prediction : predictions_) {
    if (is_stop(prediction.token)) continue;
    const auto found = std::find_if(layer.begin(), layer.end(), [&](const Child& child) {
      return child.node == prediction.node && child.token == prediction.token;
    });
    next.push_back(found == layer.end() ? -1 : static_cast<int>(found - layer.begin()));
  }
  if (params().refill) next.resize(params().beam_width, -1);
  predicted_ = std::move(next);
  ++depth_;
}

}  // namespace

std::unique_ptr<Drafter> MakePfGumbelDrafter(const DecodingParams& params, const DraftState& state,
                                             int width) {
  return std::make_unique<PfGumbelDrafter>(params, state, width);
}

}  // namespace coppice
