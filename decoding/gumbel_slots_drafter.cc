#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/rng.h"
#include "decoding/gumbel_slots.h"
#include "decoding/joint_law.h"
#include "decoding/row_kernels.h"
#include "decoding/tree_drafter.h"

namespace coppice {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kHedgeCost = 1;  // what the children of a hedge pay of its own gap

// The draft rule of 5.6: the target's keys with the draft's law Q and the same noise; an entry
// costs its gap to what its slot takes. Q is taken over the beams predicted to be current, which
// says what the slots take if the draft is right, and over all nodes of the level, which hedges.
class GumbelSlotsDrafter : public TreeDrafter {
 public:
  GumbelSlotsDrafter(const DecodingParams& params, const DraftState& state, int width)
      : TreeDrafter(params, state, width),
        law_(params.warp),
        multiplicity_(state.root_multiplicity.begin(), state.root_multiplicity.end()),
        slots_(params.refill || state.slot_root.empty()
                   ? params.beam_width
                   : static_cast<int>(state.slot_root.size())) {}

  void Grow(absl::Span<const Distribution> rows) override;

 private:
  struct Candidate {
    double key;
    int node;
    TokenId token;
  };

  bool WithReplacement() const { return params().kind == DecodingKind::kBeamSampling; }
  std::vector<Candidate> Keys(const LayerLaw& q, absl::Span<const int> nodes, int slot) const;
  std::vector<Candidate> Taken(std::vector<Candidate>* candidates) const;
  std::vector<Candidate> RankEntries(absl::Span<const Distribution> rows,
                                     absl::Span<const int> nodes);
  void Predict(absl::Span<const Candidate> taken, absl::Span<const Child> layer);

  JointLaw law_;
  std::vector<int> multiplicity_;  // [nodes of the level] how often a predicted beam counts, else 0
  int slots_;                      // of the next layer, with replacement
  std::vector<std::vector<double>> costs_;  // [nodes][support] least over slots and laws
};

// log Q + G(TOKEN, slot) of every entry, canonical order. q.rows[k] is that of nodes[k].
std::vector<GumbelSlotsDrafter::Candidate> GumbelSlotsDrafter::Keys(const LayerLaw& q,
                                                                    absl::Span<const int> nodes,
                                                                    int slot) const {
  std::vector<Candidate> candidates;
  std::vector<double> noise;
  for (size_t k = 0; k < nodes.size(); ++k) {
    const WeightedRow& row = q.rows[k];
    if (row.sparse == nullptr) continue;
    noise.resize(row.sparse->size());
    GumbelMany({params().seed, Domain::kToken, row.hash, static_cast<uint32_t>(slot)},
               row.sparse->tokens, noise.data());
    for (size_t i = 0; i < noise.size(); ++i) {
      candidates.push_back(
          {row.log_weight + row.sparse->log_probs[i] + noise[i], nodes[k], row.sparse->tokens[i]});
    }
  }
  return candidates;
}

// What one slot takes: the best entry or, without replacement, the W best that do not end and the
// ends among the W best.
std::vector<GumbelSlotsDrafter::Candidate> GumbelSlotsDrafter::Taken(
    std::vector<Candidate>* candidates) const {
  const auto before = [](const Candidate& a, const Candidate& b) { return a.key > b.key; };
  if (WithReplacement()) {
    return {*std::min_element(candidates->begin(), candidates->end(), before)};
  }
  const size_t width = static_cast<size_t>(params().beam_width);
  std::vector<Candidate> taken;
  size_t live = 0;
  std::stable_sort(candidates->begin(), candidates->end(), before);
  for (size_t rank = 0; rank < candidates->size() && live < width; ++rank) {
    const Candidate& candidate = (*candidates)[rank];
    const bool ends = is_stop(candidate.token);
    if (ends && rank >= width) continue;
    taken.push_back(candidate);
    live += ends ? 0 : 1;
  }
  return taken;
}

// Lowers the costs by the gaps under the law over `nodes`; returns what the slots take. A law with
// hedges holds only if one of them is current, so all its entries pay for the likeliest.
std::vector<GumbelSlotsDrafter::Candidate> GumbelSlotsDrafter::RankEntries(
    absl::Span<const Distribution> rows, absl::Span<const int> nodes) {
  std::vector<LawBeam> beams;
  double least = kInfinity;  // cost of a hedge
  for (int n : nodes) {
    if (multiplicity_[n] == 0) least = std::min(least, level()[n].cost);
    beams.push_back(
        {level()[n].hash, level()[n].score, std::max(1, multiplicity_[n]), &rows[n], nullptr});
  }
  if (least == kInfinity) least = 0;
  const LayerLaw q = law_.Make(beams);
  std::vector<Candidate> taken;
  for (int slot = 0; slot < (WithReplacement() ? slots_ : 1); ++slot) {
    std::vector<Candidate> candidates = Keys(q, nodes, slot);
    const std::vector<Candidate> winners = Taken(&candidates);
    for (const Candidate& candidate : candidates) {
      double& cost = costs_[candidate.node][FindToken(rows[candidate.node], candidate.token)];
      const double penalty = kHedgeCost * std::max(least, level()[candidate.node].cost);
      cost = std::min(cost, winners.back().key - candidate.key + penalty);
    }
    taken.insert(taken.end(), winners.begin(), winners.end());
  }
  return taken;
}

// The beams of the next level: nodes that hold a live output.
void GumbelSlotsDrafter::Predict(absl::Span<const Candidate> taken, absl::Span<const Child> layer) {
  multiplicity_.assign(layer.size(), 0);
  int live = 0;
  for (const Candidate& winner : taken) {
    if (is_stop(winner.token)) continue;
    ++live;
    const auto found = std::find_if(layer.begin(), layer.end(), [&](const Child& child) {
      return child.node == winner.node && child.token == winner.token;
    });
    if (found == layer.end()) continue;
    int& multiplicity = multiplicity_[found - layer.begin()];
    multiplicity = params().set_semantics ? 1 : multiplicity + 1;
  }
  if (!params().refill) slots_ = live;
}

void GumbelSlotsDrafter::Grow(absl::Span<const Distribution> rows) {
  COPPICE_CHECK(rows.size() == level().size());
  costs_.clear();
  for (const Distribution& row : rows) costs_.emplace_back(row.size(), kInfinity);
  std::vector<int> all, predicted;
  for (size_t n = 0; n < rows.size(); ++n) {
    if (rows[n].size() == 0) continue;
    all.push_back(static_cast<int>(n));
    if (multiplicity_[n] > 0) predicted.push_back(static_cast<int>(n));
  }
  std::vector<Candidate> taken;
  if (!predicted.empty()) taken = RankEntries(rows, predicted);
  if (predicted.size() < all.size()) RankEntries(rows, all);

  std::vector<Child> children;
  for (int n : all) {
    for (size_t i = 0; i < rows[n].size(); ++i) {
      const double cost = costs_[n][i];
      if (cost == kInfinity || is_stop(rows[n].tokens[i])) continue;
      children.push_back({cost, n, rows[n].tokens[i], level()[n].score + rows[n].log_probs[i],
                          std::max(0.0, cost)});
    }
  }
  Predict(taken, AppendLayer(children));
}

}  // namespace

std::unique_ptr<Drafter> MakeGumbelSlotsDrafter(const DecodingParams& params,
                                                const DraftState& state, int width) {
  return std::make_unique<GumbelSlotsDrafter>(params, state, width);
}

}  // namespace coppice
