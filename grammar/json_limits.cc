#include "grammar/json_limits.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "grammar/json_integer.h"

namespace coppice::grammar {
namespace {

constexpr int kMostCount = 100'000;
constexpr int64_t kUsualLargest = 9'999'999'999'999'999;

// The first or last integer that a bound allows. nullopt: the bound is absent.
absl::StatusOr<std::optional<int64_t>> ReadBound(const DocumentPlace& schema, const char* key,
                                                 bool least, bool exclusive) {
  if (!Has(schema, key)) return std::optional<int64_t>();
  const DocumentPlace place = At(schema, key);
  if (!place.value->is_number()) return SchemaError(place.pointer, "it must be a number");
  const auto number = place.value->get<double>();
  if (std::abs(number) > static_cast<double>(kLargestInteger - 1))
    return SchemaError(place.pointer, "bounds beyond 1e18 are not served");
  const double near = least ? std::ceil(number) : std::floor(number);
  auto bound =
      place.value->is_number_float() ? static_cast<int64_t>(near) : place.value->get<int64_t>();
  if (exclusive && near == number) bound += least ? 1 : -1;
  return std::optional<int64_t>(bound);
}

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

absl::StatusOr<std::optional<std::pair<int64_t, int64_t>>> ReadIntegerBounds(
    const DocumentPlace& schema) {
  COPPICE_ASSIGN_OR_RETURN(auto least, ReadBound(schema, "minimum", true, false));
  COPPICE_ASSIGN_OR_RETURN(const auto above, ReadBound(schema, "exclusiveMinimum", true, true));
  COPPICE_ASSIGN_OR_RETURN(auto most, ReadBound(schema, "maximum", false, false));
  COPPICE_ASSIGN_OR_RETURN(const auto below, ReadBound(schema, "exclusiveMaximum", false, true));
  if (above.has_value()) least = std::max(least.value_or(*above), *above);
  if (below.has_value()) most = std::min(most.value_or(*below), *below);
  if (!least.has_value() && !most.has_value()) return std::optional<std::pair<int64_t, int64_t>>();
  const auto far = [](int64_t bound) {
    return std::abs(bound) > kUsualLargest ? kLargestInteger : kUsualLargest;
  };
  const int64_t from = least.has_value() ? *least : -far(*most);
  const int64_t to = most.has_value() ? *most : far(*least);
  if (from > to) return SchemaError(schema.pointer, "no integer is within the bounds");
  return std::make_optional(std::make_pair(from, to));
}

}  // namespace coppice::grammar
