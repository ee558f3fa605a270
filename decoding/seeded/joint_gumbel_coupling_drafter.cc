#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/check.h"
#include "decoding/joint/joint_distribution.h"
#include "decoding/seeded/joint_gumbel_coupling.h"
#include "decoding/sequence/tree_drafter.h"
#include "sampling/deterministic_math.h"
#include "sampling/gumbel_kernels.h"
#include "sampling/logits_processing.h"
#include "sampling/rng.h"

namespace coppice::decoding {
namespace {

constexpr double kHedgeGapShare = 1;  // share of a hedge's own gap that its children also pay
constexpr double kCutCost = 0.1;      // nats; for an entry that the draft's joint cut drops
// noise values for one distribution, to limit the time of a level
constexpr int kMostNoise = 1 << 20;

// The draft rule of 5.6: keys as the target makes them, with the draft's distribution Q and the
// same noise. The cost of an entry is its gap to the entry that its slot takes. Q is taken twice:
// over the beams that are predicted to be current, which gives the right entries if the draft is
// right, and over all nodes of the level, as a hedge. The target's joint cut may keep entries that
// the draft's cut drops; these also pay for their distance to the cut. If entries times slots
// exceed kMostNoise, only the most likely entries are ranked. That changes the draft, but never the
// decision.
class JointGumbelCouplingDrafter : public TreeDrafter {
 public:
  JointGumbelCouplingDrafter(const DecodingParams& params, const DraftState& state, int width)
      : TreeDrafter(params, state, width),
        distribution_(params.sampling),
        uncut_distribution_(sampling::WithoutCuts(params.sampling)),
        multiplicity_(state.root_multiplicity.begin(), state.root_multiplicity.end()),
        slots_(params.refill || state.slot_root.empty()
                   ? params.beam_width
                   : static_cast<int>(state.slot_root.size())) {}

  void Grow(absl::Span<const sampling::Distribution> rows) override;

 private:
  // An entry of the distribution.
  struct Candidate {
    Entry entry;  // the beam: an index into `nodes`
    int node;
    int position;     // in the node's draft row
    double log_mass;  // log mass without the joint cut
    double cut_mass;  // log Q; -inf if the cut drops the entry
    double noise;     // noise of the current slot
    bool ends;        // the entry ends its path

    double key() const { return cut_mass + noise; }
  };

  bool WithReplacement() const { return params().kind == sampling::DecodingKind::kBeamSampling; }
  int slots() const { return WithReplacement() ? slots_ : 1; }
  std::vector<Candidate> List(absl::Span<const sampling::Distribution> rows,
                              absl::Span<const int> nodes, const LayerDistribution& q,
                              const LayerDistribution& uncut) const;
  void AddNoise(const LayerDistribution& q, int slot, std::vector<Candidate>* candidates) const;
  std::vector<Candidate> Taken(absl::Span<const Candidate> candidates) const;
  std::vector<Candidate> RankEntries(absl::Span<const sampling::Distribution> rows,
                                     absl::Span<const int> nodes);
  void Predict(absl::Span<const Candidate> taken, absl::Span<const Child> layer);

  JointDistribution distribution_, uncut_distribution_;
  // [nodes of the level] multiplicity of a predicted beam; 0 for other nodes.
  std::vector<int> multiplicity_;
  int slots_;                               // slots of the next layer, with replacement
  std::vector<std::vector<double>> costs_;  // [nodes][support] least over slots and distributions
};

// The entries of the distribution over `nodes`, in canonical order. If there are too many to draw
// noise for all, only the most likely ones. q.rows[k] is the row of nodes[k].
std::vector<JointGumbelCouplingDrafter::Candidate> JointGumbelCouplingDrafter::List(
    absl::Span<const sampling::Distribution> rows, absl::Span<const int> nodes,
    const LayerDistribution& q, const LayerDistribution& uncut) const {
  std::vector<Candidate> all;
  for (size_t k = 0; k < nodes.size(); ++k) {
    const WeightedRow& row = uncut.rows[k];
    if (row.sparse == nullptr) continue;
    for (size_t i = 0; i < row.sparse->size(); ++i) {
      const Entry entry{static_cast<int>(k), row.sparse->tokens[i]};
      const double log_mass = row.log_weight + row.sparse->log_probs[i];
      all.push_back({entry, nodes[k], FindToken(rows[nodes[k]], entry.token), log_mass,
                     &q == &uncut ? log_mass : LogMass(q, entry), 0, Ends(nodes[k], entry.token)});
    }
  }
  const size_t most = static_cast<size_t>(std::max(1, kMostNoise / std::max(1, slots())));
  if (all.size() <= most) return all;
  std::vector<size_t> order(all.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::nth_element(order.begin(), order.begin() + most, order.end(), [&](size_t a, size_t b) {
    return std::tuple(-all[a].cut_mass, -all[a].log_mass, a) <
           std::tuple(-all[b].cut_mass, -all[b].log_mass, b);
  });
  order.resize(most);
  std::sort(order.begin(), order.end());
  std::vector<Candidate> kept;
  kept.reserve(order.size());
  for (size_t index : order) kept.push_back(all[index]);
  return kept;
}

// Adds G(TOKEN, slot) of every candidate.
void JointGumbelCouplingDrafter::AddNoise(const LayerDistribution& q, int slot,
                                          std::vector<Candidate>* candidates) const {
  std::vector<TokenId> tokens;
  std::vector<double> noise;
  for (size_t begin = 0, end = 0; begin < candidates->size(); begin = end) {
    const int beam = (*candidates)[begin].entry.beam;
    tokens.clear();
    for (; end < candidates->size() && (*candidates)[end].entry.beam == beam; ++end) {
      tokens.push_back((*candidates)[end].entry.token);
    }
    noise.resize(tokens.size());
    sampling::GumbelMany(
        {params().seed, sampling::Domain::kToken, q.rows[beam].hash, static_cast<uint32_t>(slot)},
        tokens, noise.data());
    for (size_t i = 0; i < noise.size(); ++i) (*candidates)[begin + i].noise = noise[i];
  }
}

// The entries that one slot takes: the best one. Without replacement: the W best that do not end,
// and the ends among the W best.
std::vector<JointGumbelCouplingDrafter::Candidate> JointGumbelCouplingDrafter::Taken(
    absl::Span<const Candidate> candidates) const {
  const auto before = [](const Candidate& a, const Candidate& b) { return a.key() > b.key(); };
  if (WithReplacement()) {
    return {*std::min_element(candidates.begin(), candidates.end(), before)};
  }
  std::vector<Candidate> ranked;
  for (const Candidate& candidate : candidates) {
    if (candidate.cut_mass > -sampling::kInfinity) ranked.push_back(candidate);
  }
  std::stable_sort(ranked.begin(), ranked.end(), before);
  const size_t width = static_cast<size_t>(params().beam_width);
  std::vector<Candidate> taken;
  size_t live = 0;
  for (size_t rank = 0; rank < ranked.size() && live < width; ++rank) {
    const bool ends = ranked[rank].ends;
    if (ends && rank >= width) continue;
    taken.push_back(ranked[rank]);
    live += ends ? 0 : 1;
  }
  return taken;
}

// Lowers the costs to the gaps under the distribution over `nodes`. Returns the entries that the
// slots take. A distribution with hedges applies only if one of the hedges is current. So all its
// entries also pay for the most likely hedge.
std::vector<JointGumbelCouplingDrafter::Candidate> JointGumbelCouplingDrafter::RankEntries(
    absl::Span<const sampling::Distribution> rows, absl::Span<const int> nodes) {
  std::vector<WeightedBeam> beams;
  double least = sampling::kInfinity;  // cost of a hedge
  for (int n : nodes) {
    if (multiplicity_[n] == 0) least = std::min(least, level()[n].cost);
    beams.push_back(
        {level()[n].hash, level()[n].score, std::max(1, multiplicity_[n]), &rows[n], nullptr});
  }
  if (least == sampling::kInfinity) least = 0;
  const LayerDistribution q = distribution_.Make(beams);
  const bool cut = sampling::CutsJointly(params().sampling);
  const LayerDistribution without_cut = cut ? uncut_distribution_.Make(beams) : LayerDistribution();
  std::vector<Candidate> candidates = List(rows, nodes, q, cut ? without_cut : q);
  double lowest = sampling::kInfinity;  // log mass of the last entry that the cut keeps
  for (const Candidate& candidate : candidates) {
    if (candidate.cut_mass > -sampling::kInfinity) lowest = std::min(lowest, candidate.log_mass);
  }
  std::vector<Candidate> taken;
  for (int slot = 0; slot < slots(); ++slot) {
    AddNoise(q, slot, &candidates);
    const std::vector<Candidate> winners = Taken(candidates);
    const Candidate& last = winners.back();
    const double threshold = last.key() - last.cut_mass + last.log_mass;
    for (const Candidate& candidate : candidates) {
      double gap = threshold - (candidate.log_mass + candidate.noise);
      if (candidate.cut_mass == -sampling::kInfinity) {
        gap = std::max(0.0, gap) + std::max(0.0, lowest - candidate.log_mass) + kCutCost;
      }
      const double penalty = kHedgeGapShare * std::max(least, level()[candidate.node].cost);
      double& cost = costs_[candidate.node][candidate.position];
      cost = std::min(cost, gap + penalty);
    }
    taken.insert(taken.end(), winners.begin(), winners.end());
  }
  return taken;
}

// The beams of the next level: nodes that hold a live output.
void JointGumbelCouplingDrafter::Predict(absl::Span<const Candidate> taken,
                                         absl::Span<const Child> layer) {
  multiplicity_.assign(layer.size(), 0);
  int live = 0;
  for (const Candidate& winner : taken) {
    if (winner.ends) continue;
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

void JointGumbelCouplingDrafter::Grow(absl::Span<const sampling::Distribution> rows) {
  COPPICE_CHECK(rows.size() == level().size());
  costs_.clear();
  for (const sampling::Distribution& row : rows)
    costs_.emplace_back(row.size(), sampling::kInfinity);
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
      if (cost == sampling::kInfinity || Ends(n, rows[n].tokens[i])) continue;
      children.push_back({cost, n, rows[n].tokens[i], level()[n].score + rows[n].log_probs[i],
                          std::max(0.0, cost)});
    }
  }
  Predict(taken, AppendLayer(children));
}

}  // namespace

std::unique_ptr<Drafter> MakeJointGumbelCouplingDrafter(const DecodingParams& params,
                                                        const DraftState& state, int width) {
  return std::make_unique<JointGumbelCouplingDrafter>(params, state, width);
}

}  // namespace coppice::decoding
