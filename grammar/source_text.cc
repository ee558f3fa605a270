#include "grammar/source_text.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "grammar/expression.h"
#include "tokenizer/utf8.h"

namespace coppice::grammar {
namespace {

constexpr size_t kMostClasses = 4096;

}  // namespace

int SourceText::Line(size_t at) const {
  return 1 + static_cast<int>(std::count(text_.begin(), text_.begin() + at, '\n'));
}

char SourceText::Peek(size_t ahead) const {
  return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
}

bool SourceText::Sees(absl::string_view word) const {
  return absl::StartsWith(text_.substr(at_), word);
}

bool SourceText::Take(absl::string_view word) {
  if (!Sees(word)) return false;
  at_ += word.size();
  return true;
}

std::string SourceText::Seen() const {
  if (done()) return "the end";
  const tokenizer::Utf8Char c = tokenizer::NextUtf8Char(text_.substr(at_));
  if (!c.valid) return "a byte that is not UTF-8";
  if (c.code_point == '\n') return "the end of the line";
  return absl::StrCat("'", text_.substr(at_, c.length), "'");
}

std::optional<uint32_t> SourceText::Character() {
  if (done()) return std::nullopt;
  const tokenizer::Utf8Char c = tokenizer::NextUtf8Char(text_.substr(at_));
  if (!c.valid) return std::nullopt;
  at_ += c.length;
  return c.code_point;
}

std::optional<uint32_t> SourceText::Hex(int digits) {
  uint32_t value = 0;
  for (int i = 0; i < digits; ++i) {
    const char c = Peek(i);
    if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) return std::nullopt;
    value = value << 4 | static_cast<uint32_t>(absl::ascii_isdigit(static_cast<unsigned char>(c))
                                                   ? c - '0'
                                                   : (c | 0x20) - 'a' + 10);
  }
  at_ += digits;
  return value;
}

std::optional<uint32_t> SourceText::Utf16() {
  const std::optional<uint32_t> high = Hex(4);
  if (!high.has_value() || !IsSurrogate(*high)) return high;
  if (*high >= 0xdc00 || !Take("\\u")) return std::nullopt;
  const std::optional<uint32_t> low = Hex(4);
  if (!low.has_value() || *low < 0xdc00 || !IsSurrogate(*low)) return std::nullopt;
  return 0x10000 + ((*high - 0xd800) << 10 | (*low - 0xdc00));
}

std::optional<int> SourceText::Count() {
  std::optional<int> count;
  for (; absl::ascii_isdigit(static_cast<unsigned char>(Peek())); ++at_)
    count = std::min(count.value_or(0) * 10 + (Peek() - '0'), kMostRepeated + 1);
  return count;
}

bool IsSurrogate(uint32_t code_point) { return code_point >= 0xd800 && code_point <= 0xdfff; }

Part CharacterParts::Of(const CodePoints& ranges) {
  if (ranges.size() == 1 && ranges[0].first == ranges[0].second) return make_(ranges);
  const auto known = known_.find(ranges);
  if (known != known_.end()) return known->second;
  if (known_.size() >= kMostClasses) return nullptr;
  return known_.emplace(ranges, make_(ranges)).first->second;
}

bool Counts::wrong() const {
  return least > kMostRepeated || most > kMostRepeated ||
         (most != Expression::kNoMost && least > most);
}

std::optional<Counts> TakeCounts(SourceText* text) {
  const size_t begin = text->at();
  if (text->Take("{")) {
    const std::optional<int> least = text->Count();
    const bool comma = text->Take(",");
    const std::optional<int> most = comma ? text->Count() : least;
    if (text->Take("}") && (least.has_value() || most.has_value()))
      return Counts{least.value_or(0), most.value_or(Expression::kNoMost)};
  }
  text->Back(begin);
  return std::nullopt;
}

}  // namespace coppice::grammar
