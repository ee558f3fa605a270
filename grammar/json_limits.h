// Keywords of a JSON schema that are numbers. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "grammar/expression.h"
#include "grammar/json_document.h"

namespace coppice::grammar {

struct CountLimits {
  int least = 0;
  int most = Expression::kNoMost;
  bool there = false;
};
// Reads two keywords that limit a count. Either may be absent.
absl::StatusOr<CountLimits> ReadLimits(const DocumentPlace& schema, const char* min,
                                       const char* max);

// The first and last integer within minimum, exclusiveMinimum, maximum, exclusiveMaximum; nullopt:
// all of these are absent. A side without a bound has 16 digits, or 19 if the other has more than
// 16.
absl::StatusOr<std::optional<std::pair<int64_t, int64_t>>> ReadIntegerBounds(
    const DocumentPlace& schema);

}  // namespace coppice::grammar
