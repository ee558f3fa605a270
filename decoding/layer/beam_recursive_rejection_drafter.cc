#include <algorithm>
#include <utility>

#include "base/check.h"
#include "decoding/draft_ends.h"
#include "decoding/layer/beam_recursive_rejection.h"
#include "sampling/deterministic_math.h"
#include "sampling/rng.h"
#include "sampling/target_row.h"

namespace coppice::decoding {
namespace {

constexpr double kHedgeDecay = 0.7;  // nats that each draft beyond the number of slots costs

class BeamRecursiveRejectionDrafter : public Drafter {
 public:
  BeamRecursiveRejectionDrafter(const DecodingParams& params, const DraftState& state, int width,
                                std::shared_ptr<ChoiceSource> choices);

  absl::Span<const TreePlace> frontier() const override { return frontier_; }
  void Grow(absl::Span<const sampling::Distribution> rows) override;
  const DraftForest& forest() const override { return forest_; }

 private:
  struct Node {
    uint64_t hash;
    DraftEnds::State format_state;
    double score;  // dls, nats
    double reach;  // probability of being an output: 1 if predicted to be one, less for a hedge
  };
  // The drafts of one parent: the first `count` of a sample without replacement.
  struct Drafts {
    double demand = 0;         // slots that are expected to pick the parent
    std::vector<Entry> order;  // the sample in drawing order
    std::vector<double> left;  // [order] q's mass before each draw
    int count = 0;
  };

  std::vector<double> Demand() const;
  Drafts DrawOrder(const Node& parent, const sampling::Distribution& row) const;
  static double Worth(const Drafts& parent);
  void ShareOut(std::vector<Drafts>* drafts) const;
  void AppendLayer(absl::Span<const sampling::Distribution> rows, absl::Span<const Drafts> drafts);

  const DecodingParams params_;
  const DraftEnds ends_;
  const int width_;
  const std::shared_ptr<ChoiceSource> choices_;
  std::vector<double> root_slots_;  // [roots] slots that picked each root
  int slots_ = 0;                   // slots of the current level
  std::vector<TreePlace> frontier_;
  std::vector<Node> level_;  // [frontier]
  DraftForest forest_;
};

BeamRecursiveRejectionDrafter::BeamRecursiveRejectionDrafter(const DecodingParams& params,
                                                             const DraftState& state, int width,
                                                             std::shared_ptr<ChoiceSource> choices)
    : params_(params),
      ends_(params),
      width_(width),
      choices_(std::move(choices)),
      root_slots_(state.root_hash.size(), 0.0),
      slots_(static_cast<int>(state.slot_root.size())),
      forest_(DraftForest::Empty(static_cast<int>(state.root_hash.size()))) {
  for (int r = 0; r < state.root_hash.size(); ++r) {
    frontier_.push_back(RootId{r});
    level_.push_back({state.root_hash[r], ends_.Root(state, r), state.root_score[r], 1.0});
  }
  for (int32_t root : state.slot_root) ++root_slots_[root];
  choices_->BeginRound(state.layers_committed);
}

// How many slots pick each node. At level 0 this is known. Below it, it is predicted with the
// shared noise, relative to the best of the predicted outputs.
std::vector<double> BeamRecursiveRejectionDrafter::Demand() const {
  if (forest_.size() == 0) return root_slots_;
  std::vector<double> demand(level_.size(), 0.0), key(level_.size());
  for (int slot = 0; slot < slots_; ++slot) {
    double best = sampling::kLogZero;
    for (int n = 0; n < level_.size(); ++n) {
      key[n] = level_[n].score +
               sampling::Gumbel(params_.seed, sampling::Domain::kParent, level_[n].hash, slot, 0);
      if (level_[n].reach == 1) best = std::max(best, key[n]);
    }
    for (int n = 0; n < level_.size(); ++n)
      demand[n] += level_[n].reach * sampling::Exp(std::min(0.0, key[n] - best));
  }
  return demand;
}

BeamRecursiveRejectionDrafter::Drafts BeamRecursiveRejectionDrafter::DrawOrder(
    const Node& parent, const sampling::Distribution& row) const {
  Drafts drafts;
  LayerDistribution q;
  q.rows.resize(1);
  q.rows[0].hash = parent.hash;
  q.rows[0].sparse = &row;
  drafts.order = choices_->ChooseDistinct(sampling::Domain::kDraft, 0, q, width_);
  double left = 1;
  for (const Entry& entry : drafts.order) {
    drafts.left.push_back(std::max(left, 0.0));
    left -= sampling::Exp(row.log_probs[FindToken(row, entry.token)]);
  }
  return drafts;
}

// How likely the parent's next draft becomes an output: a slot must pick the parent, the drafts
// before it must not fill all of the parent's slots, and they must leave enough of q.
double BeamRecursiveRejectionDrafter::Worth(const Drafts& parent) {
  const double beyond = std::max(0.0, parent.count + 1 - parent.demand);
  return std::min(1.0, parent.demand) * parent.left[parent.count] *
         sampling::Exp(-kHedgeDecay * beyond);
}

// Gives each draft to the parent where it is worth most. Whether a parent gets another draft
// depends only on the noise of the picks and on its drafts so far, as the distribution requires.
void BeamRecursiveRejectionDrafter::ShareOut(std::vector<Drafts>* drafts) const {
  for (int spent = 0; spent < width_; ++spent) {
    Drafts* best = nullptr;
    double most = 0;
    for (Drafts& parent : *drafts) {
      if (parent.count == parent.order.size()) continue;
      const double worth = Worth(parent);
      if (worth > most) {
        most = worth;
        best = &parent;
      }
    }
    if (best == nullptr) return;
    ++best->count;
  }
}

void BeamRecursiveRejectionDrafter::AppendLayer(absl::Span<const sampling::Distribution> rows,
                                                absl::Span<const Drafts> drafts) {
  std::vector<TreePlace> next_frontier;
  std::vector<Node> next_level;
  int next_slots = 0;
  for (int n = 0; n < drafts.size(); ++n) {
    if (drafts[n].count == 0) continue;
    forest_.proposals.push_back({frontier_[n], 0.0, rows[n]});
    double reach = level_[n].reach;
    for (int k = 0; k < drafts[n].count; ++k) {
      const TokenId token = drafts[n].order[k].token;
      const NodeId node = forest_.Add(frontier_[n], token);
      forest_.draws.push_back(node);
      if (k + 0.5 > drafts[n].demand) reach *= sampling::Exp(-kHedgeDecay);
      if (ends_.Has(level_[n].format_state, token)) continue;  // it gets no row and no children
      next_slots += reach == 1;
      next_frontier.push_back(node);
      next_level.push_back({sampling::ExtendHash(level_[n].hash, token),
                            ends_.Next(level_[n].format_state, token),
                            level_[n].score + rows[n].log_probs[FindToken(rows[n], token)], reach});
    }
  }
  if (forest_.layer_begin.empty()) {
    forest_.layer_begin = {0};
    forest_.draws_begin = {0};
  }
  forest_.layer_begin.push_back(forest_.size());
  forest_.draws_begin.push_back(forest_.size());
  frontier_ = std::move(next_frontier);
  level_ = std::move(next_level);
  slots_ = params_.refill ? params_.beam_width : next_slots;
}

void BeamRecursiveRejectionDrafter::Grow(absl::Span<const sampling::Distribution> rows) {
  COPPICE_CHECK(rows.size() == level_.size());
  const std::vector<double> demand = Demand();
  std::vector<Drafts> drafts;
  for (int n = 0; n < level_.size(); ++n) {
    drafts.push_back(DrawOrder(level_[n], rows[n]));
    drafts.back().demand = demand[n];
  }
  ShareOut(&drafts);
  if (std::all_of(drafts.begin(), drafts.end(), [](const Drafts& d) { return d.count == 0; })) {
    frontier_.clear();
    level_.clear();
    return;
  }
  AppendLayer(rows, drafts);
}

}  // namespace

std::unique_ptr<Drafter> MakeBeamRecursiveRejectionDrafter(const DecodingParams& params,
                                                           const DraftState& state, int width,
                                                           std::shared_ptr<ChoiceSource> choices) {
  return std::make_unique<BeamRecursiveRejectionDrafter>(params, state, width, std::move(choices));
}

std::unique_ptr<Drafter> MakeBeamRecursiveRejectionDrafter(const DecodingParams& params,
                                                           const DraftState& state, int width) {
  return MakeBeamRecursiveRejectionDrafter(params, state, width,
                                           std::make_shared<SeededChoices>(params.seed));
}

}  // namespace coppice::decoding
