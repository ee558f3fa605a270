#include "tokenizer/onig_class.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "tokenizer/utf8.h"

namespace coppice::tokenizer {
namespace {

constexpr int kDeepestClass = 20;

// What a property is inside of a class of PCRE2. Those of one or two letters are general
// categories.
struct Property {
  const char* name;  // in small letters, without _, - and spaces
  const char* inside;
};
// Oniguruma counts more numbers as parts of words outside of a class than inside of one.
constexpr char kWord[] = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
constexpr char kWordOutside[] = "\\p{Alphabetic}\\p{M}\\p{N}\\p{Pc}";
// In brackets, symbols are punctuation too.
constexpr char kPosixPunct[] = "[:punct:]";
constexpr Property kProperties[] = {
    {"any", "\\x{0}-\\x{10ffff}"},
    {"ascii", "\\x{0}-\\x{7f}"},
    {"alphabetic", "\\p{Alphabetic}"},
    {"alpha", "\\p{Alphabetic}"},
    {"uppercase", "\\p{Uppercase}"},
    {"upper", "\\p{Uppercase}"},
    {"lowercase", "\\p{Lowercase}"},
    {"lower", "\\p{Lowercase}"},
    {"whitespace", "\\s"},
    {"space", "\\s"},
    {"word", kWord},
    {"alnum", "\\p{Alphabetic}\\p{Nd}"},
    {"digit", "\\p{Nd}"},
    {"blank", "\\p{Zs}\\x{9}"},
    {"cntrl", "\\p{Cc}"},
    {"xdigit", "0-9A-Fa-f"},
    {"punct", "\\p{P}"},
    {"graph", "\\p{L}\\p{M}\\p{N}\\p{P}\\p{S}\\p{Cf}\\p{Co}"},
    {"print", "\\p{L}\\p{M}\\p{N}\\p{P}\\p{S}\\p{Cf}\\p{Co}\\p{Zs}"},
    {kPosixPunct, "\\p{P}\\p{S}"},
    {"lc", "\\p{Lu}\\p{Ll}\\p{Lt}"},
    {"casedletter", "\\p{Lu}\\p{Ll}\\p{Lt}"},
    {"letter", "\\p{L}"},
    {"uppercaseletter", "\\p{Lu}"},
    {"lowercaseletter", "\\p{Ll}"},
    {"titlecaseletter", "\\p{Lt}"},
    {"modifierletter", "\\p{Lm}"},
    {"otherletter", "\\p{Lo}"},
    {"mark", "\\p{M}"},
    {"nonspacingmark", "\\p{Mn}"},
    {"spacingmark", "\\p{Mc}"},
    {"enclosingmark", "\\p{Me}"},
    {"number", "\\p{N}"},
    {"decimalnumber", "\\p{Nd}"},
    {"letternumber", "\\p{Nl}"},
    {"othernumber", "\\p{No}"},
    {"punctuation", "\\p{P}"},
    {"symbol", "\\p{S}"},
    {"separator", "\\p{Z}"},
    {"control", "\\p{Cc}"},
    {"format", "\\p{Cf}"}};
constexpr absl::string_view kCategories[] = {"c",  "cc", "cf", "co", "l",  "ll", "lm", "lo", "lt",
                                             "lu", "m",  "mc", "me", "mn", "n",  "nd", "nl", "no",
                                             "p",  "pc", "pd", "pe", "pf", "pi", "po", "ps", "s",
                                             "sc", "sk", "sm", "so", "z",  "zl", "zp", "zs"};
// Oniguruma knows the scripts of characters and not their extensions.
constexpr absl::string_view kScripts[] = {
    "arabic",   "armenian",  "bengali",   "bopomofo", "common",   "cyrillic", "devanagari",
    "ethiopic", "georgian",  "greek",     "gujarati", "gurmukhi", "han",      "hangul",
    "hebrew",   "hiragana",  "inherited", "kannada",  "katakana", "khmer",    "lao",
    "latin",    "malayalam", "mongolian", "myanmar",  "oriya",    "sinhala",  "tamil",
    "telugu",   "thai",      "tibetan"};

std::optional<std::string> InsideOfProperty(absl::string_view name) {
  for (const Property& property : kProperties) {
    if (name == property.name) return property.inside;
  }
  for (const absl::string_view category : kCategories) {
    if (name != category) continue;
    std::string spelled(category);
    spelled[0] = absl::ascii_toupper(static_cast<unsigned char>(spelled[0]));
    return absl::StrCat("\\p{", spelled, "}");
  }
  for (const absl::string_view script : kScripts) {
    if (name == script) return absl::StrCat("\\p{sc:", script, "}");
  }
  return std::nullopt;
}

OnigSet SetOf(absl::string_view inside, bool negated) {
  OnigSet set;
  // A category of one letter, as \p{L}, has all cases.
  set.folds = inside == "\\s" || inside == "\\p{Nd}" || inside.size() == 5;
  if (negated) {
    set.beside.push_back(absl::StrCat("[^", inside, "]"));
  } else {
    set.inside = std::string(inside);
  }
  return set;
}

// The name of \p{...} or of [:...:], which is already read.
absl::StatusOr<OnigSet> PropertySet(absl::string_view name, bool negated,
                                    const PatternText& pattern) {
  std::string plain;
  for (const char c : name) {
    if (c != '_' && c != '-' && c != ' ')
      plain += absl::ascii_tolower(static_cast<unsigned char>(c));
  }
  const std::optional<std::string> inside = InsideOfProperty(plain);
  if (inside) return SetOf(*inside, negated);
  return pattern.Error(absl::StrCat("the property ", name, " is not served"));
}

std::optional<uint32_t> Hexadecimal(absl::string_view digits) {
  uint32_t value = 0;
  if (digits.empty() || digits.size() > 8) return std::nullopt;
  for (const char c : digits) {
    if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) return std::nullopt;
    value = value << 4 | static_cast<uint32_t>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
  }
  if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) return std::nullopt;
  return value;
}

}  // namespace

absl::Status PatternText::Error(absl::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat("at byte ", at, ": ", what));
}

std::string PcreCharacter(uint32_t code_point) {
  if (code_point < 0x80 && absl::ascii_isalnum(static_cast<unsigned char>(code_point)))
    return std::string(1, static_cast<char>(code_point));
  return absl::StrFormat("\\x{%x}", code_point);
}

void OnigSet::Add(const OnigSet& other) {
  inside += other.inside;
  beside.insert(beside.end(), other.beside.begin(), other.beside.end());
  folds = folds && other.folds;
}

std::string OnigSet::Pattern(bool negated) const {
  if (beside.empty() && !inside.empty()) return absl::StrCat(negated ? "[^" : "[", inside, "]");
  if (inside.empty() && beside.size() == 1 && !negated) return beside[0];
  std::vector<std::string> choices = beside;
  if (!inside.empty()) choices.insert(choices.begin(), absl::StrCat("[", inside, "]"));
  if (choices.empty()) return negated ? "(?s:.)" : "(?!)";
  const std::string any = absl::StrCat("(?:", absl::StrJoin(choices, "|"), ")");
  return negated ? absl::StrCat("(?:(?!", any, ")(?s:.))") : any;
}

absl::StatusOr<OnigSet> ReadSetEscape(char letter, bool in_class, PatternText* pattern) {
  const bool negated = absl::ascii_isupper(static_cast<unsigned char>(letter));
  switch (absl::ascii_tolower(static_cast<unsigned char>(letter))) {
    case 'd':
      return SetOf("\\p{Nd}", negated);
    case 's':
      return SetOf("\\s", negated);
    case 'w':
      return SetOf(in_class ? kWord : kWordOutside, negated);
    case 'h':
      return SetOf("0-9A-Fa-f", negated);
    case 'p':
      break;
    default:
      return absl::NotFoundError("");
  }
  const bool bracket = pattern->Take("{");
  const bool hat = bracket && pattern->Take("^");
  const size_t end = pattern->text.find('}', pattern->at);
  if (!bracket || end == absl::string_view::npos)
    return pattern->Error("expected {NAME} behind \\p");
  const absl::string_view name = pattern->text.substr(pattern->at, end - pattern->at);
  const bool word = !in_class && absl::EqualsIgnoreCase(name, "word");
  auto set =
      word ? SetOf(kWordOutside, negated != hat) : PropertySet(name, negated != hat, *pattern);
  pattern->at = end + 1;
  return set;
}

absl::StatusOr<uint32_t> ReadCharacterEscape(char letter, PatternText* pattern) {
  static constexpr std::pair<char, char> kControls[] = {
      {'n', '\n'}, {'r', '\r'}, {'t', '\t'}, {'f', '\f'}, {'v', '\v'}, {'a', '\a'}, {'e', '\x1b'}};
  for (const auto& [name, control] : kControls) {
    if (letter == name) return static_cast<uint32_t>(control);
  }
  if (letter == 'x' || letter == 'u') {
    const absl::string_view rest = pattern->text.substr(pattern->at);
    const bool bracket = letter == 'x' && absl::StartsWith(rest, "{");
    const size_t length = bracket ? rest.find('}') : letter == 'x' ? 2 : 4;
    const absl::string_view digits =
        bracket ? rest.substr(1, length == absl::string_view::npos ? 0 : length - 1)
                : rest.substr(0, length);
    const std::optional<uint32_t> value = Hexadecimal(digits);
    // \xe9 is a byte, not a character.
    if (!value || (!bracket && (digits.size() != length || (letter == 'x' && *value > 0x7F))))
      return pattern->Error(absl::StrCat("\\", std::string(1, letter), ": not a character"));
    pattern->at += length + (bracket ? 1 : 0);
    return *value;
  }
  return absl::NotFoundError("");
}

uint32_t TakeCharacter(PatternText* pattern) {
  const Utf8Char c = NextUtf8Char(pattern->text.substr(pattern->at));
  pattern->at += c.length;
  return c.code_point;
}

namespace {

// A class up to its end or an "&&".
class ClassReader {
 public:
  ClassReader(PatternText* pattern, int depth) : pattern_(*pattern), depth_(depth) {}

  absl::StatusOr<OnigSet> Read() {
    if (depth_ > kDeepestClass) return pattern_.Error("classes are nested too deeply");
    const bool negated = pattern_.Take("^");
    std::vector<OnigSet> met;  // all of which a character is in
    OnigSet set;
    for (bool first = true;; first = false) {
      if (pattern_.Ends()) return pattern_.Error("a class is not closed");
      if (pattern_.Take("]")) {
        if (first) return pattern_.Error("a ] at the start of a class is not served");
        break;
      }
      if (pattern_.Take("&&")) {
        met.push_back(std::exchange(set, {}));
      } else {
        COPPICE_RETURN_IF_ERROR(ReadItem(&set));
      }
    }
    if (!met.empty()) {
      std::string both;
      for (const OnigSet& one : met)
        absl::StrAppend(&both, "(?=", one.Pattern(/*negated=*/false), ")");
      OnigSet result;
      result.folds = set.folds;
      for (const OnigSet& one : met) result.folds = result.folds && one.folds;
      result.beside.push_back(absl::StrCat("(?:", both, set.Pattern(/*negated=*/false), ")"));
      set = std::move(result);
    }
    if (!negated) return set;
    OnigSet result;
    result.folds = set.folds;
    result.beside.push_back(set.Pattern(/*negated=*/true));
    return result;
  }

 private:
  absl::Status ReadItem(OnigSet* set) {
    if (pattern_.Take("[:")) return ReadPosix(set);
    if (pattern_.Take("[")) {
      COPPICE_ASSIGN_OR_RETURN(const OnigSet inner, ClassReader(&pattern_, depth_ + 1).Read());
      set->Add(inner);
      return NoRangeFrom();
    }
    const size_t begin = pattern_.at;
    if (pattern_.Take("\\")) {
      if (pattern_.Ends()) return pattern_.Error("a backslash at the end");
      const auto escaped =
          ReadSetEscape(pattern_.text[pattern_.at++], /*in_class=*/true, &pattern_);
      if (escaped.ok()) {
        set->Add(*escaped);
        return NoRangeFrom();
      }
      if (!absl::IsNotFound(escaped.status())) return escaped.status();
      pattern_.at = begin;
    }
    COPPICE_ASSIGN_OR_RETURN(const uint32_t low, Character());
    uint32_t high = low;
    const absl::string_view rest = pattern_.text.substr(pattern_.at);
    if (absl::StartsWith(rest, "-") && !absl::StartsWith(rest, "-]")) {
      if (low == '-' && pattern_.text[begin] == '-')
        return pattern_.Error("a range from - is not served");
      pattern_.Take("-");
      if (absl::StartsWith(rest, "-[") || absl::StartsWith(rest, "-&&"))
        return pattern_.Error("a - before a class is not served");
      COPPICE_ASSIGN_OR_RETURN(high, Character());
      if (high < low) return pattern_.Error("a range whose end is before its begin");
      COPPICE_RETURN_IF_ERROR(NoRangeFrom());
    }
    absl::StrAppend(&set->inside, PcreCharacter(low));
    if (high > low) absl::StrAppend(&set->inside, "-", PcreCharacter(high));
    set->folds = set->folds && high < 0x80;
    return absl::OkStatus();
  }

  // A - behind a range or a set is only served at the end of the class, where it is itself.
  absl::Status NoRangeFrom() const {
    const absl::string_view rest = pattern_.text.substr(pattern_.at);
    if (!absl::StartsWith(rest, "-") || absl::StartsWith(rest, "-]")) return absl::OkStatus();
    return pattern_.Error("a - behind a range or a set is not served");
  }

  absl::StatusOr<uint32_t> Character() {
    if (pattern_.Ends()) return pattern_.Error("a class is not closed");
    if (!pattern_.Take("\\")) return TakeCharacter(&pattern_);
    if (pattern_.Ends()) return pattern_.Error("a backslash at the end");
    const char letter = pattern_.text[pattern_.at];
    if (!absl::ascii_isalnum(static_cast<unsigned char>(letter))) return TakeCharacter(&pattern_);
    ++pattern_.at;
    if (letter == 'b') return uint32_t{'\b'};
    const auto escaped = ReadCharacterEscape(letter, &pattern_);
    if (!absl::IsNotFound(escaped.status())) return escaped;
    return pattern_.Error(absl::StrCat("\\", std::string(1, letter), " in a class is not served"));
  }

  absl::Status ReadPosix(OnigSet* set) {
    const bool negated = pattern_.Take("^");
    const size_t end = pattern_.text.find(":]", pattern_.at);
    if (end == absl::string_view::npos) return pattern_.Error("expected [:NAME:]");
    const absl::string_view name = pattern_.text.substr(pattern_.at, end - pattern_.at);
    COPPICE_ASSIGN_OR_RETURN(const OnigSet posix,
                             PropertySet(name == "punct" ? kPosixPunct : name, negated, pattern_));
    set->Add(posix);
    pattern_.at = end + 2;
    return NoRangeFrom();
  }

  PatternText& pattern_;
  const int depth_;
};

}  // namespace

absl::StatusOr<OnigSet> ReadClass(PatternText* pattern, int depth) {
  return ClassReader(pattern, depth).Read();
}

}  // namespace coppice::tokenizer
