// Numbers of a JSON schema with bounds and a step ("minimum", "exclusiveMaximum", "multipleOf", ...)
// as a grammar of their decimal digits. No digit is compared as a binary fraction, so the grammar is
// exact. Pure.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "grammar/expression.h"
#include "grammar/json_document.h"
#include "grammar/json_rules.h"

namespace coppice::grammar {

// A number as its decimal digits. Zero has the digits "0" and "".
struct Decimal {
  bool negative = false;
  std::string whole;     // without leading zeros, at least one digit
  std::string fraction;  // without trailing zeros

  bool zero() const { return whole == "0" && fraction.empty(); }
  // The decimal text of a JSON number, which may have an exponent. nullopt: it has more than 400
  // digits.
  static std::optional<Decimal> Parse(const std::string& text);
};

struct NumberLimits {
  struct Bound {
    Decimal value;
    bool exclusive = false;
  };
  std::optional<Bound> low, high;
  std::optional<Decimal> step;  // the number is a multiple of it; above zero
};

// Whether the schema limits its numbers.
bool HasNumberLimits(const DocumentPlace& schema);

// The JSON texts of the numbers that the limits of the schema allow. They have no exponent. whole:
// integers, of up to 16 digits, or 19 if a bound has more than 16. Else numbers of up to 15 digits
// before and after the point together: different numbers of so few digits stay different where a
// client reads them as doubles. Errors name the keyword: InvalidArgument, also where no number is
// allowed.
absl::StatusOr<Part> LimitedNumber(const DocumentPlace& schema, bool whole, JsonRules* rules);

}  // namespace coppice::grammar
