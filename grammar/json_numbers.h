// Numbers of a JSON schema: "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum",
// "multipleOf". Their limits are compared digit by digit, so the grammar is exact. Not thread-safe.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "grammar/decimal.h"
#include "grammar/expression.h"
#include "grammar/json_document.h"
#include "grammar/json_rules.h"

namespace coppice::grammar {

class JsonNumbers {
 public:
  // rules must outlive this.
  explicit JsonNumbers(JsonRules* rules) : rules_(*rules) {}

  // The numbers that a schema allows. With limits they have no exponent: integers (`whole`) up to 16
  // digits, or as many as a bound has, up to 19; others up to 15 before and after the point
  // together, since different numbers of so few digits stay different where a client reads them as
  // doubles. InvalidArgument names the keyword, also where no number is allowed.
  absl::StatusOr<Part> OfSchema(const DocumentPlace& schema, bool whole);

 private:
  static constexpr int kFree = -1;
  struct Bound {
    Decimal value;
    bool exclusive = false;
  };
  // The numbers are multiples of `unit` / 10^`places`.
  struct Step {
    int64_t unit = 1;
    int places = 0;
    auto operator<=>(const Step&) const = default;
  };
  struct Limits {
    std::optional<Bound> low, high;
    std::optional<Step> step;
  };
  // Where a number is while its digits are written.
  struct State {
    Step step;
    int digits = 0;       // that follow before the point
    int decimals = 0;     // that may follow after it
    bool point = false;   // it has been written
    bool needs = false;   // a decimal must follow
    bool first = false;   // the next digit is the first of several
    int of_low = kFree;   // so many digits are those of the bound; kFree: they are above it
    int of_high = kFree;  // the same; kFree: they are below it
    // Of the digits so far as an integer. What any further digits make equal is not told apart.
    int64_t remainder = 0;

    bool free() const { return of_low == kFree && of_high == kFree; }
    auto operator<=>(const State&) const = default;
  };
  // The magnitudes between two bounds from zero on.
  struct Range {
    Bound low;
    std::optional<Bound> high;
    std::map<State, std::optional<Part>> parts;  // those that are not free
  };

  static std::optional<Bound> Tighter(const std::optional<Decimal>& inclusive,
                                      const std::optional<Decimal>& exclusive, int side);
  static absl::StatusOr<std::optional<Bound>> ReadBound(const DocumentPlace& schema,
                                                        const char* key, const char* exclusive_key,
                                                        int side);
  static absl::StatusOr<std::optional<Step>> ReadStep(const DocumentPlace& schema, bool whole);
  static absl::StatusOr<Limits> ReadLimits(const DocumentPlace& schema, bool whole);
  static bool MayEnd(const State& state, const Range& range);
  static std::optional<State> After(State state, int digit, const Range& range);
  // The rest of a number from a state on. nullopt: no number goes on from here.
  std::optional<Part> From(const State& state, Range* range);
  void AddDigits(const State& state, Range* range, std::vector<Part>* choices);
  std::optional<Part> OfLength(int digits, int decimals, const Step& step, Range* range);

  JsonRules& rules_;
  std::map<State, std::optional<Part>> free_;  // those without bounds, of all schemas
};

}  // namespace coppice::grammar
