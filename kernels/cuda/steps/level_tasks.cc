#include "kernels/cuda/steps/level_tasks.h"

#include <algorithm>
#include <bit>
#include <unordered_map>

#include "base/check.h"
#include "sampling/candidate_list.h"

namespace coppice::kernels::cuda {
namespace {

constexpr double kLeastTemperature = 1e-6, kLargestTemperature = 1e6;  // beyond, f32 says little

template <class T>
int32_t SizeOf(const std::vector<T>& values) {
  return static_cast<int32_t>(values.size());
}

}  // namespace

LevelTasks::LevelTasks(const ForestPlan& plan, int level, const ListPlan& lists,
                       ForestState* states, LevelScratch* scratch)
    : step_(plan.levels[level]), level_(level), states_(states), scratch_(scratch) {
  for (size_t f = 0; f < plan.forests.size(); ++f) {
    const ForestPlan::Forest& forest = plan.forests[f];
    if (level == 0) AddStart(forest);
    if (level >= static_cast<int>(forest.levels.size())) continue;
    const ForestPlan::Level& rows = forest.levels[level];
    const DeviceDrafting& rule = forest.rule;
    LevelTask task;
    task.forest = static_cast<int32_t>(f);
    task.level = level;
    task.first_list = lists.needs[rows.first_need].first_list;
    task.width = rule.width;
    task.support = rule.support;
    task.picks = rule.kind == DeviceDrafting::Kind::kPicks ? 1 : 0;
    task.beam_width = rule.beam_width;
    task.refill = rule.refill ? 1 : 0;
    task.set_semantics = rule.set_semantics ? 1 : 0;
    task.stop_begin = SizeOf(stops_);
    stops_.insert(stops_.end(), rule.stop_ids.begin(), rule.stop_ids.end());
    task.stop_end = SizeOf(stops_);
    task.inverse_temperature = static_cast<float>(1 / rule.temperature);
    task.seed = rule.seed;
    task.first_row = rows.first_row;
    task.rows = rows.rows;
    if (level > 0) AddChains(forest, rows, &task);
    tasks_.push_back(task);
    roots_.push_back(SizeOf(forest.root_hash));
  }
}

// Scores are compared only with each other, and f32 holds differences better.
void LevelTasks::AddStart(const ForestPlan::Forest& forest) {
  LevelStart& start = starts_.emplace_back();
  start.roots = SizeOf(forest.root_hash);
  start.slots = SizeOf(forest.slot_root);
  const double largest = *std::max_element(forest.root_score.begin(), forest.root_score.end());
  for (int r = 0; r < start.roots; ++r) {
    start.hash[r] = forest.root_hash[r];
    start.score[r] = static_cast<float>(forest.root_score[r] - largest);
  }
  for (int s = 0; s < start.slots; ++s) {
    start.slot_root[s] = forest.slot_root[s];
    start.slot_token[s] = forest.slot_token.empty() ? -1 : forest.slot_token[s];
    start.slot_log_prob[s] =
        forest.slot_token.empty() ? 0.0f : static_cast<float>(forest.slot_log_prob[s]);
  }
}

// For now row j is below root j % roots, and the slots of the levels above are those of row j.
void LevelTasks::AddChains(const ForestPlan::Forest& forest, const ForestPlan::Level& rows,
                           LevelTask* task) {
  const int roots = SizeOf(forest.root_hash);
  COPPICE_CHECK(rows.rows >= roots);
  task->root_chain = step_.chain_length(rows.first_row) - level_;
  task->chains = SizeOf(chains_);
  for (int r = 0; r < roots; ++r) {
    for (int i = 0; i < task->root_chain; ++i)
      chains_.push_back(step_.chain_begin[rows.first_row + r] + i);
  }
  for (int layer = 0; layer < level_; ++layer) {
    for (int row = rows.first_row; row < rows.first_row + rows.rows; ++row) {
      COPPICE_CHECK(step_.chain_length(row) == task->root_chain + level_);
      chains_.push_back(step_.chain_begin[row] + task->root_chain + layer);
    }
  }
}

void LevelTasks::AddMasks(const WorkList& list) {
  std::vector<const AttentionItem*> of_row(step_.rows(), nullptr);
  for (const WorkList::OfClass& of_class : list.classes) {
    for (const AttentionItem& item : of_class.items) {
      for (int row = item.first_row; row < item.first_row + item.rows; ++row) of_row[row] = &item;
    }
  }
  for (size_t t = 0; t < tasks_.size(); ++t) {
    LevelTask& task = tasks_[t];
    const AttentionItem& first = *of_row[task.first_row];
    const int32_t masked = first.mask_tile * kKvTile;
    const int32_t own = task.chains + roots_[t] * task.root_chain;  // of [level][rows]
    // Rows of one segment share their slots, so they have one order in all of its row tiles.
    std::unordered_map<int32_t, int32_t> bit;  // bit of each slot
    int32_t tokens = first.prefix;
    const auto bit_of = [&](int32_t slot) {
      const auto found = bit.find(slot);
      COPPICE_CHECK(found != bit.end());
      return found->second;
    };
    for (int row = task.first_row; row < task.first_row + task.rows; ++row) {
      for (int i = step_.chain_begin[row]; i < step_.chain_begin[row + 1]; ++i) {
        if (bit.emplace(step_.chain[i], tokens - masked).second) ++tokens;
      }
    }
    task.mask_words = first.mask_words;
    task.root_masks = SizeOf(masks_);
    for (int r = 0; r < roots_[t]; ++r) {
      const size_t words = masks_.size();
      masks_.resize(words + task.mask_words);
      const auto set = [&](int32_t at) { masks_[words + at / 64] |= uint64_t{1} << at % 64; };
      for (int32_t i = masked; i < first.prefix; ++i) set(i - masked);
      for (int i = 0; i < task.root_chain; ++i) {
        set(bit_of(step_.chain[chains_[task.chains + r * task.root_chain + i]]));
      }
    }
    task.bits = SizeOf(slots_);
    for (int i = 0; i < level_ * task.rows; ++i) {
      slots_.push_back(bit_of(step_.chain[chains_[own + i]]));
    }
    task.row_masks = SizeOf(slots_);
    for (int row = task.first_row; row < task.first_row + task.rows; ++row) {
      const AttentionItem& item = *of_row[row];
      COPPICE_CHECK(item.mask_words == task.mask_words && item.mask_tile == first.mask_tile);
      slots_.push_back(item.mask_begin + (row - item.first_row) * item.mask_words);
    }
  }
}

DeviceLevels LevelTasks::Place(BlockLayout* layout) const {
  DeviceLevels levels;
  levels.tasks = layout->Add(tasks_);
  levels.starts = layout->Add(starts_);
  levels.stops = layout->Add(stops_);
  levels.groups = std::max(1, SizeOf(step_.groups));
  levels.chain_slots = SizeOf(chains_);
  std::vector<int32_t> chains;
  for (int group = 0; group < levels.groups; ++group) {
    for (const int32_t entry : chains_) chains.push_back(step_.chain_of(group)[entry]);
  }
  levels.chains = layout->Add(chains);
  levels.slots = layout->Add(slots_);
  levels.masks = layout->Add(masks_);
  levels.states = states_;
  levels.scratch = scratch_;
  levels.count = SizeOf(tasks_);
  return levels;
}

LevelsView LevelTasks::View(const DeviceLevels* placed) const {
  return {placed, static_cast<int32_t>(std::bit_ceil(tasks_.size()))};
}

bool CanGrow(const ForestPlan::Forest& forest, const RowNeed& need, int64_t vocab) {
  const DeviceDrafting& rule = forest.rule;
  const auto roots = static_cast<int64_t>(forest.root_hash.size());
  if (forest.levels.size() > kMostLevels) return false;
  return need.form == RowNeed::Form::kTop && !need.sums && !need.raw_sums &&
         !sampling::IsWhole(need, vocab) && need.bias_end - need.bias_begin <= kMostLevelBias &&
         need.count == rule.support && rule.support <= kMostLevelSupport &&
         rule.width <= kMostLevelRows && roots >= 1 && roots <= kMostLevelRows &&
         rule.beam_width <= kMostLevelSlots &&
         static_cast<int>(forest.slot_root.size()) <= kMostLevelSlots &&
         rule.temperature >= kLeastTemperature && rule.temperature <= kLargestTemperature;
}

GrownForest ReadGrown(const ForestState& state) {
  GrownForest grown;
  grown.bad_level = state.bad_level;
  grown.bad_node = state.bad_node;
  grown.bad_token = state.bad_token;
  grown.bad_logit = state.bad_logit;
  for (int l = 0; l < kMostLevels && state.layer_count[l] > 0; ++l) {
    GrownForest::Layer& layer = grown.layers.emplace_back();
    layer.token.assign(state.token[l], state.token[l] + state.layer_count[l]);
    layer.parent.assign(state.parent[l], state.parent[l] + state.layer_count[l]);
  }
  return grown;
}

}  // namespace coppice::kernels::cuda
