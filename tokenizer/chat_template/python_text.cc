#include "tokenizer/chat_template/python_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tokenizer/utf8.h"

namespace coppice::tokenizer::jinja {
namespace {

// Whether a character is removed by a strip with these arguments.
bool Strips(absl::string_view character, const std::string* chars) {
  if (chars == nullptr) return IsSpace(NextUtf8Char(character).code_point);
  for (absl::string_view rest = *chars; !rest.empty();) {
    const size_t length = NextUtf8Char(rest).length;
    if (rest.substr(0, length) == character) return true;
    rest.remove_prefix(length);
  }
  return false;
}

// The last character of a text that is not empty.
absl::string_view LastCharacter(absl::string_view text) {
  for (size_t length = std::min<size_t>(4, text.size()); length > 1; --length) {
    const absl::string_view tail = text.substr(text.size() - length);
    const Utf8Char c = NextUtf8Char(tail);
    if (c.valid && c.length == length) return tail;
  }
  return text.substr(text.size() - 1);
}

std::vector<std::string> SplitAtSpace(absl::string_view text, int64_t most, bool from_right) {
  std::vector<std::string> parts;
  text = StripText(text, !from_right, from_right, nullptr);
  while (!text.empty()) {
    if (most >= 0 && parts.size() == most) {
      parts.emplace_back(text);
      break;
    }
    absl::string_view rest = text;
    while (!rest.empty()) {
      const absl::string_view character =
          from_right ? LastCharacter(rest) : rest.substr(0, NextUtf8Char(rest).length);
      if (Strips(character, nullptr)) break;
      from_right ? rest.remove_suffix(character.size()) : rest.remove_prefix(character.size());
    }
    const size_t word = text.size() - rest.size();
    parts.emplace_back(from_right ? text.substr(rest.size()) : text.substr(0, word));
    text = StripText(rest, !from_right, from_right, nullptr);
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

// The text with each character mapped; full: also those that become several.
template <typename Map>
std::string MapCharacters(absl::string_view text, Map map, bool upper) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Char c = NextUtf8Char(text);
    if (!c.valid) {
      out.append(text.data(), c.length);
    } else if (upper && c.code_point == 0xDF) {
      out += "SS";
    } else if (!upper && c.code_point == 0x130) {
      out += "i\u0307";
    } else {
      AppendUtf8(static_cast<uint32_t>(map(static_cast<utf8proc_int32_t>(c.code_point))), &out);
    }
    text.remove_prefix(c.length);
  }
  return out;
}

std::string Title(absl::string_view character) {
  if (character == "\xC3\x9F") return "Ss";
  return MapCharacters(character, utf8proc_totitle, /*upper=*/false);
}

// Whether repr shows the character as it is.
bool Prints(uint32_t c) {
  if (c < 0x20 || (c >= 0x7F && c <= 0xA0) || c == 0xAD) return false;
  if (c != 0x20 && IsSpace(c)) return false;
  if ((c >= 0x200B && c <= 0x200F) || (c >= 0x202A && c <= 0x202E)) return false;
  if ((c >= 0x2060 && c <= 0x206F) || c == 0xFEFF || (c >= 0xFFF0 && c <= 0xFFFB)) return false;
  return !(c >= 0xE000 && c <= 0xF8FF) && (c & 0xFFFE) != 0xFFFE && c < 0xE0000;
}

}  // namespace

bool IsSpace(uint32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

absl::string_view StripText(absl::string_view text, bool left, bool right,
                            const std::string* chars) {
  while (left && !text.empty()) {
    const size_t length = NextUtf8Char(text).length;
    if (!Strips(text.substr(0, length), chars)) break;
    text.remove_prefix(length);
  }
  while (right && !text.empty()) {
    const absl::string_view last = LastCharacter(text);
    if (!Strips(last, chars)) break;
    text.remove_suffix(last.size());
  }
  return text;
}

size_t CountCharacters(absl::string_view text) {
  size_t count = 0;
  for (; !text.empty(); ++count) text.remove_prefix(NextUtf8Char(text).length);
  return count;
}

absl::string_view CharacterRange(absl::string_view text, size_t begin, size_t end) {
  size_t from = 0;
  for (size_t i = 0; i < begin && from < text.size(); ++i)
    from += NextUtf8Char(text.substr(from)).length;
  size_t to = from;
  for (size_t i = begin; i < end && to < text.size(); ++i)
    to += NextUtf8Char(text.substr(to)).length;
  return text.substr(from, to - from);
}

std::vector<absl::string_view> Characters(absl::string_view text) {
  std::vector<absl::string_view> characters;
  while (!text.empty()) {
    characters.push_back(text.substr(0, NextUtf8Char(text).length));
    text.remove_prefix(characters.back().size());
  }
  return characters;
}

std::vector<std::string> SplitText(absl::string_view text, const std::string* separator,
                                   int64_t most, bool from_right) {
  if (separator == nullptr) return SplitAtSpace(text, most, from_right);
  std::vector<std::string> parts;
  while (most < 0 || parts.size() < most) {
    const size_t at = from_right ? text.rfind(*separator) : text.find(*separator);
    if (at == absl::string_view::npos) break;
    const absl::string_view after = text.substr(at + separator->size());
    parts.emplace_back(from_right ? after : text.substr(0, at));
    text = from_right ? text.substr(0, at) : after;
  }
  parts.emplace_back(text);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string> SplitLines(absl::string_view text, bool keep_ends) {
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = NextUtf8Char(text.substr(at));
    const uint32_t code = c.code_point;
    const bool ends = (code >= 10 && code <= 13) || (code >= 0x1C && code <= 0x1E) ||
                      code == 0x85 || code == 0x2028 || code == 0x2029;
    const size_t end = at;
    at += c.length;
    if (!ends) continue;
    if (code == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.emplace_back(text.substr(begin, (keep_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.emplace_back(text.substr(begin));
  return lines;
}

std::string ReplaceText(absl::string_view text, absl::string_view old, absl::string_view with,
                        int64_t most) {
  std::string out;
  int64_t done = 0;
  if (old.empty()) {  // before every character and at the end
    for (const absl::string_view character : Characters(text)) {
      if (most < 0 || done++ < most) out.append(with.data(), with.size());
      out.append(character.data(), character.size());
    }
    if (most < 0 || done < most) out.append(with.data(), with.size());
    return out;
  }
  while (most < 0 || done < most) {
    const size_t at = text.find(old);
    if (at == absl::string_view::npos) break;
    absl::StrAppend(&out, text.substr(0, at), with);
    text.remove_prefix(at + old.size());
    ++done;
  }
  out.append(text.data(), text.size());
  return out;
}

CharacterKind KindOf(absl::string_view character) {
  CharacterKind kind;
  const Utf8Char c = NextUtf8Char(character);
  if (!c.valid) return kind;
  const utf8proc_category_t category =
      utf8proc_category(static_cast<utf8proc_int32_t>(c.code_point));
  kind.upper = category == UTF8PROC_CATEGORY_LU;
  kind.lower = category == UTF8PROC_CATEGORY_LL || c.code_point == 0xAA || c.code_point == 0xBA;
  kind.title = category == UTF8PROC_CATEGORY_LT;
  kind.letter = kind.upper || category == UTF8PROC_CATEGORY_LL || kind.title ||
                category == UTF8PROC_CATEGORY_LM || category == UTF8PROC_CATEGORY_LO;
  kind.decimal = category == UTF8PROC_CATEGORY_ND;
  kind.numeric =
      kind.decimal || category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_NO;
  const uint32_t code = c.code_point;  // superscripts and subscripts are digits too
  kind.digit = kind.decimal || code == 0xB2 || code == 0xB3 || code == 0xB9 || code == 0x2070 ||
               (code >= 0x2074 && code <= 0x2079) || (code >= 0x2080 && code <= 0x2089);
  return kind;
}

bool HasCase(absl::string_view text, bool upper) {
  bool any = false;
  for (const absl::string_view character : Characters(text)) {
    const CharacterKind kind = KindOf(character);
    if (kind.title || (upper ? kind.lower : kind.upper)) return false;
    any = any || (upper ? kind.upper : kind.lower);
  }
  return any;
}

bool IsAlphanumeric(absl::string_view character) {
  const CharacterKind kind = KindOf(character);
  return kind.letter || kind.numeric;
}

bool IsPrintable(absl::string_view character) { return Prints(NextUtf8Char(character).code_point); }

std::string Upper(absl::string_view text) {
  return MapCharacters(text, utf8proc_toupper, /*upper=*/true);
}
std::string Lower(absl::string_view text) {
  return MapCharacters(text, utf8proc_tolower, /*upper=*/false);
}

std::string Capitalize(absl::string_view text) {
  if (text.empty()) return "";
  const absl::string_view first = text.substr(0, NextUtf8Char(text).length);
  return Title(first) + Lower(text.substr(first.size()));
}

std::string SwapCase(absl::string_view text) {
  std::string out;
  for (const absl::string_view character : Characters(text)) {
    const CharacterKind kind = KindOf(character);
    out += kind.upper ? Lower(character) : kind.lower ? Upper(character) : std::string(character);
  }
  return out;
}

std::string TitleMethod(absl::string_view text) {
  std::string out;
  bool inside = false;
  for (const absl::string_view character : Characters(text)) {
    out += inside ? Lower(character) : Title(character);
    const CharacterKind kind = KindOf(character);
    inside = kind.upper || kind.lower || kind.title;
  }
  return out;
}

std::string TitleFilter(absl::string_view text) {
  std::string out;
  bool inside = false;
  for (const absl::string_view character : Characters(text)) {
    const bool splits = IsSpace(NextUtf8Char(character).code_point) ||
                        character.find_first_of("-({[<") != absl::string_view::npos;
    out += splits || inside ? Lower(character) : Upper(character);
    inside = !splits;
  }
  return out;
}

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const absl::string_view shortest(buffer, end.ptr - buffer);
  const int exponent = std::atoi(std::string(shortest.substr(shortest.find('e') + 1)).c_str());
  if (exponent >= -4 && exponent < 16) {
    const auto fixed =
        std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed);
    std::string text(buffer, fixed.ptr);
    return text.find('.') == std::string::npos ? text + ".0" : text;
  }
  return std::string(shortest);
}

std::string StringRepr(absl::string_view text) {
  const bool single = text.find('\'') != absl::string_view::npos;
  const char quote = single && text.find('"') == absl::string_view::npos ? '"' : '\'';
  std::string out(1, quote);
  for (const absl::string_view character : Characters(text)) {
    const uint32_t c = NextUtf8Char(character).code_point;
    if (character[0] == quote || c == '\\') {
      absl::StrAppend(&out, "\\", character);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
    } else if (Prints(c)) {
      out.append(character.data(), character.size());
    } else {
      out += c < 0x100     ? absl::StrFormat("\\x%02x", c)
             : c < 0x10000 ? absl::StrFormat("\\u%04x", c)
                           : absl::StrFormat("\\U%08x", c);
    }
  }
  return out + quote;
}

std::string JsonQuoted(absl::string_view text, bool ensure_ascii) {
  static constexpr absl::string_view kEscaped = "\"\\\n\r\t\b\f";
  static constexpr absl::string_view kLetters = "\"\\nrtbf";
  std::string out = "\"";
  while (!text.empty()) {
    const Utf8Char c = NextUtf8Char(text);
    const absl::string_view character = text.substr(0, c.length);
    text.remove_prefix(c.length);
    const size_t escape = kEscaped.find(character[0]);
    const uint32_t code = c.code_point;
    if (escape != absl::string_view::npos) {
      out += '\\';
      out += kLetters[escape];
    } else if (c.valid && (code < 0x20 || (ensure_ascii && code >= 0x7F && code <= 0xFFFF))) {
      absl::StrAppendFormat(&out, "\\u%04x", code);
    } else if (c.valid && ensure_ascii && code > 0xFFFF) {
      absl::StrAppendFormat(&out, "\\u%04x\\u%04x", 0xD800 + ((code - 0x10000) >> 10),
                            0xDC00 + ((code - 0x10000) & 0x3FF));
    } else {
      out.append(character.data(), character.size());
    }
  }
  return out + "\"";
}

}  // namespace coppice::tokenizer::jinja
