#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/rng.h"
#include "decoding/gumbel_kernels.h"
#include "decoding/gumbel_slots.h"
#include "decoding/joint_law.h"
#include "decoding/tree_drafter.h"
#include "decoding/warp.h"

namespace coppice {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kHedgeCost = 1;  // what the children of a hedge pay of its own gap
constexpr double kCutCost = 0.1;  // nats; of an entry that the draft's joint cut leaves out

WarpParams WithoutCuts(WarpParams warp) {
  warp.top_k = 0;
  warp.top_p = 1;
  warp.min_p = 0;
  return warp;
}

// The draft rule of 5.6: the target's keys with the draft's law Q and the same noise; an entry
// costs its gap to what its slot takes. Q is taken over the beams predicted to be current, which
// says what the slots take if the draft is right, and over all nodes of the level, which hedges.
// The target's joint cut may keep what the draft's leaves out: such an entry also pays for its
// distance to the cut.
class GumbelSlotsDrafter : public TreeDrafter {
 public:
  GumbelSlotsDrafter(const DecodingParams& params, const DraftState& state, int width)
      : TreeDrafter(params, state, width),
        law_(params.warp),
        uncut_law_(WithoutCuts(params.warp)),
        multiplicity_(state.root_multiplicity.begin(), state.root_multiplicity.end()),
        slots_(params.refill || state.slot_root.empty()
                   ? params.beam_width
                   : static_cast<int>(state.slot_root.size())) {}

  void Grow(absl::Span<const Distribution> rows) override;

 private:
  struct Candidate {
    double log_mass;
    double key;
    Entry entry;  // of the law
    int node;
  };

  bool WithReplacement() const { return params().kind == DecodingKind::kBeamSampling; }
  std::vector<Candidate> Keys(const LayerLaw& q, absl::Span<const int> nodes, int slot) const;
  std::vector<Candidate> Taken(std::vector<Candidate>* candidates) const;
  std::vector<Candidate> RankEntries(absl::Span<const Distribution> rows,
                                     absl::Span<const int> nodes);
  void Predict(absl::Span<const Candidate> taken, absl::Span<const Child> layer);

  JointLaw law_, uncut_law_;
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
      const double log_mass = row.log_weight + row.sparse->log_probs[i];
      const Entry entry{static_cast<int>(k), row.sparse->tokens[i]};
      candidates.push_back({log_mass, log_mass + noise[i], entry, nodes[k]});
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
    const bool ends = is_stop(candidate.entry.token);
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
  const bool cut = CutsJointly(params().warp);
  const LayerLaw uncut = cut ? uncut_law_.Make(beams) : q;
  double lowest = kInfinity;  // log mass of the last entry that the cut keeps
  for (const EntryMass& kept : cut ? ListEntries(q) : std::vector<EntryMass>()) {
    lowest = std::min(lowest, LogMass(uncut, kept.entry));
  }
  std::vector<Candidate> taken;
  for (int slot = 0; slot < (WithReplacement() ? slots_ : 1); ++slot) {
    std::vector<Candidate> candidates = Keys(q, nodes, slot);
    const std::vector<Candidate> winners = Taken(&candidates);
    const Candidate& last = winners.back();
    const double threshold = last.key - last.log_mass + LogMass(uncut, last.entry);
    if (cut) candidates = Keys(uncut, nodes, slot);
    for (const Candidate& candidate : candidates) {
      double gap = threshold - candidate.key;
      if (cut && LogMass(q, candidate.entry) == -kInfinity) {
        gap = std::max(0.0, gap) + std::max(0.0, lowest - candidate.log_mass) + kCutCost;
      }
      const double penalty = kHedgeCost * std::max(least, level()[candidate.node].cost);
      double& cost = costs_[candidate.node][FindToken(rows[candidate.node], candidate.entry.token)];
      cost = std::min(cost, gap + penalty);
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
    if (is_stop(winner.entry.token)) continue;
    ++live;
    const auto found = std::find_if(layer.begin(), layer.end(), [&](const Child& child) {
      return child.node == winner.node && child.token == winner.entry.token;
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
