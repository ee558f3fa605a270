// Keywords of a JSON schema that limit a count. Pure.
#pragma once

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

}  // namespace coppice::grammar
