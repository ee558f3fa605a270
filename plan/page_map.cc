#include "plan/page_map.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace coppice {
namespace {

absl::Status Bad(const char* field, size_t index, int group, int32_t block) {
  return absl::InvalidArgumentError(absl::StrCat("plan: ", field, "[", index, "]: block ", block,
                                                 " has no page in group ", group));
}

}  // namespace

PageMap::PageMap(std::vector<int> windows, int64_t blocks, int64_t pages)
    : windows_(std::move(windows)),
      blocks_(blocks),
      pages_(windows_.size(), std::vector<int32_t>(blocks)) {
  if (!windows_.empty()) holders_.resize(pages);
}

absl::Status PageMap::Apply(StepPlan* plan) {
  if (windows_.empty()) return absl::OkStatus();
  COPPICE_RETURN_IF_ERROR(Change(*plan));
  plan->groups.resize(windows_.size());
  for (int group = 0; group < groups(); ++group)
    COPPICE_RETURN_IF_ERROR(Fill(*plan, group, &plan->groups[group]));
  return absl::OkStatus();
}

// A page may leave one block and go to another in one plan, in any order.
absl::Status PageMap::Change(const StepPlan& plan) {
  for (const PageChange& change : plan.pages) {
    int32_t& page = pages_[change.group][change.block];
    --holders_[page];
    page = change.page;
    ++holders_[page];
  }
  for (size_t i = 0; i < plan.pages.size(); ++i) {
    const int32_t page = plan.pages[i].page;
    if (page == 0 || holders_[page] <= 1) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("plan: pages[", i, "]: page ", page, " has two blocks"));
  }
  return absl::OkStatus();
}

absl::Status PageMap::Fill(const StepPlan& plan, int group, GroupSlots* slots) const {
  const std::vector<int32_t>& page = pages_[group];
  const auto map_slots = [&](const char* field, const std::vector<int32_t>& from,
                             std::vector<int32_t>* to) {
    to->resize(from.size());
    for (size_t i = 0; i < from.size(); ++i) {
      const int32_t block = from[i] / kBlockSize;
      if (page[block] == 0) return Bad(field, i, group, block);
      (*to)[i] = page[block] * kBlockSize + from[i] % kBlockSize;
    }
    return absl::OkStatus();
  };
  COPPICE_RETURN_IF_ERROR(map_slots("slot", plan.slot, &slots->slot));
  COPPICE_RETURN_IF_ERROR(map_slots("chain", plan.chain, &slots->chain));
  slots->table.resize(plan.table.size());
  for (size_t i = 0; i < plan.table.size(); ++i) slots->table[i] = page[plan.table[i]];
  for (size_t s = 0; s < plan.segments.size(); ++s) {
    const Segment& segment = plan.segments[s];
    int32_t first = plan.position[segment.first_row], seen = 0;  // positions
    for (int row = segment.first_row; row < segment.first_row + segment.rows; ++row) {
      first = std::min(first, plan.position[row]);
      seen = std::max(seen, plan.prefix_length(row));
    }
    first = windows_[group] == 0 ? 0 : std::max(0, first + 1 - windows_[group]);
    const int32_t begin = plan.table_begin[s];
    for (int32_t i = first / kBlockSize; i * kBlockSize < seen; ++i) {
      if (slots->table[begin + i] == 0)
        return Bad("table", begin + i, group, plan.table[begin + i]);
    }
  }
  return absl::OkStatus();
}

}  // namespace coppice
