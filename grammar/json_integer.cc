#include "grammar/json_integer.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace coppice::grammar {
namespace {

Part Digits(char first, char last, size_t count) {
  const auto begin = static_cast<uint32_t>(first), end = static_cast<uint32_t>(last);
  const auto times = static_cast<int>(count);
  return Repeat(Character({{begin, end}}), times, times);
}

// The texts from low to high, which have equal lengths.
Part SameLength(const std::string& low, const std::string& high) {
  if (low.empty()) return Sequence({});
  const std::string low_tail = low.substr(1), high_tail = high.substr(1);
  if (low[0] == high[0])
    return Sequence({Literal(low.substr(0, 1)), SameLength(low_tail, high_tail)});
  const size_t tail = low_tail.size();
  const std::string zeros(tail, '0'), nines(tail, '9');
  // The texts with the first digit of `low`, those between, and those with the first digit of
  // `high`.
  std::vector<Part> choices;
  char first = low[0], last = high[0];
  if (low_tail != zeros) {
    choices.push_back(Sequence({Literal(low.substr(0, 1)), SameLength(low_tail, nines)}));
    ++first;
  }
  if (high_tail != nines) {
    choices.push_back(Sequence({Literal(high.substr(0, 1)), SameLength(zeros, high_tail)}));
    --last;
  }
  if (first <= last) choices.push_back(Sequence({Digits(first, last, 1), Digits('0', '9', tail)}));
  return Choice(std::move(choices));
}

// 0 <= least.
void AddMagnitudes(int64_t least, int64_t most, absl::string_view sign,
                   std::vector<Part>* choices) {
  int64_t first = 0, last = 9;  // the numbers of one length
  for (;;) {
    const int64_t low = std::max(first, least), high = std::min(last, most);
    if (low <= high) {
      choices->push_back(
          Sequence({Literal(sign), SameLength(absl::StrCat(low), absl::StrCat(high))}));
    }
    if (last >= kLargestInteger) return;
    first = last + 1;
    last = last > kLargestInteger / 10 ? kLargestInteger : last * 10 + 9;
  }
}

}  // namespace

Part IntegerRange(int64_t least, int64_t most) {
  std::vector<Part> choices;
  if (least < 0) AddMagnitudes(std::max<int64_t>(1, -most), -least, "-", &choices);
  if (most >= 0) AddMagnitudes(std::max<int64_t>(0, least), most, "", &choices);
  return Choice(std::move(choices));
}

}  // namespace coppice::grammar
