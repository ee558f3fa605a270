#include "tokenizer/onig_pattern.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tokenizer/onig_class.h"

namespace coppice::tokenizer {
namespace {

constexpr int kDeepestGroup = 100;
constexpr int kMostRepeated = 1000;
// Two letters that one character folds to: "ss" and its like. Without regard to case, Oniguruma
// takes such a character for them.
constexpr absl::string_view kLigatures[] = {"ff", "fi", "fl", "ss", "st"};

struct Options {
  bool ignore_case = false;
  bool dot_is_any = false;
};

class PatternReader {
 public:
  explicit PatternReader(absl::string_view pattern) : pattern_{pattern} {}

  absl::StatusOr<std::string> Read() {
    COPPICE_ASSIGN_OR_RETURN(std::string all, Alternatives({}));
    if (!pattern_.Ends()) return pattern_.Error("a ) without its (");
    return all;
  }

 private:
  struct Atom {
    std::string pcre;
    bool repeats = true;             // may be repeated
    std::optional<uint32_t> letter;  // it is this character
    bool group = false;
  };

  // Up to the end of the pattern or of the group.
  absl::StatusOr<std::string> Alternatives(const Options& options) {
    if (++depth_ > kDeepestGroup) return pattern_.Error("groups are nested too deeply");
    std::string all;
    while (!pattern_.Ends() && pattern_.text[pattern_.at] != ')') {
      if (pattern_.Take("|")) {
        all += '|';
        before_.reset();
        continue;
      }
      COPPICE_ASSIGN_OR_RETURN(const Atom atom, ReadAtom(options));
      if (options.ignore_case && atom.letter) COPPICE_RETURN_IF_ERROR(CheckLigature(*atom.letter));
      if (!atom.group) before_ = atom.letter;
      COPPICE_RETURN_IF_ERROR(Repeated(atom, &all));
    }
    --depth_;
    return all;
  }

  absl::Status CheckLigature(uint32_t letter) const {
    if (letter >= 0x80)
      return pattern_.Error("without regard to case, only characters of ASCII are served");
    if (!before_) return absl::OkStatus();
    std::string both = {static_cast<char>(*before_), static_cast<char>(letter)};
    absl::AsciiStrToLower(&both);
    for (const absl::string_view ligature : kLigatures) {
      if (both == ligature)
        return pattern_.Error(absl::StrCat(both, " is not served without regard to case"));
    }
    return absl::OkStatus();
  }

  // Appends the atom with what follows it: *, +, ?, {n,m}.
  absl::Status Repeated(const Atom& atom, std::string* out) {
    std::string pcre = atom.pcre;
    bool again = atom.repeats;  // one more repetition is served
    for (;;) {
      const size_t begin = pattern_.at;
      const std::optional<std::string> interval = Interval();
      const absl::string_view sign = pattern_.text.substr(pattern_.at, 1);
      if (!interval && sign != "*" && sign != "+" && sign != "?") break;
      if (!again) {
        pattern_.at = begin;
        return pattern_.Error("this repetition is not served");
      }
      if (interval) {
        if (*interval == "bad") return pattern_.Error("this interval is not served");
        absl::StrAppend(&pcre, *interval);
        // Behind {n} a ? makes it optional. A + behind an interval repeats it.
        const bool exact = !absl::StrContains(*interval, ',');
        if (!exact && pattern_.Take("?")) {
          pcre += '?';
          again = false;
        } else {
          pcre = absl::StrCat("(?:", pcre, ")");
        }
        continue;
      }
      ++pattern_.at;
      absl::StrAppend(&pcre, sign);
      if (pattern_.Take("?")) {
        pcre += '?';
      } else if (pattern_.Take("+")) {
        pcre += '+';
      }
      again = false;
    }
    *out += pcre;
    return absl::OkStatus();
  }

  // {n}, {n,}, {n,m} or {,m}, in the syntax of PCRE2. nullopt: there is none, a { is itself. "bad":
  // it is one that is not served.
  std::optional<std::string> Interval() {
    const size_t begin = pattern_.at;
    const auto number = [this] {
      std::string digits;
      while (!pattern_.Ends() &&
             absl::ascii_isdigit(static_cast<unsigned char>(pattern_.text[pattern_.at])))
        digits += pattern_.text[pattern_.at++];
      return digits;
    };
    if (!pattern_.Take("{")) return std::nullopt;
    const std::string low = number();
    const bool comma = pattern_.Take(",");
    const std::string high = comma ? number() : low;
    if (!pattern_.Take("}") || (low.empty() && high.empty())) {
      pattern_.at = begin;
      return std::nullopt;
    }
    if (low.size() > 4 || high.size() > 4) return "bad";
    const int least = low.empty() ? 0 : std::stoi(low);
    const int most = high.empty() ? kMostRepeated : std::stoi(high);
    if (least > most || most > kMostRepeated) return "bad";
    if (!comma) return absl::StrCat("{", least, "}");
    return absl::StrCat("{", least, ",", high.empty() ? "" : absl::StrCat(most), "}");
  }

  absl::StatusOr<Atom> Set(const absl::StatusOr<OnigSet>& set, const Options& options) const {
    if (!set.ok()) return set.status();
    if (options.ignore_case && !set->folds)
      return pattern_.Error("without regard to case, only sets of characters of ASCII are served");
    return Atom{set->Pattern(/*negated=*/false)};
  }

  absl::StatusOr<Atom> ReadAtom(const Options& options) {
    if (pattern_.Take("(")) return Group(options);
    if (pattern_.Take("[")) return Set(ReadClass(&pattern_, 0), options);
    if (pattern_.Take(".")) return Atom{options.dot_is_any ? "(?s:.)" : "[^\\n]"};
    if (pattern_.Take("^")) return Atom{"(?m:^)", /*repeats=*/false};
    if (pattern_.Take("$")) return Atom{"(?m:$)", /*repeats=*/false};
    if (pattern_.Take("\\")) return Escape(options);
    for (const char sign : {'*', '+', '?'}) {
      if (pattern_.text[pattern_.at] == sign)
        return pattern_.Error("there is nothing to be repeated");
    }
    const size_t begin = pattern_.at;
    if (Interval()) {
      pattern_.at = begin;
      return pattern_.Error("there is nothing to be repeated");
    }
    const uint32_t c = TakeCharacter(&pattern_);
    return Atom{PcreCharacter(c), true, c};
  }

  absl::StatusOr<Atom> Escape(const Options& options) {
    if (pattern_.Ends()) return pattern_.Error("a backslash at the end");
    const char letter = pattern_.text[pattern_.at];
    if (!absl::ascii_isalnum(static_cast<unsigned char>(letter))) {
      const uint32_t c = TakeCharacter(&pattern_);
      return Atom{PcreCharacter(c), true, c};
    }
    ++pattern_.at;
    static constexpr char kWordBefore[] = "(?<=[\\p{Alphabetic}\\p{M}\\p{N}\\p{Pc}])";
    static constexpr char kNoWordBefore[] = "(?<![\\p{Alphabetic}\\p{M}\\p{N}\\p{Pc}])";
    static constexpr char kWordAfter[] = "(?=[\\p{Alphabetic}\\p{M}\\p{N}\\p{Pc}])";
    static constexpr char kNoWordAfter[] = "(?![\\p{Alphabetic}\\p{M}\\p{N}\\p{Pc}])";
    const auto either = [](auto a, auto b, auto c, auto d) {
      return Atom{absl::StrCat("(?:", a, b, "|", c, d, ")"), /*repeats=*/false};
    };
    switch (letter) {
      case 'A':
      case 'Z':
      case 'z':
        return Atom{absl::StrCat("\\", std::string(1, letter)), /*repeats=*/false};
      case 'b':
        return either(kWordBefore, kNoWordAfter, kNoWordBefore, kWordAfter);
      case 'B':
        return either(kWordBefore, kWordAfter, kNoWordBefore, kNoWordAfter);
      case 'R':
        return Atom{"(?>\\r\\n|[\\n-\\r\\x{85}\\x{2028}\\x{2029}])"};
      case 'N':
        return Atom{"[^\\n]"};
      case 'O':
        return Atom{"(?s:.)"};
      default:
        break;
    }
    const auto set = ReadSetEscape(letter, /*in_class=*/false, &pattern_);
    if (!absl::IsNotFound(set.status())) return Set(set, options);
    const auto character = ReadCharacterEscape(letter, &pattern_);
    if (character.ok()) return Atom{PcreCharacter(*character), true, *character};
    if (!absl::IsNotFound(character.status())) return character.status();
    return pattern_.Error(absl::StrCat("\\", std::string(1, letter), " is not served"));
  }

  absl::StatusOr<Atom> Group(const Options& options) {
    static constexpr absl::string_view kLooks[] = {"?=", "?!", "?<=", "?<!"};
    for (const absl::string_view look : kLooks) {
      if (pattern_.Take(look)) return Closed(look, /*repeats=*/false, options);
    }
    if (pattern_.Take("?>")) return Closed("?>", /*repeats=*/true, options);
    if (pattern_.Take("?#")) {
      const size_t end = pattern_.text.find(')', pattern_.at);
      if (end == absl::string_view::npos) return pattern_.Error("a comment is not closed");
      pattern_.at = end + 1;
      return Atom{"", /*repeats=*/false, std::nullopt, /*group=*/true};
    }
    if (pattern_.Take("?<")) {  // its name has no effect
      const size_t end = pattern_.text.find('>', pattern_.at);
      if (end == absl::string_view::npos) return pattern_.Error("the name of a group has no end");
      pattern_.at = end + 1;
      return Closed("?:", /*repeats=*/true, options);
    }
    if (pattern_.Take("?")) return WithOptions(options);
    if (pattern_.text.substr(pattern_.at, 1) == "*") return pattern_.Error("(* is not served");
    return Closed("?:", /*repeats=*/true, options);
  }

  // The rest of a group that begins with `kind`.
  absl::StatusOr<Atom> Closed(absl::string_view kind, bool repeats, const Options& options) {
    COPPICE_ASSIGN_OR_RETURN(const std::string inside, Alternatives(options));
    if (!pattern_.Take(")")) return pattern_.Error("a ( is not closed");
    return Atom{absl::StrCat("(", kind, inside, ")"), repeats, std::nullopt, /*group=*/true};
  }

  // Behind "(?": options for a group, or for the rest of the group around it with all its
  // alternatives.
  absl::StatusOr<Atom> WithOptions(Options options) {
    bool on = true;
    for (; !pattern_.Ends(); ++pattern_.at) {
      const char c = pattern_.text[pattern_.at];
      if (c == '-') {
        on = false;
      } else if (c == 'i') {
        options.ignore_case = on;
      } else if (c == 'm') {
        options.dot_is_any = on;
      } else {
        break;
      }
    }
    const absl::string_view kind = options.ignore_case ? "?i:" : "?-i:";
    if (pattern_.Take(":")) return Closed(kind, /*repeats=*/true, options);
    if (!pattern_.Take(")")) return pattern_.Error("this kind of group is not served");
    COPPICE_ASSIGN_OR_RETURN(const std::string rest, Alternatives(options));
    return Atom{absl::StrCat("(", kind, rest, ")"), /*repeats=*/false, std::nullopt,
                /*group=*/true};
  }

  PatternText pattern_;
  std::optional<uint32_t> before_;  // the character before, also that at the end of a group
  int depth_ = 0;
};

}  // namespace

absl::StatusOr<std::string> PcreOfOnig(absl::string_view pattern) {
  return PatternReader(pattern).Read();
}

}  // namespace coppice::tokenizer
