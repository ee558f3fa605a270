#include "grammar/expression.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"

namespace coppice::grammar {
namespace {

constexpr uint32_t kLastCodePoint = 0x10ffff;

Part Make(Expression expression) {
  return std::make_shared<const Expression>(std::move(expression));
}

Part Byte(uint8_t first, uint8_t last) {
  Expression expression;
  expression.kind = Expression::Kind::kByte;
  expression.bytes = {{first, last}};
  return Make(std::move(expression));
}

Part ByteInToken(std::vector<std::pair<uint8_t, uint8_t>> ranges) {
  Expression expression;
  expression.kind = Expression::Kind::kByte;
  expression.bytes = std::move(ranges);
  expression.in_tokens = true;
  return Make(std::move(expression));
}

// Ascending, not overlapping, without surrogates.
CodePoints Tidy(CodePoints ranges) {
  constexpr uint32_t kFirstSurrogate = 0xd800, kLastSurrogate = 0xdfff;
  CodePoints kept;
  for (auto [first, last] : ranges) {
    last = std::min(last, kLastCodePoint);
    if (first > last) continue;
    if (first < kFirstSurrogate) kept.emplace_back(first, std::min(last, kFirstSurrogate - 1));
    if (last > kLastSurrogate) kept.emplace_back(std::max(first, kLastSurrogate + 1), last);
  }
  std::sort(kept.begin(), kept.end());
  CodePoints tidy;
  for (const auto& [first, last] : kept) {
    if (!tidy.empty() && first <= tidy.back().second + 1) {
      tidy.back().second = std::max(tidy.back().second, last);
    } else {
      tidy.emplace_back(first, last);
    }
  }
  return tidy;
}

struct Utf8 {
  std::array<uint8_t, 4> bytes;
  int length;
};

Utf8 Encode(uint32_t c) {
  const auto tail = [c](int shift) { return static_cast<uint8_t>(0x80 | (c >> shift & 0x3f)); };
  if (c < 0x80) return {{static_cast<uint8_t>(c)}, 1};
  if (c < 0x800) return {{static_cast<uint8_t>(0xc0 | c >> 6), tail(0)}, 2};
  if (c < 0x10000) return {{static_cast<uint8_t>(0xe0 | c >> 12), tail(6), tail(0)}, 3};
  return {{static_cast<uint8_t>(0xf0 | c >> 18), tail(12), tail(6), tail(0)}, 4};
}

// The characters from first to last have encodings of `length` bytes that are equal before byte
// `at`. Adds the bytes from `at` on.
void AddTails(uint32_t first, uint32_t last, int at, int length, std::vector<Part> before,
              std::vector<Part>* choices) {
  const Utf8 low = Encode(first), high = Encode(last);
  const uint32_t below = at + 1 < length ? (uint32_t{1} << (6 * (length - 1 - at))) - 1 : 0;
  if ((first & below) == 0 && (last & below) == below) {  // every tail is there
    before.push_back(Byte(low.bytes[at], high.bytes[at]));
    for (int i = at + 1; i < length; ++i) before.push_back(Byte(0x80, 0xbf));
    choices->push_back(Sequence(std::move(before)));
    return;
  }
  if (low.bytes[at] == high.bytes[at]) {
    before.push_back(Byte(low.bytes[at], low.bytes[at]));
    return AddTails(first, last, at + 1, length, std::move(before), choices);
  }
  // The characters of the first byte, those between, and those of the last byte.
  uint32_t begin = first, end = last;
  if ((first & below) != 0) {
    AddTails(first, first | below, at, length, before, choices);
    begin = (first | below) + 1;
  }
  if ((last & below) != below) {
    end = (last & ~below) - 1;
    AddTails(last & ~below, last, at, length, before, choices);
  }
  if (begin <= end) AddTails(begin, end, at, length, std::move(before), choices);
}

}  // namespace

int64_t CountExpressions(const Expression& part) {
  int64_t inner = 1;
  for (const Part& one : part.parts) inner += CountExpressions(*one);
  const int64_t times =
      part.kind == Expression::Kind::kRepeat ? std::max({part.least, part.most, 1}) : 1;
  return std::min(inner, kMostExpressions / times) * times;
}

Part Literal(absl::string_view bytes) {
  std::vector<Part> parts;
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    parts.push_back(Byte(byte, byte));
  }
  return Sequence(std::move(parts));
}

Part SpecialToken(absl::string_view name) {
  std::vector<Part> parts;
  for (const char c : absl::StrCat(absl::string_view(&kSpecialMark, 1), name)) {
    const auto byte = static_cast<uint8_t>(c);
    parts.push_back(ByteInToken({{byte, byte}}));
  }
  return Sequence(std::move(parts));
}

Part AnyText(std::vector<std::string> without, std::vector<std::string> not_begins) {
  Expression expression;
  expression.kind = Expression::Kind::kAnyText;
  expression.without = std::move(without);
  expression.not_begins = std::move(not_begins);
  return Make(std::move(expression));
}

Part Sequence(std::vector<Part> parts) {
  if (parts.size() == 1) return parts[0];
  Expression expression;
  expression.kind = Expression::Kind::kSequence;
  expression.parts = std::move(parts);
  return Make(std::move(expression));
}

Part Choice(std::vector<Part> parts) {
  if (parts.size() == 1) return parts[0];
  Expression expression;
  expression.kind = Expression::Kind::kChoice;
  expression.parts = std::move(parts);
  return Make(std::move(expression));
}

Part Repeat(Part part, int least, int most) {
  Expression expression;
  expression.kind = Expression::Kind::kRepeat;
  expression.parts = {std::move(part)};
  expression.least = least;
  expression.most = most;
  return Make(std::move(expression));
}

Part Optional(Part part) { return Repeat(std::move(part), 0, 1); }

Part Rule(int rule) {
  Expression expression;
  expression.kind = Expression::Kind::kRule;
  expression.rule = rule;
  return Make(std::move(expression));
}

Part Character(CodePoints ranges) {
  constexpr uint32_t kFirstOfLength[] = {0, 0x80, 0x800, 0x10000, kLastCodePoint + 1};
  Expression one;  // characters of one byte
  one.kind = Expression::Kind::kByte;
  std::vector<Part> choices;
  for (const auto& [first, last] : Tidy(std::move(ranges))) {
    for (int length = 1; length <= 4; ++length) {
      const uint32_t begin = std::max(first, kFirstOfLength[length - 1]);
      const uint32_t end = std::min(last, kFirstOfLength[length] - 1);
      if (begin > end) continue;
      if (length == 1) {
        one.bytes.emplace_back(static_cast<uint8_t>(begin), static_cast<uint8_t>(end));
      } else {
        AddTails(begin, end, 0, length, {}, &choices);
      }
    }
  }
  if (!one.bytes.empty()) choices.insert(choices.begin(), Make(std::move(one)));
  return Choice(std::move(choices));
}

Part CharacterNot(CodePoints ranges) { return Character(Others(std::move(ranges))); }

CodePoints Others(CodePoints ranges) {
  CodePoints others;
  uint32_t next = 0;
  for (const auto& [first, last] : Tidy(std::move(ranges))) {
    if (first > next) others.emplace_back(next, first - 1);
    next = last + 1;
  }
  if (next <= kLastCodePoint) others.emplace_back(next, kLastCodePoint);
  return others;
}

}  // namespace coppice::grammar
