#include "lab/bench/drafting/round_drafter.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "base/check.h"
#include "decoding/drafter.h"
#include "sampling/rng.h"

namespace coppice::lab {
namespace {

using decoding::DraftForest;
using decoding::DraftState;
using Kind = DraftingPolicy::Kind;

constexpr int kDeepest = 24;  // levels of a forest that grows while the target verifies

// kLevels and kDeeper: the drafter of the method, with the rows that are known.
class LevelsDrafter : public RoundDrafter {
 public:
  LevelsDrafter(const decoding::DecodingParams& params, const DraftingPolicy& policy,
                const SimulatedMachine& machine, PairRows* rows)
      : params_(params), policy_(policy), machine_(machine), pair_(rows) {}

  DraftForest Draft(const DraftState& state, int depth, double* time) override {
    const double arrival = *time + machine_.delay;
    const bool deeper = policy_.kind == Kind::kDeeper;
    if (deeper) GrowUntil(arrival);
    state_ = state;
    depth_ = std::min(depth, kDeepest);
    if (deeper) {
      ForgetDead();
    } else {
      known_.clear();
    }
    free_ = std::max(free_, arrival);
    const auto waits = [&](int level, size_t first_missing) {
      return !deeper ||
             (level < policy_.waits && first_missing < static_cast<size_t>(policy_.firm));
    };
    DraftForest forest = Grow(std::min(policy_.depth, depth), waits);
    *time = free_ + machine_.delay;
    return forest;
  }

 private:
  // The forest of the known rows. A level of which rows are missing, the first of them in place
  // first_missing, has them computed or does without them.
  DraftForest Grow(int depth, absl::FunctionRef<bool(int level, size_t first_missing)> computes) {
    auto drafter = decoding::MakeDrafter(params_, state_, policy_.width);
    COPPICE_CHECK_MSG(drafter.ok(), drafter.status().ToString().c_str());
    for (int level = 0; level < depth && !(*drafter)->frontier().empty(); ++level) {
      const DraftForest& forest = (*drafter)->forest();
      const std::vector<uint64_t> paths = NamePaths(state_, forest, pair_);
      std::vector<uint64_t> missing;
      size_t first_missing = std::numeric_limits<size_t>::max(), ready = 0;
      std::vector<sampling::Distribution> rows;
      for (const TreePlace place : (*drafter)->frontier()) {
        const uint64_t path = paths[forest.RowOf(place)];
        if (known_.contains(path) || !Needs(place)) {
          ++ready;
        } else {
          if (missing.empty()) first_missing = rows.size();
          missing.push_back(path);
          parent_[path] =
              place.is_root() ? 0 : paths[forest.RowOf(forest.parent[Index(place.node())])];
        }
        rows.emplace_back();
      }
      if (!missing.empty() && computes(level, first_missing)) {
        Compute(missing);
        ready = rows.size();
      }
      if (ready == 0) break;
      for (size_t i = 0; i < rows.size(); ++i) {
        const uint64_t path = paths[forest.RowOf((*drafter)->frontier()[i])];
        if (known_.contains(path)) rows[i] = pair_->Draft(path);
      }
      (*drafter)->Grow(rows);
    }
    return (*drafter)->Sent();
  }

  // A root whose outputs are all known needs no row, if rows are chosen one by one.
  bool Needs(TreePlace place) const {
    if (policy_.kind == Kind::kLevels || !place.is_root() || state_.slot_token.empty()) return true;
    for (size_t w = 0; w < state_.slot_root.size(); ++w) {
      if (state_.slot_root[w] == Index(place.root()) && state_.slot_token[w] < 0) return true;
    }
    return false;
  }

  void Compute(absl::Span<const uint64_t> paths) {
    const int count = static_cast<int>(paths.size());
    for (const uint64_t path : paths) known_[path] = parent_[path];
    rows_ += count;
    free_ += machine_.draft_pass * ((count + machine_.pass_rows - 1) / machine_.pass_rows);
  }

  // Runs the passes that start before `end`, each for the first level that has missing rows.
  void GrowUntil(double end) {
    bool grows = !state_.root_hash.empty();
    while (grows && free_ < end && static_cast<int>(known_.size()) < policy_.kept_rows) {
      grows = false;
      const auto first = [&](int, size_t) { return !std::exchange(grows, true); };
      Grow(depth_, first);
    }
  }

  // Forgets the rows that are not below the roots.
  void ForgetDead() {
    const auto known = known_;
    const auto parent_of = [&](uint64_t path) {
      const auto found = known.find(path);
      return found == known.end() ? 0 : found->second;
    };
    absl::erase_if(
        known_, [&](const auto& entry) { return !IsBelowARoot(entry.first, state_, parent_of); });
  }

  const decoding::DecodingParams& params_;
  const DraftingPolicy& policy_;
  const SimulatedMachine& machine_;
  PairRows* pair_;
  DraftState state_;
  int depth_ = 0;
  double free_ = 0;                                         // when the node's last pass ends
  absl::flat_hash_map<uint64_t, uint64_t> known_, parent_;  // parents of known and of missing rows
};

// One pass of the draft model for the rows that worlds need most.
struct WorldsPass {
  std::vector<PossibleWorlds::Want> wants;
  double arrival;  // of its rows at the leader
};

// kWorlds, kAhead and kStream.
class WorldsDrafter : public RoundDrafter {
 public:
  WorldsDrafter(const decoding::DecodingParams& params, const WorldsOptions& options,
                const DraftingPolicy& policy, const SimulatedMachine& machine, PairRows* rows)
      : policy_(policy),
        machine_(machine),
        pair_(rows),
        node_(params, options),
        leader_(params, options) {}

  DraftForest Draft(const DraftState& state, int depth, double* time) override {
    const double arrival = *time + machine_.delay;
    if (policy_.kind == Kind::kStream) return Stream(state, depth, arrival, time);
    if (policy_.kind == Kind::kAhead) GrowUntil(arrival);
    Begin(state, arrival);
    DraftForest forest = node_.Forest(policy_.nodes, depth);
    // One more pass is worth its time if the layers per time grow.
    const auto gains = [&] {
      const double cycle = free_ + machine_.delay + 1 - *time;
      return policy_.worth * node_.Gain(machine_.pass_rows) * cycle >
             node_.layers() * machine_.draft_pass;
    };
    while (!node_.wants().empty() && gains()) {
      Pass();
      forest = node_.Forest(policy_.nodes, depth);
    }
    *time = free_ + machine_.delay;
    return forest;
  }

 private:
  // The node hears of a verdict.
  void Begin(const DraftState& state, double arrival) {
    free_ = std::max(free_, arrival);
    node_.Begin(state);
    node_.Replay();
    begun_ = true;
  }

  bool CanGrow() const {
    return begun_ && !node_.wants().empty() && node_.rows() < policy_.kept_rows;
  }

  void Pass() {
    const size_t count = std::min<size_t>(machine_.pass_rows, node_.wants().size());
    WorldsPass pass;
    pass.wants.assign(node_.wants().begin(), node_.wants().begin() + count);
    AddRows(pass, &node_);
    node_.Replay();
    rows_ += static_cast<int>(count);
    free_ += machine_.draft_pass;
    pass.arrival = free_ + machine_.delay;
    if (policy_.kind == Kind::kStream) under_way_.push_back(std::move(pass));
  }

  void AddRows(const WorldsPass& pass, PossibleWorlds* worlds) {
    for (const PossibleWorlds::Want& want : pass.wants) {
      pair_->Name(want.path, want.parent, want.token);
      worlds->Add(want, pair_->Draft(want.path));
    }
  }

  void GrowUntil(double end) {
    while (free_ < end && CanGrow()) Pass();
  }

  void Receive(double now) {
    size_t arrived = 0;
    while (arrived < under_way_.size() && under_way_[arrived].arrival <= now)
      AddRows(under_way_[arrived++], &leader_);
    under_way_.erase(under_way_.begin(), under_way_.begin() + arrived);
  }

  // arrival: of the verdict at the node.
  DraftForest Stream(const DraftState& state, int depth, double arrival, double* time) {
    GrowUntil(arrival);
    Receive(*time);
    leader_.Begin(state);
    leader_.Replay();
    DraftForest forest = leader_.Forest(policy_.nodes, depth);
    Begin(state, arrival);
    while (leader_.layers() < policy_.least_layers) {
      if (under_way_.empty() && CanGrow()) Pass();
      if (under_way_.empty()) break;
      *time = std::max(*time, under_way_.front().arrival);
      Receive(*time);
      leader_.Replay();
      forest = leader_.Forest(policy_.nodes, depth);
    }
    return forest;
  }

  const DraftingPolicy& policy_;
  const SimulatedMachine& machine_;
  PairRows* pair_;
  PossibleWorlds node_, leader_;  // leader_: with the rows that have arrived there
  std::vector<WorldsPass> under_way_;
  bool begun_ = false;
  double free_ = 0;  // when the node's last pass ends
};

}  // namespace

std::vector<uint64_t> NamePaths(const DraftState& state, const DraftForest& forest,
                                PairRows* rows) {
  std::vector<uint64_t> paths = state.root_hash;
  for (int n = 0; n < forest.size(); ++n) {
    const uint64_t parent = paths[forest.RowOf(forest.parent[n])];
    paths.push_back(sampling::ExtendHash(parent, forest.token[n]));
    rows->Name(paths.back(), parent, forest.token[n]);
  }
  return paths;
}

std::unique_ptr<RoundDrafter> MakeRoundDrafter(const decoding::DecodingParams& params,
                                               const WorldsOptions& worlds,
                                               const DraftingPolicy& policy,
                                               const SimulatedMachine& machine, PairRows* rows) {
  if (policy.kind == Kind::kLevels || policy.kind == Kind::kDeeper)
    return std::make_unique<LevelsDrafter>(params, policy, machine, rows);
  return std::make_unique<WorldsDrafter>(params, worlds, policy, machine, rows);
}

}  // namespace coppice::lab
