// Hidden states of the target that have come for rows which a draft has not computed yet
// (decoding/draft_request.h, RowStates). Each session of a draft that takes states has one.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace coppice::draft_node {

// InvalidArgument: a row must be computed, and its state has not come.
absl::Status MissingState(int row);

class HeldStates {
 public:
  // columns: of a state.
  explicit HeldStates(int columns) : columns_(columns) {}

  int columns() const { return columns_; }
  int rows() const { return static_cast<int>(states_.size()); }
  // The states of rows first, first + 1, ...: values [rows, columns] bf16. Rows that have one keep
  // it.
  void Add(int first, absl::Span<const uint16_t> values);
  // [columns] bf16, valid until the row is dropped. Empty: none has come.
  absl::Span<const uint16_t> Find(int row) const;
  // How many rows from `first` on have a state without a gap; at most `most`.
  int CountFrom(int first, int most) const;
  void DropBelow(int row) { states_.erase(states_.begin(), states_.lower_bound(row)); }
  void Clear() { states_.clear(); }

 private:
  int columns_;
  std::map<int, std::vector<uint16_t>> states_;  // by row
};

}  // namespace coppice::draft_node
