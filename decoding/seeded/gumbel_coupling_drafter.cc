#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/check.h"
#include "decoding/seeded/gumbel_coupling.h"
#include "decoding/sequence/tree_drafter.h"
#include "sampling/deterministic_math.h"
#include "sampling/gumbel_kernels.h"
#include "sampling/rng.h"

namespace coppice::decoding {
namespace {

constexpr double kHedgeCost = 1;     // hc of docs/algorithms.md 5.7
constexpr size_t kNodesPerSlot = 4;  // nodes that a slot draws from: "its 4 cheapest n" in 5.7
constexpr int kLeastHedges = 24;     // number of ranked candidates beyond the width

// With more slots than this there is no look-ahead, because the noise of every slot and candidate
// would cost more than it saves.
constexpr int kMostSlotsAhead = 64;

// The draft rule of 5.7: replays the target's picks and draws with the draft's rows, and hedges
// around them by the gap to each winner. In addition, every candidate is ranked by how close it is
// to being picked by a slot of the next layer. Only picked beams need a row, and the picks
// themselves need no row (docs/decisions.md, "Drafts look one pick ahead").
class GumbelCouplingDrafter : public TreeDrafter {
 public:
  GumbelCouplingDrafter(const DecodingParams& params, const DraftState& state, int width)
      : TreeDrafter(params, state, width),
        predicted_(state.slot_root.begin(), state.slot_root.end()),
        known_token_(state.slot_token),
        known_log_prob_(state.slot_log_prob) {}

  void Grow(absl::Span<const sampling::Distribution> rows) override;

 private:
  struct Reach {  // a node that a slot may pick
    double cost;  // pc of docs/algorithms.md 5.7
    int node;
  };
  struct Prediction {  // an output of the layer being drafted
    int node;
    TokenId token;
    bool ends;           // its path
    int candidate = -1;  // index among the children; -1: it ends, or is not listed
  };
  struct Listed {
    Child child;
    int replaces;  // index into predictions_
  };
  struct Cost {                           // cost of one token of a node
    double output = sampling::kInfinity;  // distance from being an output, least over the slots
    int prediction = -1;                  // the output that it would replace
  };

  // log m_b of a beam which `slots` slots are predicted to hold.
  double LogCount(int slots) const {
    return params().set_semantics ? 0 : sampling::Log(std::max(1, slots));
  }
  void BeginLevel();
  std::vector<Reach> PickNodes(int slot);
  void PickKeys(int slot, absl::Span<const uint64_t> hashes, absl::Span<const double> weights,
                std::vector<double>* keys) const;
  bool IsKnown(int slot) const {
    return depth_ == 0 && !known_token_.empty() && known_token_[slot] >= 0;
  }
  void DrawTokens(int slot, const Reach& reach, const sampling::Distribution& row,
                  bool is_prediction);
  void ListKnown(std::vector<Listed>* listed) const;
  std::vector<Child> ListCandidates(absl::Span<const sampling::Distribution> rows,
                                    std::vector<int>* replaces);
  void RankByNextPicks(absl::Span<const int> replaces, std::vector<Child>* candidates);
  int NextSlots() const;

  int depth_ = 0;
  std::vector<int>
      predicted_;  // [slots] node of the level that the slot is predicted to hold, or -1
  // [slots] token of each slot in level 0, -1 = not known; empty: no slot is known.
  std::vector<TokenId> known_token_;
  std::vector<double> known_log_prob_;
  std::vector<std::vector<Cost>> costs_;  // [nodes][support]
  std::vector<Prediction> predictions_;   // [slots] predictions of this level
  std::vector<double> noise_;
  // For each node of the level: number of slots predicted to hold it, H, and score with log m_b.
  // And a buffer for keys.
  std::vector<int> multiplicity_;
  std::vector<uint64_t> hashes_;
  std::vector<double> weights_, keys_;
  bool any_predicted_ = false;
};

// The index of each child in a list, by node and token.
using ChildPlaces = absl::flat_hash_map<std::pair<int, TokenId>, int>;
template <typename Child>
ChildPlaces PlacesOf(const std::vector<Child>& children) {
  ChildPlaces places;
  places.reserve(children.size());
  for (size_t c = 0; c < children.size(); ++c) {
    places.emplace(std::pair(children[c].node, children[c].token), static_cast<int>(c));
  }
  return places;
}

void GumbelCouplingDrafter::BeginLevel() {
  const size_t nodes = level().size();
  multiplicity_.assign(nodes, 0);
  any_predicted_ = false;
  for (int node : predicted_) {
    if (node < 0) continue;
    ++multiplicity_[node];
    any_predicted_ = true;
  }
  hashes_.resize(nodes);
  weights_.resize(nodes);
  keys_.resize(nodes);
  for (size_t n = 0; n < nodes; ++n) {
    hashes_[n] = level()[n].hash;
    weights_[n] = level()[n].score + LogCount(multiplicity_[n]);
  }
}

// The nodes that slot w may pick, cheapest first. The first one is the prediction. At level 0 there
// is only the exact pick.
std::vector<GumbelCouplingDrafter::Reach> GumbelCouplingDrafter::PickNodes(int slot) {
  if (depth_ == 0) return {{0.0, predicted_[slot]}};
  PickKeys(slot, hashes_, weights_, &keys_);
  int best = -1;
  for (size_t n = 0; n < keys_.size(); ++n) {
    if ((multiplicity_[n] > 0 || !any_predicted_) && (best < 0 || keys_[n] > keys_[best]))
      best = static_cast<int>(n);
  }
  std::vector<Reach> reaches = {{0.0, best}};
  for (size_t n = 0; n < keys_.size(); ++n) {
    if (static_cast<int>(n) == best) continue;
    // A single slot leads to a single beam: if that is not the predicted one, nothing rivals it.
    const double gap = predicted_.size() == 1 ? 0.0 : std::max(0.0, keys_[best] - keys_[n]);
    const double cost = gap + kHedgeCost * level()[n].cost;
    if (reaches.size() == kNodesPerSlot && !(cost < reaches.back().cost)) continue;
    if (reaches.size() == kNodesPerSlot) reaches.pop_back();
    const auto place =
        std::upper_bound(reaches.begin() + 1, reaches.end(), cost,
                         [](double value, const Reach& reach) { return value < reach.cost; });
    reaches.insert(place, {cost, static_cast<int>(n)});
  }
  return reaches;
}

// keys[i] = weights[i] + G(PARENT, slot, hashes[i], 0): the keys by which a slot picks its parent.
void GumbelCouplingDrafter::PickKeys(int slot, absl::Span<const uint64_t> hashes,
                                     absl::Span<const double> weights,
                                     std::vector<double>* keys) const {
  sampling::GumbelOfHashes(
      {params().seed, sampling::Domain::kParent, 0, static_cast<uint32_t>(slot)}, hashes,
      keys->data());
  for (size_t i = 0; i < weights.size(); ++i) (*keys)[i] = weights[i] + (*keys)[i];
}

void GumbelCouplingDrafter::DrawTokens(int slot, const Reach& reach,
                                       const sampling::Distribution& row, bool is_prediction) {
  noise_.resize(row.size());
  sampling::GumbelMany({params().seed, sampling::Domain::kToken, level()[reach.node].hash,
                        static_cast<uint32_t>(slot)},
                       row.tokens, noise_.data());
  size_t best = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    noise_[i] += row.log_probs[i];
    if (noise_[i] > noise_[best]) best = i;
  }
  if (is_prediction)
    predictions_.push_back({reach.node, row.tokens[best], Ends(reach.node, row.tokens[best])});
  std::vector<Cost>& costs = costs_[reach.node];
  for (size_t i = 0; i < row.size(); ++i) {
    const double cost = reach.cost + (noise_[best] - noise_[i]);
    if (cost < costs[i].output) costs[i] = {cost, static_cast<int>(predictions_.size()) - 1};
  }
}

// Lists the outputs that are certain, whatever the draft's support. Equal slots are listed once.
void GumbelCouplingDrafter::ListKnown(std::vector<Listed>* listed) const {
  for (int slot = 0; slot < static_cast<int>(predictions_.size()); ++slot) {
    if (!IsKnown(slot)) continue;
    const Prediction& known = predictions_[slot];
    const auto is_same = [&](const Listed& entry) {
      return entry.child.node == known.node && entry.child.token == known.token;
    };
    if (known.ends || std::any_of(listed->begin(), listed->end(), is_same)) continue;
    const double score = level()[known.node].score + known_log_prob_[slot];
    listed->push_back({{0.0, known.node, known.token, score, 0.0}, slot});
  }
}

// The likeliest outputs of the layer in canonical order. replaces[c] = the prediction that
// candidate c would replace. Sets Prediction::candidate.
std::vector<TreeDrafter::Child> GumbelCouplingDrafter::ListCandidates(
    absl::Span<const sampling::Distribution> rows, std::vector<int>* replaces) {
  std::vector<Listed> listed;
  for (size_t n = 0; n < rows.size(); ++n) {
    for (size_t i = 0; i < rows[n].size(); ++i) {
      const auto& [cost, prediction] = costs_[n][i];
      const TokenId token = rows[n].tokens[i];
      if (cost == sampling::kInfinity || Ends(static_cast<int>(n), token)) continue;
      const double score = level()[n].score + rows[n].log_probs[i];
      listed.push_back({{cost, static_cast<int>(n), token, score, cost}, prediction});
    }
  }
  ListKnown(&listed);
  const size_t most = static_cast<size_t>(width()) + std::max(width(), kLeastHedges);
  if (listed.size() > most) {
    std::nth_element(listed.begin(), listed.begin() + most, listed.end(),
                     [](const Listed& a, const Listed& b) { return a.child.cost < b.child.cost; });
    listed.resize(most);
  }
  // Costs of 0 are common: of equal costs the first in this order comes first.
  std::sort(listed.begin(), listed.end(), [](const Listed& a, const Listed& b) {
    return std::pair(a.child.node, a.child.token) < std::pair(b.child.node, b.child.token);
  });
  std::vector<Child> candidates;
  replaces->clear();
  for (const Listed& entry : listed) {
    candidates.push_back(entry.child);
    replaces->push_back(entry.replaces);
  }
  const ChildPlaces places = PlacesOf(candidates);
  for (Prediction& prediction : predictions_) {
    const auto found = places.find({prediction.node, prediction.token});
    if (found != places.end()) prediction.candidate = found->second;
  }
  return candidates;
}

int GumbelCouplingDrafter::NextSlots() const {
  if (params().refill) return params().beam_width;
  return static_cast<int>(
      std::count_if(predictions_.begin(), predictions_.end(),
                    [](const Prediction& prediction) { return !prediction.ends; }));
}

// Adds to every candidate's cost its distance from being picked: the least gap, over the slots of
// the next layer, between its pick key and the best of the predicted outputs. A hedge does not
// compete with the output that it would replace.
void GumbelCouplingDrafter::RankByNextPicks(absl::Span<const int> replaces,
                                            std::vector<Child>* candidates) {
  const int slots = NextSlots();
  if (slots == 0 || slots > kMostSlotsAhead) return;
  const size_t count = candidates->size();
  std::vector<int> multiplicity(count, 0);
  for (const Prediction& prediction : predictions_) {
    if (prediction.candidate >= 0) ++multiplicity[prediction.candidate];
  }
  std::vector<double> gap(count, sampling::kInfinity), key(count), score(count);
  std::vector<uint64_t> hash(count);
  std::vector<int> replaced(count, -1);  // the candidate that would no longer be an output
  for (size_t c = 0; c < count; ++c) {
    const Child& child = (*candidates)[c];
    hash[c] = sampling::ExtendHash(level()[child.node].hash, child.token);
    score[c] = child.score + LogCount(multiplicity[c]);
    const int output = multiplicity[c] > 0 ? -1 : predictions_[replaces[c]].candidate;
    if (output >= 0 && multiplicity[output] == 1) replaced[c] = output;
  }
  for (int slot = 0; slot < slots; ++slot) {
    int best = -1;
    double best_key = sampling::kLogZero, second_key = sampling::kLogZero;
    PickKeys(slot, hash, score, &key);
    for (size_t c = 0; c < count; ++c) {
      if (multiplicity[c] == 0) continue;
      if (key[c] > best_key) {
        second_key = best_key;
        best_key = key[c];
        best = static_cast<int>(c);
      } else {
        second_key = std::max(second_key, key[c]);
      }
    }
    for (size_t c = 0; c < count; ++c) {
      const double rival = best >= 0 && replaced[c] == best ? second_key : best_key;
      gap[c] = std::min(gap[c], std::max(0.0, rival - key[c]));
    }
  }
  for (size_t c = 0; c < count; ++c) (*candidates)[c].cost += gap[c];
}

void GumbelCouplingDrafter::Grow(absl::Span<const sampling::Distribution> rows) {
  COPPICE_CHECK(rows.size() == level().size());
  costs_.clear();
  for (const sampling::Distribution& row : rows) costs_.emplace_back(row.size());
  predictions_.clear();
  BeginLevel();
  const int slots = level().empty() ? 0 : static_cast<int>(predicted_.size());
  for (int slot = 0; slot < slots; ++slot) {
    if (IsKnown(slot)) {
      const int node = predicted_[slot];
      predictions_.push_back({node, known_token_[slot], Ends(node, known_token_[slot])});
      continue;
    }
    const std::vector<Reach> reaches = PickNodes(slot);
    for (size_t i = 0; i < reaches.size(); ++i) {
      if (rows[reaches[i].node].size() == 0) continue;
      DrawTokens(slot, reaches[i], rows[reaches[i].node], /*is_prediction=*/i == 0);
    }
  }
  std::vector<int> replaces;
  std::vector<Child> candidates = ListCandidates(rows, &replaces);
  RankByNextPicks(replaces, &candidates);
  const std::vector<Child> layer = AppendLayer(candidates);
  // The slots of the next level. A slot that is predicted to end is refilled or gone.
  const ChildPlaces places = PlacesOf(layer);
  std::vector<int> next;
  for (const Prediction& prediction : predictions_) {
    if (prediction.ends) continue;
    const auto found = places.find({prediction.node, prediction.token});
    next.push_back(found == places.end() ? -1 : found->second);
  }
  if (params().refill) next.resize(params().beam_width, -1);
  predicted_ = std::move(next);
  ++depth_;
}

}  // namespace

std::unique_ptr<Drafter> MakeGumbelCouplingDrafter(const DecodingParams& params,
                                                   const DraftState& state, int width) {
  return std::make_unique<GumbelCouplingDrafter>(params, state, width);
}

}  // namespace coppice::decoding
