#include "grammar/decimal.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"

namespace coppice::grammar {
namespace {

constexpr int kMostShift = 400;  // a double has no larger exponent

}  // namespace

Decimal Decimal::Opposite() const {
  Decimal opposite = *this;
  opposite.negative = !negative && !zero();
  return opposite;
}

int Decimal::Digit(int place) const {
  const size_t at = static_cast<size_t>(place);
  if (at < whole.size()) return whole[at] - '0';
  return place < digits() ? fraction[at - whole.size()] - '0' : 0;
}

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
    const size_t kept = decimal.whole.size() - static_cast<size_t>(-shift);
    decimal.fraction.insert(0, decimal.whole.substr(kept));
    decimal.whole.erase(kept);
  }
  decimal.fraction.erase(decimal.fraction.find_last_not_of('0') + 1);
  decimal.whole.erase(0, std::min(decimal.whole.find_first_not_of('0'), decimal.whole.size()));
  if (decimal.whole.empty()) decimal.whole = "0";
  if (decimal.zero()) decimal.negative = false;
  return decimal;
}

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

}  // namespace coppice::grammar
