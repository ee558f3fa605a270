#include "grammar/json_limits.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace coppice::grammar {
namespace {

constexpr int kMostCount = 100'000;

}  // namespace

absl::StatusOr<CountLimits> ReadLimits(const DocumentPlace& schema, const char* min,
                                       const char* max) {
  CountLimits limits;
  for (const char* key : {min, max}) {
    if (!Has(schema, key)) continue;
    const DocumentPlace place = At(schema, key);
    const double count = place.value->is_number() ? place.value->get<double>() : -1;
    if (count < 0 || std::floor(count) != count)
      return SchemaError(place.pointer, "it must be a number from 0 on without fraction");
    if (count > kMostCount)
      return SchemaError(place.pointer, absl::StrCat("more than ", kMostCount, " is not served"));
    (key == min ? limits.least : limits.most) = static_cast<int>(count);
    limits.there = true;
  }
  if (limits.most != Expression::kNoMost && limits.least > limits.most)
    return SchemaError(PointerTo(schema.pointer, max), absl::StrCat("it is below \"", min, "\""));
  return limits;
}

}  // namespace coppice::grammar
