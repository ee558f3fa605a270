// A number as its decimal digits, so that it is compared without rounding. Pure.
#pragma once

#include <optional>
#include <string>

namespace coppice::grammar {

struct Decimal {
  bool negative = false;
  std::string whole = "0";  // without leading zeros, at least one digit
  std::string fraction;     // without trailing zeros

  bool zero() const { return whole == "0" && fraction.empty(); }
  Decimal Opposite() const;
  // The digit at a place, from the first of `whole` on; 0 behind the last.
  int Digit(int place) const;
  int digits() const { return static_cast<int>(whole.size() + fraction.size()); }

  // The text of a JSON number, which may have an exponent. nullopt: of more than 400.
  static std::optional<Decimal> Parse(const std::string& text);
};

// < 0: one is below other.
int Compare(const Decimal& one, const Decimal& other);

}  // namespace coppice::grammar
