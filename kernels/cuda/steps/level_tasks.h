// What the kernels of draft_levels.h are given for one pass of the forests of a plan: made by the
// host from the plan, its candidate lists and its work list, and placed in the block that goes to
// the device with the plan. Used by ForestSteps and StepUpload. Thread-compatible.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/ops/draft_levels.h"
#include "kernels/cuda/ops/work_list.h"
#include "kernels/cuda/runtime/list_plan.h"
#include "kernels/cuda/runtime/upload_block.h"
#include "plan/forest_plan.h"

namespace coppice::kernels::cuda {

class LevelTasks {
 public:
  // Level `level` of every forest that has one. lists: of all needs of the pass. states, scratch:
  // [forests] in device memory.
  LevelTasks(const ForestPlan& plan, int level, const ListPlan& lists, ForestState* states,
             LevelScratch* scratch);

  // From level 1 on: where the rows' masks are. list: of this pass, with shared chains.
  void AddMasks(const WorkList& list);
  bool has_rows_to_place() const { return level_ > 0; }
  DeviceLevels Place(BlockLayout* layout) const;
  // What launches are given if the result of Place lies in device memory.
  LevelsView View(const DeviceLevels* placed) const;

 private:
  void AddStart(const ForestPlan::Forest& forest);
  void AddChains(const ForestPlan::Forest& forest, const ForestPlan::Level& rows, LevelTask* task);

  const StepPlan& step_;
  const int level_;
  std::vector<LevelTask> tasks_;
  std::vector<LevelStart> starts_;
  std::vector<int32_t> stops_, slots_;
  std::vector<int32_t> chains_;  // entries of the plan's chain
  std::vector<uint64_t> masks_;
  std::vector<int32_t> roots_;  // [tasks]
  ForestState* const states_;
  LevelScratch* const scratch_;
};

// Whether the kernels have room for the forest, if its rows have this need in a vocabulary of this
// many tokens.
bool CanGrow(const ForestPlan::Forest& forest, const RowNeed& need, int64_t vocab);

// The forest that a state describes.
GrownForest ReadGrown(const ForestState& state);

}  // namespace coppice::kernels::cuda
