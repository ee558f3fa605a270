#include "grammar/json_numbers.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status.h"

namespace coppice::grammar {
namespace {

constexpr int kUsualDigits = 16;
constexpr int kLongestInteger = 19;
constexpr int kExactDigits = 15;  // of a double
constexpr int kMostUnit = 1000;
constexpr int kMostFactor = 300;
constexpr int kLongestStep = 9;  // of a step
constexpr char kStep[] = "multipleOf";

int64_t PowerOfTen(int exponent) { return exponent == 0 ? 1 : 10 * PowerOfTen(exponent - 1); }

bool HasLimits(const DocumentPlace& schema) {
  constexpr const char* kLimits[] = {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum",
                                     kStep};
  return std::any_of(std::begin(kLimits), std::end(kLimits),
                     [&](const char* key) { return Has(schema, key); });
}

absl::StatusOr<std::optional<Decimal>> ReadNumber(const DocumentPlace& schema, const char* key) {
  if (!Has(schema, key)) return std::optional<Decimal>();
  const DocumentPlace place = At(schema, key);
  if (!place.value->is_number()) return SchemaError(place.pointer, "it must be a number");
  std::optional<Decimal> number = Decimal::Parse(place.value->dump());
  if (!number) return SchemaError(place.pointer, "it has too many digits");
  return number;
}

int WholeDigits(const std::optional<Decimal>& number) {
  return number ? static_cast<int>(number->whole.size()) : 0;
}

}  // namespace

// side: as of Tighter. In draft 4 the exclusive bound is true or false and says what the other is.
absl::StatusOr<std::optional<JsonNumbers::Bound>> JsonNumbers::ReadBound(
    const DocumentPlace& schema, const char* key, const char* exclusive_key, int side) {
  COPPICE_ASSIGN_OR_RETURN(const auto inclusive, ReadNumber(schema, key));
  if (Has(schema, exclusive_key) && At(schema, exclusive_key).value->is_boolean()) {
    if (!inclusive) return std::optional<Bound>();
    return std::optional(Bound{*inclusive, *At(schema, exclusive_key).value == true});
  }
  COPPICE_ASSIGN_OR_RETURN(const auto exclusive, ReadNumber(schema, exclusive_key));
  return Tighter(inclusive, exclusive, side);
}

// The tighter of two bounds. side: 1 for lower bounds, -1 for upper ones.
std::optional<JsonNumbers::Bound> JsonNumbers::Tighter(const std::optional<Decimal>& inclusive,
                                                       const std::optional<Decimal>& exclusive,
                                                       int side) {
  if (!inclusive && !exclusive) return std::nullopt;
  if (!exclusive) return Bound{*inclusive, false};
  if (!inclusive || Compare(*exclusive, *inclusive) * side >= 0) return Bound{*exclusive, true};
  return Bound{*inclusive, false};
}

absl::StatusOr<std::optional<JsonNumbers::Step>> JsonNumbers::ReadStep(const DocumentPlace& schema,
                                                                       bool whole) {
  COPPICE_ASSIGN_OR_RETURN(const auto number, ReadNumber(schema, kStep));
  if (!number) return std::optional<Step>();
  const std::string pointer = PointerTo(schema.pointer, kStep);
  if (number->negative || number->zero()) return SchemaError(pointer, "it must be above 0");
  const absl::Status refused = SchemaError(
      pointer, absl::StrCat("steps of more than ", kMostUnit, " times a power of ten, or with a ",
                            "factor other than 2 and 5 above ", kMostFactor, ", or more than ",
                            kLongestStep, " decimals are not served"));
  Step step;
  step.places = static_cast<int>(number->fraction.size());
  const bool fits = absl::SimpleAtoi(number->whole + number->fraction, &step.unit);
  if (!fits || step.places > kLongestStep) return refused;
  if (whole) {  // the integers among the multiples
    step.unit /= std::gcd(step.unit, PowerOfTen(step.places));
    step.places = 0;
  }
  int64_t factor = step.unit;
  while (factor % 10 == 0) factor /= 10;
  if (factor > kMostUnit) return refused;
  for (const int prime : {2, 5}) {
    while (factor % prime == 0) factor /= prime;
  }
  if (factor > kMostFactor) return refused;
  return std::optional(step);
}

absl::StatusOr<JsonNumbers::Limits> JsonNumbers::ReadLimits(const DocumentPlace& schema,
                                                            bool whole) {
  COPPICE_ASSIGN_OR_RETURN(const auto low, ReadBound(schema, "minimum", "exclusiveMinimum", 1));
  COPPICE_ASSIGN_OR_RETURN(const auto high, ReadBound(schema, "maximum", "exclusiveMaximum", -1));
  COPPICE_ASSIGN_OR_RETURN(const auto step, ReadStep(schema, whole));
  return Limits{low, high, step};
}

bool JsonNumbers::MayEnd(const State& state, const Range& range) {
  if (state.digits > 0 || state.needs || state.remainder != 0) return false;
  if (state.of_low != kFree && (state.of_low < range.low.value.digits() || range.low.exclusive))
    return false;
  const bool is_high = state.of_high != kFree && state.of_high >= range.high->value.digits();
  return !(is_high && range.high->exclusive);
}

// nullopt: the digit leaves the bounds, or no further digits make a multiple of the step.
std::optional<JsonNumbers::State> JsonNumbers::After(State state, int digit, const Range& range) {
  if (state.of_low != kFree) {
    const int least = range.low.value.Digit(state.of_low);
    if (digit < least) return std::nullopt;
    state.of_low = digit == least ? state.of_low + 1 : kFree;
  }
  if (state.of_high != kFree) {
    const int most = range.high->value.Digit(state.of_high);
    if (digit > most) return std::nullopt;
    state.of_high = digit == most ? state.of_high + 1 : kFree;
  }
  --(state.digits > 0 ? state.digits : state.decimals);
  state.first = state.needs = false;
  const int64_t unit = state.step.unit, power = PowerOfTen(state.digits + state.decimals);
  state.remainder = (state.remainder * 10 + digit) % (unit / std::gcd(unit, power));
  // What the further digits must be, as an integer, by the unit.
  const absl::int128 missing = unit - absl::int128(state.remainder) * power % unit;
  if (missing % unit >= power) return std::nullopt;
  return state;
}

std::optional<Part> JsonNumbers::From(const State& state, Range* range) {
  auto& parts = state.free() ? free_ : range->parts;
  const auto [known, added] = parts.try_emplace(state);
  if (!added) return known->second;
  std::vector<Part> choices;
  if (MayEnd(state, *range)) choices.push_back(Sequence({}));
  if (state.digits > 0 || (state.point && state.decimals > 0)) AddDigits(state, range, &choices);
  if (state.digits == 0 && !state.point && state.decimals > 0) {
    State point = state;
    point.point = point.needs = true;
    if (const auto rest = From(point, range)) choices.push_back(Sequence({Literal("."), *rest}));
  }
  if (choices.empty()) return std::nullopt;
  const int rule = rules_.Add("number");
  rules_.Set(rule, Choice(std::move(choices)));
  return parts[state] = Rule(rule);
}

void JsonNumbers::AddDigits(const State& state, Range* range, std::vector<Part>* choices) {
  std::map<int, CodePoints> digits_to;  // by the rule that follows
  for (int digit = state.first ? 1 : 0; digit <= 9; ++digit) {
    const std::optional<State> next = After(state, digit, *range);
    const std::optional<Part> rest = next ? From(*next, range) : std::nullopt;
    const auto character = static_cast<uint32_t>('0' + digit);
    if (rest) digits_to[(*rest)->rule].emplace_back(character, character);
  }
  for (auto& [rule, digits] : digits_to)
    choices->push_back(Sequence({Character(std::move(digits)), Rule(rule)}));
}

// The numbers with so many digits before the point, and at most so many decimals.
std::optional<Part> JsonNumbers::OfLength(int digits, int decimals, const Step& step,
                                          Range* range) {
  State start;
  start.step = step;
  start.digits = digits;
  start.decimals = decimals;
  start.first = digits > 1;
  const int of_low = WholeDigits(range->low.value);
  const int of_high = range->high ? WholeDigits(range->high->value) : digits + 1;
  if (digits < of_low || digits > of_high) return std::nullopt;
  if (digits == of_low) start.of_low = 0;
  if (digits == of_high) start.of_high = 0;
  return From(start, range);
}

absl::StatusOr<Part> JsonNumbers::OfSchema(const DocumentPlace& schema, bool whole) {
  if (!HasLimits(schema)) return whole ? rules_.Integer() : rules_.Number();
  COPPICE_ASSIGN_OR_RETURN(const Limits limits, ReadLimits(schema, whole));
  const Step step = limits.step.value_or(Step());
  int most_digits = whole ? kUsualDigits : kExactDigits - step.places;
  for (const auto& bound : {limits.low, limits.high}) {
    if (whole && bound)
      most_digits = std::clamp(WholeDigits(bound->value), most_digits, kLongestInteger);
  }
  std::vector<Part> choices;
  const auto add = [&](absl::string_view sign, const Bound& low, const std::optional<Bound>& high) {
    Range range{low, high, {}};
    for (int digits = 1; digits <= most_digits; ++digits) {
      const int decimals = whole ? 0 : limits.step ? step.places : kExactDigits - digits;
      if (const auto part = OfLength(digits, decimals, step, &range))
        choices.push_back(Sequence({Literal(sign), *part}));
    }
  };
  const auto opposite = [](const Bound& bound) {
    return Bound{bound.value.Opposite(), bound.exclusive};
  };
  const bool low_negative = !limits.low || limits.low->value.negative;
  const bool high_negative = limits.high && limits.high->value.negative;
  if (low_negative) {
    const Bound above_zero{Decimal(), true};
    add("-", high_negative ? opposite(*limits.high) : above_zero,
        limits.low ? std::optional(opposite(*limits.low)) : std::nullopt);
  }
  if (!high_negative) add("", low_negative ? Bound() : *limits.low, limits.high);
  if (!choices.empty()) return Choice(std::move(choices));
  return SchemaError(schema.pointer, absl::StrCat("no ", whole ? "integer" : "number", " of ",
                                                  most_digits, " digits is within the limits"));
}

}  // namespace coppice::grammar
