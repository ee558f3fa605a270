// What a client may see of a completion, computed the slow way from all its bytes at once: the text
// of docs/api.md 4 and where a stop string cuts it. Shares no code with the detokenizer and the stop
// matchers, whose fuzzer compares them with it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace coppice::coordinator {

// How many bytes at `at` are one character, or the longest start of one (an invalid part; at least
// 1). whole: it is a character. A sequence of n bytes holds the code points low[n] to high[n],
// without the surrogates; a start of one is good if some way to go on gives one of them.
inline size_t NaiveCharacter(const std::string& bytes, size_t at, bool* whole) {
  constexpr uint32_t kLow[] = {0, 0, 0x80, 0x800, 0x10000};
  constexpr uint32_t kHigh[] = {0, 0x7f, 0x7ff, 0xffff, 0x10ffff};
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(bytes[i])); };
  const uint32_t lead = byte(at);
  const size_t length = lead < 0x80           ? 1
                        : (lead >> 5) == 6    ? 2
                        : (lead >> 4) == 0xe  ? 3
                        : (lead >> 3) == 0x1e ? 4
                                              : 0;
  *whole = false;
  size_t good = 0;
  uint32_t value = length == 1 ? lead : lead & ((1u << (7 - length)) - 1);
  for (size_t have = 1; length > 0 && have <= length && at + have <= bytes.size(); ++have) {
    if (have > 1) {
      if ((byte(at + have - 1) >> 6) != 2) break;
      value = value << 6 | (byte(at + have - 1) & 0x3f);
    }
    const int missing = static_cast<int>(6 * (length - have));
    const uint32_t first = std::max(value << missing, kLow[length]);
    const uint32_t last = std::min(((value + 1) << missing) - 1, kHigh[length]);
    if (first > last || (first >= 0xd800 && last <= 0xdfff)) break;
    good = have;
  }
  *whole = length > 0 && good == length;
  return std::max<size_t>(good, 1);
}

struct NaiveText {
  std::string settled;  // no later byte can change it
  std::string rest;     // if no more bytes follow
};

// The text of bytes from `prompt` on, where the prompt's own text ends. A character that begins in
// the prompt counts; an invalid part that begins there does not: the prompt's text has its U+FFFD.
inline NaiveText NaiveCompletion(const std::string& bytes, size_t prompt) {
  NaiveText text;
  for (size_t at = 0; at < bytes.size();) {
    bool whole = false, more = false;
    const size_t length = NaiveCharacter(bytes, at, &whole);
    if (!whole && at + length == bytes.size()) {  // would another byte be part of it?
      for (int next = 0x80; next < 0xc0; ++next)
        more = more || NaiveCharacter(bytes + static_cast<char>(next), at, &whole) > length;
      whole = false;
    }
    const bool counts = at >= prompt || (whole && at + length > prompt);
    if (counts)
      (more ? text.rest : text.settled) += whole ? bytes.substr(at, length) : "\xef\xbf\xbd";
    at += length;
  }
  return text;
}

struct NaiveStop {
  size_t begin, end;
};

// The match that ends first; of those, the one that begins first.
inline std::optional<NaiveStop> FindStop(const std::string& text,
                                         const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0)
        longest = std::max(longest, stop.size());
    }
    if (longest > 0) return NaiveStop{end - longest, end};
  }
  return std::nullopt;
}

// Bytes at the end of the text that are the start of a stop string, but not all of it.
inline size_t StartOfStop(const std::string& text, const std::vector<std::string>& stops) {
  size_t longest = 0;
  for (const std::string& stop : stops) {
    for (size_t n = 1; n < stop.size() && n <= text.size(); ++n) {
      if (text.substr(text.size() - n) == stop.substr(0, n)) longest = std::max(longest, n);
    }
  }
  return longest;
}

}  // namespace coppice::coordinator
