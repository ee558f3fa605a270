#include "grammar/json_decimal.h"

#include <algorithm>
#include <compare>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status.h"

namespace coppice::grammar {
namespace {

constexpr int kMostShift = 400;  // a double has no larger exponent
constexpr int kUsualDigits = 16;
constexpr int kMostDigits = 19;
constexpr int kExactDigits = 15;  // of a double
constexpr int kMostUnit = 1000;
constexpr int kMostFactor = 300;
constexpr int kMostStepDigits = 9;

constexpr const char* kBounds[] = {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"};
constexpr char kStep[] = "multipleOf";

int64_t PowerOfTen(int exponent) { return exponent == 0 ? 1 : 10 * PowerOfTen(exponent - 1); }

absl::StatusOr<std::optional<Decimal>> ReadNumber(const DocumentPlace& schema, const char* key) {
  if (!Has(schema, key)) return std::optional<Decimal>();
  const DocumentPlace place = At(schema, key);
  if (!place.value->is_number()) return SchemaError(place.pointer, "it must be a number");
  std::optional<Decimal> number = Decimal::Parse(place.value->dump());
  if (!number) return SchemaError(place.pointer, "it has too many digits");
  return number;
}

// < 0: one is below other.
int Compare(const Decimal& one, const Decimal& other) {
  if (one.negative != other.negative) return one.negative ? -1 : 1;
  int larger = 0;  // in magnitude
  if (one.whole.size() != other.whole.size()) {
    larger = one.whole.size() < other.whole.size() ? -1 : 1;
  } else {
    larger = (one.whole + one.fraction).compare(other.whole + other.fraction);
  }
  return one.negative ? -larger : larger;
}

// The tighter of two bounds. side: 1 for lower bounds, -1 for upper ones.
std::optional<NumberLimits::Bound> Tighter(const std::optional<Decimal>& inclusive,
                                           const std::optional<Decimal>& exclusive, int side) {
  if (!inclusive && !exclusive) return std::nullopt;
  if (!exclusive) return NumberLimits::Bound{*inclusive, false};
  if (!inclusive || Compare(*exclusive, *inclusive) * side >= 0)
    return NumberLimits::Bound{*exclusive, true};
  return NumberLimits::Bound{*inclusive, false};
}

absl::StatusOr<NumberLimits> ReadNumberLimits(const DocumentPlace& schema) {
  NumberLimits limits;
  COPPICE_ASSIGN_OR_RETURN(const auto least, ReadNumber(schema, kBounds[0]));
  COPPICE_ASSIGN_OR_RETURN(const auto above, ReadNumber(schema, kBounds[1]));
  COPPICE_ASSIGN_OR_RETURN(const auto most, ReadNumber(schema, kBounds[2]));
  COPPICE_ASSIGN_OR_RETURN(const auto below, ReadNumber(schema, kBounds[3]));
  limits.low = Tighter(least, above, 1);
  limits.high = Tighter(most, below, -1);
  COPPICE_ASSIGN_OR_RETURN(limits.step, ReadNumber(schema, kStep));
  if (limits.step && (limits.step->negative || limits.step->zero()))
    return SchemaError(PointerTo(schema.pointer, kStep), "it must be above 0");
  return limits;
}

// A number is a multiple of `unit` / 10^`places`.
struct Step {
  int64_t unit = 1;
  int places = 0;
};

absl::StatusOr<Step> ReadStep(const Decimal& step, bool whole, const std::string& pointer) {
  const int places = static_cast<int>(step.fraction.size());
  const std::string digits = step.whole + step.fraction;
  Step read;
  const bool fits = absl::SimpleAtoi(digits, &read.unit);
  read.places = places;
  if (fits && whole && places <= kMostStepDigits) {
    read.unit /= std::gcd(read.unit, PowerOfTen(places));  // the integers among the multiples
    read.places = 0;
  }
  int64_t unit = read.unit;
  while (unit % 10 == 0) unit /= 10;
  int64_t factor = unit;
  for (const int prime : {2, 5}) {
    while (factor % prime == 0) factor /= prime;
  }
  if (!fits || read.places > kMostStepDigits || unit > kMostUnit || factor > kMostFactor) {
    return SchemaError(
        pointer, absl::StrCat("steps of more than ", kMostUnit, " times a power of ten, or with a ",
                              "factor other than 2 and 5 above ", kMostFactor, ", or more than ",
                              kMostStepDigits, " decimals are not served"));
  }
  return read;
}

constexpr int kFree = -1;

// Where a number is while its digits are written.
struct DigitState {
  int digits = 0;         // that follow before the point
  int decimals = 0;       // that may follow after it
  bool point = false;     // it has been written
  bool needs = false;     // a decimal must follow
  bool first = false;     // the next digit is the first of several
  int of_low = kFree;     // so many digits are those of the bound; kFree: they are above it
  int of_high = kFree;    // the same; kFree: they are below it
  int64_t remainder = 0;  // of the digits so far by the step; 0 if zeros make it a multiple

  auto operator<=>(const DigitState&) const = default;
};

// The digits of numbers from `low` to `high`, both from zero on. Each state becomes a rule.
class Magnitudes {
 public:
  Magnitudes(NumberLimits::Bound low, std::optional<NumberLimits::Bound> high, Step step,
             JsonRules* rules)
      : low_(std::move(low)), high_(std::move(high)), step_(step), rules_(*rules) {}

  // The numbers with so many digits before the point, and at most so many decimals. nullopt: there
  // are none.
  std::optional<Part> OfLength(int digits, int decimals) {
    const auto length = [](const Decimal& decimal) {
      return static_cast<int>(decimal.whole.size());
    };
    DigitState start;
    start.digits = digits;
    start.decimals = decimals;
    start.first = digits > 1;
    if (digits < length(low_.value)) return std::nullopt;
    if (digits == length(low_.value)) start.of_low = 0;
    if (high_ && digits > length(high_->value)) return std::nullopt;
    if (high_ && digits == length(high_->value)) start.of_high = 0;
    return From(start);
  }

 private:
  static int DigitAt(const Decimal& decimal, int place) {
    const size_t at = static_cast<size_t>(place), whole = decimal.whole.size();
    if (at < whole) return decimal.whole[at] - '0';
    return at - whole < decimal.fraction.size() ? decimal.fraction[at - whole] - '0' : 0;
  }

  static bool IsAtEnd(const Decimal& decimal, int place) {
    return static_cast<size_t>(place) >= decimal.whole.size() + decimal.fraction.size();
  }

  bool MayEnd(const DigitState& state) const {
    if (state.digits > 0 || state.needs) return false;
    if (state.of_low != kFree && (!IsAtEnd(low_.value, state.of_low) || low_.exclusive))
      return false;
    const bool is_high = state.of_high != kFree && IsAtEnd(high_->value, state.of_high);
    if (is_high && high_->exclusive) return false;
    return state.remainder == 0;
  }

  // nullopt: the digit leaves the bounds.
  std::optional<DigitState> After(DigitState state, int digit) const {
    if (state.of_low != kFree) {
      const int least = DigitAt(low_.value, state.of_low);
      if (digit < least) return std::nullopt;
      state.of_low = digit == least ? state.of_low + 1 : kFree;
    }
    if (state.of_high != kFree) {
      const int most = DigitAt(high_->value, state.of_high);
      if (digit > most) return std::nullopt;
      state.of_high = digit == most ? state.of_high + 1 : kFree;
    }
    --(state.digits > 0 ? state.digits : state.decimals);
    state.first = state.needs = false;
    // Remainders that any further digits make equal are not told apart.
    const int64_t left =
        step_.unit / std::gcd(step_.unit, PowerOfTen(state.digits + state.decimals));
    state.remainder = (state.remainder * 10 + digit) % left;
    return state;
  }

  std::optional<Part> From(const DigitState& state) {
    const auto [known, added] = parts_.try_emplace(state);
    if (!added) return known->second;
    std::vector<Part> choices;
    if (MayEnd(state)) choices.push_back(Sequence({}));
    if (state.digits > 0 || state.point) AddDigits(state, &choices);
    if (state.digits == 0 && !state.point && state.decimals > 0) {
      DigitState point = state;
      point.point = point.needs = true;
      if (const auto rest = From(point)) choices.push_back(Sequence({Literal("."), *rest}));
    }
    std::optional<Part> part;
    if (!choices.empty()) {
      const int rule = rules_.Add("number");
      rules_.Set(rule, Choice(std::move(choices)));
      part = Rule(rule);
    }
    parts_[state] = part;
    return part;
  }

  void AddDigits(const DigitState& state, std::vector<Part>* choices) {
    if (state.digits == 0 && state.decimals == 0) return;
    std::map<int, CodePoints> digits_to;  // by the rule that follows
    for (int digit = state.first ? 1 : 0; digit <= 9; ++digit) {
      const std::optional<DigitState> next = After(state, digit);
      const std::optional<Part> rest = next ? From(*next) : std::nullopt;
      const auto character = static_cast<uint32_t>('0' + digit);
      if (rest) digits_to[(*rest)->rule].emplace_back(character, character);
    }
    for (auto& [rule, digits] : digits_to)
      choices->push_back(Sequence({Character(std::move(digits)), Rule(rule)}));
  }

  const NumberLimits::Bound low_;
  const std::optional<NumberLimits::Bound> high_;
  const Step step_;
  JsonRules& rules_;
  std::map<DigitState, std::optional<Part>> parts_;
};

NumberLimits::Bound Opposite(NumberLimits::Bound bound) {
  bound.value.negative = !bound.value.negative && !bound.value.zero();
  return bound;
}

}  // namespace

std::optional<Decimal> Decimal::Parse(const std::string& text) {
  Decimal decimal;
  absl::string_view rest = text;
  decimal.negative = rest.substr(0, 1) == "-";
  rest.remove_prefix(decimal.negative ? 1 : 0);
  const size_t e = rest.find_first_of("eE");
  int shift = 0;  // places that the point moves to the right
  if (e != absl::string_view::npos) {
    if (!absl::SimpleAtoi(rest.substr(e + 1), &shift) || std::abs(shift) > kMostShift)
      return std::nullopt;
    rest = rest.substr(0, e);
  }
  const size_t point = std::min(rest.find('.'), rest.size());
  decimal.whole = std::string(rest.substr(0, point));
  if (point < rest.size()) decimal.fraction = std::string(rest.substr(point + 1));
  if (shift > 0) {
    decimal.fraction.resize(std::max<size_t>(decimal.fraction.size(), shift), '0');
    decimal.whole += decimal.fraction.substr(0, shift);
    decimal.fraction.erase(0, shift);
  } else if (shift < 0) {
    decimal.whole.insert(0, -shift, '0');
    decimal.fraction.insert(0, decimal.whole.substr(decimal.whole.size() + shift));
    decimal.whole.resize(decimal.whole.size() + shift);
  }
  decimal.fraction.erase(decimal.fraction.find_last_not_of('0') + 1);
  decimal.whole.erase(0, std::min(decimal.whole.find_first_not_of('0'), decimal.whole.size()));
  if (decimal.whole.empty()) decimal.whole = "0";
  if (decimal.zero()) decimal.negative = false;
  return decimal;
}

bool HasNumberLimits(const DocumentPlace& schema) {
  return Has(schema, kStep) || std::any_of(std::begin(kBounds), std::end(kBounds),
                                           [&](const char* key) { return Has(schema, key); });
}

absl::StatusOr<Part> LimitedNumber(const DocumentPlace& schema, bool whole, JsonRules* rules) {
  COPPICE_ASSIGN_OR_RETURN(const NumberLimits limits, ReadNumberLimits(schema));
  Step step;
  if (limits.step) {
    COPPICE_ASSIGN_OR_RETURN(step, ReadStep(*limits.step, whole, PointerTo(schema.pointer, kStep)));
  }
  size_t bound_digits = 0;
  for (const auto& bound : {limits.low, limits.high})
    bound_digits = std::max(bound_digits, bound ? bound->value.whole.size() : 0);
  const int usual = bound_digits > kUsualDigits ? kMostDigits : kUsualDigits;
  const int most_digits = whole ? usual : kExactDigits - (limits.step ? step.places : 0);
  std::vector<Part> choices;
  const auto add = [&](absl::string_view sign, const NumberLimits::Bound& low,
                       const std::optional<NumberLimits::Bound>& high) {
    Magnitudes magnitudes(low, high, step, rules);
    for (int digits = 1; digits <= most_digits; ++digits) {
      const int decimals = whole ? 0 : limits.step ? step.places : kExactDigits - digits;
      if (const auto part = magnitudes.OfLength(digits, decimals))
        choices.push_back(Sequence({Literal(sign), *part}));
    }
  };
  const NumberLimits::Bound zero{{false, "0", ""}, false}, above_zero{{false, "0", ""}, true};
  const bool low_negative = !limits.low || limits.low->value.negative;
  const bool high_negative = limits.high && limits.high->value.negative;
  if (low_negative) {
    add("-", high_negative ? Opposite(*limits.high) : above_zero,
        limits.low ? std::optional(Opposite(*limits.low)) : std::nullopt);
  }
  if (!high_negative) add("", low_negative ? zero : *limits.low, limits.high);
  if (choices.empty()) {
    return SchemaError(schema.pointer, absl::StrCat("no ", whole ? "integer" : "number", " of ",
                                                    most_digits, " digits is within the limits"));
  }
  return Choice(std::move(choices));
}

}  // namespace coppice::grammar
