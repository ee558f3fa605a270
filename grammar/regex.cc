#include "grammar/regex.h"

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "grammar/regex_conditions.h"
#include "grammar/source_text.h"
#include "grammar/unicode_property.h"

namespace coppice::grammar {
namespace {

constexpr uint32_t kLastCharacter = 0x10ffff;
constexpr size_t kMostLooks = 100;
constexpr int64_t kWorkOfRange = 50;       // of a large class, in steps of conditions
constexpr size_t kMostRangesInPlace = 32;  // of a class

// The characters of \d, \w or \s. Empty for another letter.
CodePoints ClassOfLetter(char letter) {
  switch (letter) {
    case 'd':
      return {{'0', '9'}};
    case 'w':
      return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
    case 's':
      return {{'\t', '\r'}, {' ', ' '}};
    default:
      return {};
  }
}

// What the letter after a backslash would mean, if it is not served.
absl::string_view UnservedEscape(char letter) {
  switch (letter) {
    case 'b':
    case 'B':
      return "a word boundary";
    case 'A':
    case 'G':
    case 'z':
    case 'Z':
      return "an anchor";
    case 'k':
    case 'g':
      return "a back-reference";
    default:
      break;
  }
  return letter >= '1' && letter <= '9' ? "a back-reference" : "an escape";
}

class RegexReader {
 public:
  RegexReader(absl::string_view text, const RegexUse& use)
      : text_(text),
        use_(use),
        search_(use.search),
        characters_(use.character),
        work_(use.condition_work != nullptr ? use.condition_work : &own_work_) {}

  absl::StatusOr<Grammar> Read() {
    COPPICE_ASSIGN_OR_RETURN(grammar_.rules[0], Alternatives(0));
    if (!text_.done()) return Error(text_.at(), "a ) without its (");
    if (!conditions_) return std::move(grammar_);
    auto resolved = ResolveConditions(grammar_, looks_, work_);
    return resolved.ok() ? std::move(resolved) : Error(0, resolved.status().message());
  }

 private:
  static absl::Status Error(size_t at, absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat("regular expression, byte ", at, ": ", what));
  }
  static absl::Status Unserved(size_t at, absl::string_view what) {
    return Error(at, absl::StrCat(what, " is not served"));
  }

  absl::StatusOr<Part> Alternatives(int nested) {
    if (nested > kMostNested) return Error(text_.at(), "groups are nested too deep");
    std::vector<Part> parts;
    do {
      COPPICE_ASSIGN_OR_RETURN(Part part, Alternative(nested));
      parts.push_back(std::move(part));
    } while (text_.Take("|"));
    return Choice(std::move(parts));
  }

  absl::StatusOr<Part> Alternative(int nested) {
    const bool top = nested == 0;
    std::vector<Part> parts;
    const bool at_begin = top && use_.conditions && text_.Take("^");
    Part anything;
    if (top && search_) {
      COPPICE_ASSIGN_OR_RETURN(Part any, OneOf(text_.at(), {{0, kLastCharacter}}));
      anything = Repeat(std::move(any), 0, Expression::kNoMost);
      if (!at_begin) parts.push_back(anything);
    }
    bool at_end = false;
    while (!text_.done() && text_.Peek() != '|' && text_.Peek() != ')') {
      if (top && use_.conditions && text_.Peek() == '$' && EndsAfter(1)) {
        text_.Take("$");
        at_end = true;
        break;
      }
      COPPICE_ASSIGN_OR_RETURN(Part atom, Atom(nested));
      COPPICE_ASSIGN_OR_RETURN(Part repeated, Repeated(std::move(atom)));
      parts.push_back(std::move(repeated));
    }
    if (anything != nullptr && !at_end) parts.push_back(std::move(anything));
    return Sequence(std::move(parts));
  }

  // Whether a top-level alternative ends this many bytes further on.
  bool EndsAfter(size_t ahead) {
    const size_t begin = text_.at();
    text_.Back(begin + ahead);
    const bool ends = text_.done() || text_.Peek() == '|';
    text_.Back(begin);
    return ends;
  }

  absl::StatusOr<Part> Atom(int nested) {
    const size_t begin = text_.at();
    switch (text_.Peek()) {
      case '(':
        return Group(nested);
      case '[':
        return Class();
      case '\\': {
        COPPICE_ASSIGN_OR_RETURN(CodePoints characters, Escape());
        return OneOf(begin, Cased(std::move(characters)));
      }
      case '.':
        text_.Take(".");
        return OneOf(begin, use_.dot_all ? Others({}) : Others({{'\n', '\n'}}));
      case '*':
      case '+':
      case '?':
        return Error(begin, "nothing stands before it that could be repeated");
      case '^':
      case '$':
        if (!use_.conditions) return Unserved(begin, "an anchor in this expression");
        return Condition(text_.Take("^") ? kAtBegin : (text_.Take("$"), kAtEnd));
      case '{':
        if (TakeCounts(&text_).has_value())
          return Error(begin, "nothing stands before it that could be repeated");
        break;
      default:
        break;
    }
    COPPICE_ASSIGN_OR_RETURN(const uint32_t c, Plain());
    return OneOf(begin, Cased({{c, c}}));
  }

  CodePoints Cased(CodePoints ranges) const {
    if (!use_.any_case) return ranges;
    for (size_t i = ranges.size(); i-- > 0;) {
      for (const auto& [begin, end, other] :
           {std::tuple('A', 'Z', 'a'), std::tuple('a', 'z', 'A')}) {
        const uint32_t first = std::max<uint32_t>(ranges[i].first, begin);
        const uint32_t last = std::min<uint32_t>(ranges[i].second, end);
        if (first <= last) ranges.emplace_back(first - begin + other, last - begin + other);
      }
    }
    return ranges;
  }

  absl::StatusOr<Part> OneOf(size_t at, const CodePoints& ranges) {
    Part part = characters_.Of(ranges);
    if (part == nullptr) return Error(at, "there are too many different classes");
    if (ranges.size() <= kMostRangesInPlace) return part;
    // A large class is drawn only once.
    const auto [known, added] =
        rule_of_.try_emplace(part.get(), static_cast<int>(grammar_.rules.size()));
    if (added) {
      *work_ -= kWorkOfRange * static_cast<int64_t>(ranges.size());
      if (*work_ < 0) return Error(at, "there are too many large classes");
      grammar_.rules.push_back(std::move(part));
      grammar_.names.emplace_back("class");
    }
    return Rule(known->second);
  }

  Part Condition(int rule) {
    conditions_ = true;
    return Rule(rule);
  }

  absl::StatusOr<uint32_t> Plain() {
    const size_t begin = text_.at();
    const std::optional<uint32_t> c = text_.Character();
    if (!c.has_value()) return Error(begin, "not valid UTF-8");
    return *c;
  }

  absl::StatusOr<Part> Group(int nested) {
    const size_t begin = text_.at();
    text_.Take("(");
    if (text_.Peek() == '?' && !text_.Take("?:")) {
      for (const char* look : {"?<=", "?<!"}) {
        if (text_.Sees(look)) return Unserved(begin, absl::StrCat("(", look, " (look-behind)"));
      }
      for (const char* look : {"?=", "?!"}) {
        if (text_.Take(look)) return LookAhead(begin, look[1] == '!', nested);
      }
      if (!text_.Take("?<") && !text_.Take("?P<")) {
        const char kind = text_.Peek(1);
        return Unserved(begin, kind == 'P'   ? "(?P (a reference to a group)"
                               : kind == '>' ? "(?> (an atomic group)"
                               : kind == '#' ? "(?# (a comment)"
                                             : "(? (an inline flag or another kind of group)");
      }
      size_t letters = 0;
      while (absl::ascii_isalnum(static_cast<unsigned char>(text_.Peek())) || text_.Peek() == '_') {
        text_.Character();
        ++letters;
      }
      if (letters == 0 || !text_.Take(">")) return Error(begin, "the name of a group is not ended");
    }
    COPPICE_ASSIGN_OR_RETURN(Part part, Alternatives(nested + 1));
    if (!text_.Take(")")) return Error(begin, "a ( without its )");
    return part;
  }

  absl::StatusOr<Part> LookAhead(size_t begin, bool negative, int nested) {
    if (!use_.conditions) return Unserved(begin, "look-ahead in this expression");
    COPPICE_ASSIGN_OR_RETURN(Part part, Alternatives(nested + 1));
    if (!text_.Take(")")) return Error(begin, "a ( without its )");
    if (looks_.size() == kMostLooks)
      return Unserved(begin, absl::StrCat("look-ahead in more than ", kMostLooks, " places"));
    looks_.push_back({std::move(part), negative});
    return Condition(kFirstLook - static_cast<int>(looks_.size() - 1));
  }

  absl::StatusOr<Part> Repeated(Part part) {
    const size_t begin = text_.at();
    std::optional<Counts> counts = TakeCounts(&text_);
    if (!counts.has_value()) {
      if (text_.Take("*")) {
        counts = Counts{0, Expression::kNoMost};
      } else if (text_.Take("+")) {
        counts = Counts{1, Expression::kNoMost};
      } else if (text_.Take("?")) {
        counts = Counts{0, 1};
      } else {
        return part;
      }
    }
    if (counts->wrong()) {
      return Error(begin, absl::StrCat("counts must ascend and be at most ", kMostRepeated));
    }
    if (text_.Peek() == '+') return Unserved(text_.at(), "a possessive quantifier");
    text_.Take("?");  // lazy: the same texts
    return Repeat(std::move(part), counts->least, counts->most);
  }

  absl::StatusOr<Part> Class() {
    const size_t begin = text_.at();
    text_.Take("[");
    const bool negated = text_.Take("^");
    if (text_.Peek() == ']')
      return Error(text_.at(), "a ] at the beginning of a class must be \\]");
    CodePoints ranges;
    while (!text_.Take("]")) {
      if (text_.done()) return Error(begin, "a [ without its ]");
      const size_t item = text_.at();
      for (const char* posix : {"[:", "[.", "[="}) {
        if (text_.Sees(posix)) return Unserved(item, absl::StrCat(posix, " in a class"));
      }
      COPPICE_ASSIGN_OR_RETURN(CodePoints first, ClassItem());
      if (text_.Peek() == '-' && text_.Peek(1) != ']') {
        text_.Take("-");
        if (text_.done()) return Error(begin, "a [ without its ]");
        COPPICE_ASSIGN_OR_RETURN(const CodePoints last, ClassItem());
        if (!Single(first) || !Single(last)) return Error(item, "a range of more than characters");
        if (first[0].first > last[0].first) return Error(item, "a range that descends");
        first[0].second = last[0].first;
      }
      ranges.insert(ranges.end(), first.begin(), first.end());
    }
    ranges = Cased(std::move(ranges));
    return OneOf(begin, negated ? Others(std::move(ranges)) : ranges);
  }

  static bool Single(const CodePoints& ranges) {
    return ranges.size() == 1 && ranges[0].first == ranges[0].second;
  }

  absl::StatusOr<CodePoints> ClassItem() {
    if (text_.Peek() == '\\') return Escape();
    COPPICE_ASSIGN_OR_RETURN(const uint32_t c, Plain());
    return CodePoints{{c, c}};
  }

  // A backslash and what follows.
  absl::StatusOr<CodePoints> Escape() {
    const size_t begin = text_.at();
    text_.Take("\\");
    if (text_.done()) return Error(begin, "a \\ at the end");
    COPPICE_ASSIGN_OR_RETURN(const uint32_t code, Plain());
    if (code >= 0x80) return Error(begin, "an escape of a character that needs none");
    const auto c = static_cast<char>(code);
    std::optional<uint32_t> named;
    switch (c) {
      case 'n':
        named = '\n';
        break;
      case 't':
        named = '\t';
        break;
      case 'r':
        named = '\r';
        break;
      case 'f':
        named = '\f';
        break;
      case 'v':
        named = '\v';
        break;
      case '0':
        if (absl::ascii_isdigit(static_cast<unsigned char>(text_.Peek())))
          return Unserved(begin, "an octal escape");
        named = 0;
        break;
      case 'x':
      case 'u':
        named = text_.Peek() == '{' ? Braced() : c == 'x' ? text_.Hex(2) : text_.Utf16();
        if (!named.has_value() || *named > kLastCharacter || IsSurrogate(*named))
          return Error(begin, absl::StrCat("\\", std::string(1, c), " names no character"));
        break;
      default:
        break;
    }
    if (named.has_value()) return CodePoints{{*named, *named}};
    if (c == 'p' || c == 'P') return Property(begin, c == 'P');
    if (CodePoints ranges = ClassOfLetter(c); !ranges.empty()) return ranges;
    if (CodePoints ranges = ClassOfLetter(absl::ascii_tolower(static_cast<unsigned char>(c)));
        !ranges.empty()) {
      return Others(std::move(ranges));
    }
    if (absl::ascii_ispunct(static_cast<unsigned char>(c)) || c == ' ')
      return CodePoints{{code, code}};
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)))
      return Unserved(begin, "an escape of a control character");
    return Unserved(begin, absl::StrCat("\\", std::string(1, c), " (", UnservedEscape(c), ")"));
  }

  // {name}, {^name}, or a letter.
  absl::StatusOr<CodePoints> Property(size_t begin, bool negated) {
    std::string name;
    if (text_.Take("{")) {
      if (text_.Take("^")) negated = !negated;
      while (IsOfName(text_.Peek())) name.push_back(static_cast<char>(*text_.Character()));
      if (!text_.Take("}")) return Error(begin, "the name of a property is not ended");
    } else if (IsOfName(text_.Peek())) {
      name.push_back(static_cast<char>(*text_.Character()));
    }
    std::optional<CodePoints> ranges = CharactersOfProperty(name);
    if (!ranges) return Unserved(begin, absl::StrCat("the property \"", name, "\""));
    return negated ? Others(*std::move(ranges)) : *std::move(ranges);
  }
  static bool IsOfName(char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '=';
  }

  // {H..}
  std::optional<uint32_t> Braced() {
    text_.Take("{");
    std::optional<uint32_t> value;
    while (const std::optional<uint32_t> digit = text_.Hex(1)) {
      value = value.value_or(0) << 4 | *digit;
      if (*value > kLastCharacter) return std::nullopt;
    }
    return text_.Take("}") ? value : std::nullopt;
  }

  SourceText text_;
  const RegexUse use_;
  const bool search_;
  CharacterParts characters_;
  Grammar grammar_{{nullptr}, {"regex"}};
  absl::flat_hash_map<const Expression*, int> rule_of_;
  std::vector<Look> looks_;
  bool conditions_ = false;  // a rule stands for a condition
  int64_t own_work_ = kMostConditionWork;
  int64_t* const work_;
};

}  // namespace

absl::StatusOr<Grammar> RegexGrammar(absl::string_view text, const RegexUse& use) {
  return RegexReader(text, use).Read();
}

absl::StatusOr<Grammar> ReadRegex(absl::string_view text) { return RegexGrammar(text, {}); }

absl::StatusOr<Part> RegexPart(absl::string_view text, const RegexUse& use) {
  COPPICE_ASSIGN_OR_RETURN(Grammar grammar, RegexGrammar(text, use));
  if (grammar.rules.size() == 1) return std::move(grammar.rules[0]);
  return absl::InvalidArgumentError("regular expression: look-ahead or \\p is not served here");
}

}  // namespace coppice::grammar
