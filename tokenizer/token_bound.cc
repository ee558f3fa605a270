#include "tokenizer/token_bound.h"

#include <algorithm>
#include <cstdint>

#include "tokenizer/utf8.h"

namespace coppice::tokenizer {
namespace {

constexpr size_t kMostOfCharacter = 4;  // bytes

size_t RoundedUp(size_t bytes, size_t most) { return (bytes + most - 1) / most; }

// The character whose run, endless on both sides, has these bytes; "" if there is none, or if they
// are less than a character.
std::string CharacterOfRun(absl::string_view bytes) {
  for (size_t period = 1; period <= std::min(kMostOfCharacter, bytes.size()); ++period) {
    if (bytes.substr(period) != bytes.substr(0, bytes.size() - period)) continue;
    for (size_t begin = 0; begin < period; ++begin) {
      std::string character(bytes.substr(begin, period - begin));
      character.append(bytes.data(), begin);
      const Utf8Char c = NextUtf8Char(character);
      if (c.valid && static_cast<size_t>(c.length) == period) return character;
    }
  }
  return "";
}

}  // namespace

void TokenBound::AddToken(absl::string_view bytes) {
  longest_ = std::max(longest_, bytes.size());
  const std::string character = CharacterOfRun(bytes);
  if (character.empty()) return;
  size_t& longest = longest_of_run_[character];
  longest = std::max(longest, bytes.size());
}

size_t TokenBound::FewestOfRuns(absl::string_view text,
                                absl::FunctionRef<bool(absl::string_view)> keeps_run) const {
  size_t fewest = 0;
  for (size_t begin = 0; begin < text.size();) {
    const absl::string_view c = text.substr(begin, NextUtf8Char(text.substr(begin)).length);
    size_t end = begin + c.size();
    while (text.substr(end, c.size()) == c) end += c.size();
    // A token at either end may have bytes of what is beside the run.
    const size_t ends = 2 * (longest_ + c.size());
    if (end - begin > ends && keeps_run(c)) {
      const auto known = longest_of_run_.find(c);
      const size_t most = std::max(known == longest_of_run_.end() ? 0 : known->second,
                                   c.size() == 1 ? 1 : kMostOfCharacter);
      fewest += RoundedUp(end - begin - ends, most);
    }
    begin = end;
  }
  return fewest;
}

size_t TokenBound::Fewest(absl::string_view text,
                          absl::FunctionRef<bool(absl::string_view)> keeps_run) const {
  size_t count = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const uint8_t c = text[i], next = i + 1 < text.size() ? text[i + 1] : 0;
    count += c < 0x80 && next < 0x80 && kept[c];
  }
  size_t fewest = FewestOfRuns(text, keeps_run);
  if (of_all > 0) fewest = std::max(fewest, RoundedUp(text.size(), of_all));
  if (longest_ > 0) fewest = std::max(fewest, RoundedUp(count, longest_));
  return fewest;
}

}  // namespace coppice::tokenizer
