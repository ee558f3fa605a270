#include "tokenizer/nfc.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "tokenizer/utf8.h"

namespace coppice::tokenizer {
namespace {

struct Decomposition {
  uint32_t code_point;
  uint32_t first, second;  // second 0 = a single character
  bool composes;           // first + second compose to code_point
};
struct CombiningClass {
  uint32_t begin, end;  // [begin, end)
  uint8_t value;
};

#include "tokenizer/nfc_tables.inc"

constexpr uint32_t kFirstChanged = 0x300;  // all characters below are in NFC and are not marks
// Hangul syllables are arithmetic: Unicode 15.0, section 3.12.
constexpr uint32_t kHangul = 0xAC00, kLead = 0x1100, kVowel = 0x1161, kTrail = 0x11A7;
constexpr uint32_t kLeads = 19, kVowels = 21, kTrails = 28;

struct Char {
  uint32_t code_point;
  uint8_t combining_class;
};

uint8_t ClassOf(uint32_t c) {
  const auto it = std::upper_bound(std::begin(kCombiningClasses), std::end(kCombiningClasses), c,
                                   [](uint32_t x, const CombiningClass& r) { return x < r.end; });
  return it != std::end(kCombiningClasses) && it->begin <= c ? it->value : 0;
}

void Decompose(uint32_t c, std::vector<Char>* out) {
  if (c >= kHangul && c < kHangul + kLeads * kVowels * kTrails) {
    const uint32_t index = c - kHangul;
    out->push_back({kLead + index / (kVowels * kTrails), 0});
    out->push_back({kVowel + index / kTrails % kVowels, 0});
    if (index % kTrails != 0) out->push_back({kTrail + index % kTrails, 0});
    return;
  }
  const auto it =
      std::lower_bound(std::begin(kDecompositions), std::end(kDecompositions), c,
                       [](const Decomposition& d, uint32_t x) { return d.code_point < x; });
  if (it == std::end(kDecompositions) || it->code_point != c) {
    out->push_back({c, ClassOf(c)});
    return;
  }
  Decompose(it->first, out);
  if (it->second != 0) Decompose(it->second, out);
}

// The primary composite of two characters, or 0.
uint32_t Compose(uint32_t first, uint32_t second) {
  if (first >= kLead && first < kLead + kLeads && second >= kVowel && second < kVowel + kVowels) {
    return kHangul + ((first - kLead) * kVowels + (second - kVowel)) * kTrails;
  }
  if (first >= kHangul && first < kHangul + kLeads * kVowels * kTrails &&
      (first - kHangul) % kTrails == 0 && second > kTrail && second < kTrail + kTrails) {
    return first + (second - kTrail);
  }
  static const auto* const pairs = [] {
    auto* sorted = new std::vector<std::pair<uint64_t, uint32_t>>;
    for (const Decomposition& d : kDecompositions) {
      if (d.composes) sorted->push_back({uint64_t{d.first} << 32 | d.second, d.code_point});
    }
    std::sort(sorted->begin(), sorted->end());
    return sorted;
  }();
  const uint64_t key = uint64_t{first} << 32 | second;
  const auto it = std::lower_bound(pairs->begin(), pairs->end(), std::pair{key, uint32_t{0}});
  return it != pairs->end() && it->first == key ? it->second : 0;
}

// UAX 15: each character joins the last starter before it, unless a character between blocks it.
std::vector<Char> ComposeAll(const std::vector<Char>& chars) {
  std::vector<Char> out;
  int starter = -1;
  for (const Char c : chars) {
    if (starter >= 0) {
      const bool adjacent = static_cast<size_t>(starter) + 1 == out.size();
      const bool blocked = !adjacent && out.back().combining_class >= c.combining_class;
      const uint32_t composed = blocked ? 0 : Compose(out[starter].code_point, c.code_point);
      if (composed != 0) {
        out[starter].code_point = composed;
        continue;
      }
    }
    out.push_back(c);
    if (c.combining_class == 0) starter = static_cast<int>(out.size()) - 1;
  }
  return out;
}

}  // namespace

std::string ToNfc(absl::string_view text) {
  std::vector<Char> chars;
  bool changed = false;
  for (absl::string_view rest = text; !rest.empty();) {
    const Utf8Char c = NextUtf8Char(rest);
    changed = changed || c.code_point >= kFirstChanged;
    Decompose(c.code_point, &chars);
    rest.remove_prefix(c.length);
  }
  if (!changed) return std::string(text);
  for (size_t i = 0; i < chars.size();) {  // canonical order: sort each run of marks by class
    size_t end = i;
    while (end < chars.size() && chars[end].combining_class != 0) ++end;
    std::stable_sort(chars.begin() + i, chars.begin() + end, [](const Char& a, const Char& b) {
      return a.combining_class < b.combining_class;
    });
    i = end + 1;
  }
  std::string out;
  for (const Char& c : ComposeAll(chars)) AppendUtf8(c.code_point, &out);
  return out;
}

}  // namespace coppice::tokenizer
