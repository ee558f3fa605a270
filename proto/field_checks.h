// Checks of one message field: InvalidArgument "field: what" or "field[index]: what". Included only
// by convert*.cc.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace coppice::proto::wire {

// Far above any time in ms and any mean. Sums of such values stay finite.
inline constexpr double kMostStatistic = 1e15;

inline absl::Status Bad(absl::string_view field, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", what));
}
inline absl::Status BadEntry(absl::string_view field, int64_t index, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(field, "[", index, "]: ", what));
}

inline absl::Status CheckRange(absl::string_view field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return Bad(field, absl::StrCat(value, " is not in [", low, ", ", high, "]"));
}
inline absl::Status CheckRange(absl::string_view field, double value, double low, double high) {
  if (value >= low && value <= high) return absl::OkStatus();  // false for NaN
  return Bad(field, absl::StrCat(value, " is not in [", low, ", ", high, "]"));
}
inline absl::Status CheckLength(absl::string_view field, size_t length, size_t wanted) {
  if (length == wanted) return absl::OkStatus();
  return Bad(field, absl::StrCat(length, " entries, want ", wanted));
}
inline absl::Status CheckEntries(absl::string_view field, absl::Span<const int32_t> values,
                                 int64_t low, int64_t end) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] < low || values[i] >= end) {
      return BadEntry(field, i, absl::StrCat(values[i], " is not in [", low, ", ", end, ")"));
    }
  }
  return absl::OkStatus();
}
// offsets [n + 1]: starts at 0, never decreases, ends at `size`.
inline absl::Status CheckOffsets(absl::string_view field, absl::Span<const int32_t> offsets,
                                 size_t size) {
  if (offsets.empty() || offsets.front() != 0) return Bad(field, "does not start with 0");
  for (size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] < offsets[i - 1]) return BadEntry(field, i, "falls");
  }
  if (offsets.back() == static_cast<int64_t>(size)) return absl::OkStatus();
  return BadEntry(field, offsets.size() - 1, absl::StrCat(offsets.back(), ", want ", size));
}

template <typename Repeated>
auto ToVector(const Repeated& repeated) {
  return std::vector<std::decay_t<decltype(*repeated.begin())>>(repeated.begin(), repeated.end());
}
template <typename Values, typename Repeated>
void Fill(const Values& values, Repeated* repeated) {
  repeated->Assign(values.begin(), values.end());
}

}  // namespace coppice::proto::wire
