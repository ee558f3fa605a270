// Which page each block of the KV pool has in each group of layers, on one rank. The plans bring the
// changes, and every rank applies the same plans in order, so the maps of all ranks are equal. Owned
// by model/model_runner. Thread-compatible.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "plan/step_plan.h"

namespace coppice {

class PageMap {
 public:
  // windows: of each group, 0: its layers see everything; empty: a block is its own page, and there
  // is nothing to map. blocks, pages: with the sink.
  PageMap(std::vector<int> windows, int64_t blocks, int64_t pages);

  // Takes the changes of the plan and fills its `groups`. The plan must have passed CheckPlan.
  // InvalidArgument: a page has two blocks, or a row writes or sees a block that has no page; then
  // the map is that of no plan.
  absl::Status Apply(StepPlan* plan);

  int groups() const { return static_cast<int>(windows_.size()); }
  int64_t blocks() const { return blocks_; }
  // 0: none.
  int32_t page(int32_t block, int group) const { return pages_[group][block]; }

 private:
  absl::Status Change(const StepPlan& plan);
  absl::Status Fill(const StepPlan& plan, int group, GroupSlots* slots) const;

  const std::vector<int> windows_;
  const int64_t blocks_;
  std::vector<std::vector<int32_t>> pages_;  // [groups][blocks]
  std::vector<int32_t> holders_;             // [pages] blocks that have the page: at most one
};

}  // namespace coppice
