#include "draft_node/held_states.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace coppice::draft_node {

absl::Status MissingState(int row) {
  return absl::InvalidArgumentError(
      absl::StrCat("states of row ", row, ": none have come, and the row must be computed"));
}

void HeldStates::Add(int first, absl::Span<const uint16_t> values) {
  COPPICE_CHECK(columns_ > 0 && values.size() % columns_ == 0);
  const int rows = static_cast<int>(values.size() / columns_);
  for (int i = 0; i < rows; ++i) {
    const auto state = values.subspan(size_t(i) * columns_, columns_);
    states_.try_emplace(first + i, state.begin(), state.end());
  }
}

absl::Span<const uint16_t> HeldStates::Find(int row) const {
  const auto found = states_.find(row);
  return found == states_.end() ? absl::Span<const uint16_t>() : found->second;
}

int HeldStates::CountFrom(int first, int most) const {
  int count = 0;
  for (auto it = states_.find(first); it != states_.end() && count < most; ++it, ++count) {
    if (it->first != first + count) break;
  }
  return count;
}

}  // namespace coppice::draft_node
