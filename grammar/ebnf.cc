#include "grammar/ebnf.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "grammar/source_text.h"
#include "tokenizer/utf8.h"

namespace coppice::grammar {
namespace {

constexpr absl::string_view kDefines = "::=";

class EbnfReader {
 public:
  explicit EbnfReader(absl::string_view text) : text_(text) { Number("root", 0); }

  absl::StatusOr<Grammar> Read() {
    for (Blanks(true); !text_.done(); Blanks(true)) COPPICE_RETURN_IF_ERROR(ReadRule());
    if (grammar_.rules[0] == nullptr)
      return absl::InvalidArgumentError("grammar: there is no rule root");
    for (size_t rule = 0; rule < grammar_.rules.size(); ++rule) {
      if (grammar_.rules[rule] == nullptr) {
        return Error(used_[rule], absl::StrCat("there is no rule ", grammar_.names[rule]));
      }
    }
    return std::move(grammar_);
  }

 private:
  absl::Status Error(size_t at, absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("grammar, line ", text_.Line(at), ": ", what));
  }

  // Skips spaces and comments, and line ends if `lines`.
  void Blanks(bool lines) {
    for (;; text_.Back(text_.at() + 1)) {
      const char c = text_.Peek();
      if (c == '#') {
        while (!text_.done() && text_.Peek() != '\n') text_.Back(text_.at() + 1);
      }
      if (text_.done()) return;
      const char next = text_.Peek();
      if (next != ' ' && next != '\t' && next != '\r' && !(lines && next == '\n')) return;
    }
  }

  static bool BeginsName(char c) {
    return absl::ascii_isalpha(static_cast<unsigned char>(c)) || c == '_';
  }
  std::string Name() {
    std::string name;
    while (BeginsName(text_.Peek()) || text_.Peek() == '-' ||
           absl::ascii_isdigit(static_cast<unsigned char>(text_.Peek()))) {
      name.push_back(text_.Peek());
      text_.Back(text_.at() + 1);
    }
    return name;
  }
  // The number of the rule that is named at `at`.
  int Number(const std::string& name, size_t at) {
    const auto [known, added] = number_.try_emplace(name, static_cast<int>(number_.size()));
    if (added) {
      grammar_.names.push_back(name);
      grammar_.rules.push_back(nullptr);
      used_.push_back(at);
    }
    return known->second;
  }

  absl::Status ReadRule() {
    const size_t begin = text_.at();
    if (!BeginsName(text_.Peek()))
      return Error(begin, absl::StrCat(text_.Seen(), " where a rule should begin"));
    const std::string name = Name();
    const int rule = Number(name, begin);
    Blanks(false);
    if (!text_.Take(kDefines)) {
      return Error(text_.at(), absl::StrCat(text_.Seen(), " where ", kDefines, " of rule ", name,
                                            " should be"));
    }
    if (grammar_.rules[rule] != nullptr)
      return Error(begin, absl::StrCat("rule ", name, " is there twice"));
    Blanks(true);
    COPPICE_ASSIGN_OR_RETURN(grammar_.rules[rule], Alternatives(0));
    return absl::OkStatus();
  }

  absl::StatusOr<Part> Alternatives(int nested) {
    if (nested > kMostNested) return Error(text_.at(), "groups are nested too deep");
    std::vector<Part> parts;
    for (;;) {
      COPPICE_ASSIGN_OR_RETURN(Part part, Elements(nested));
      parts.push_back(std::move(part));
      const bool line_ended = text_.done() || text_.Peek() == '\n';
      Blanks(true);
      if (!text_.Take("|")) {
        if (nested == 0 && !line_ended) return Error(text_.at(), "a ) without its (");
        return Choice(std::move(parts));
      }
      Blanks(true);
    }
  }

  // Up to the end of the alternative.
  absl::StatusOr<Part> Elements(int nested) {
    std::vector<Part> parts;
    for (;;) {
      Blanks(nested > 0);
      const char c = text_.Peek();
      if (text_.done() || c == '|' || c == ')' || c == '\n') return Sequence(std::move(parts));
      COPPICE_ASSIGN_OR_RETURN(Part part, Element(nested));
      Blanks(nested > 0);
      for (int counts = 1; absl::string_view("*+?{").find(text_.Peek()) != absl::string_view::npos;
           ++counts) {
        if (nested + counts > kMostNested) return Error(text_.at(), "counts are nested too deep");
        COPPICE_ASSIGN_OR_RETURN(part, Repeated(std::move(part)));
        Blanks(nested > 0);
      }
      parts.push_back(std::move(part));
    }
  }

  absl::StatusOr<Part> Element(int nested) {
    const size_t begin = text_.at();
    if (text_.Take("\"")) return Quoted(begin);
    if (text_.Take("[")) return Class(begin);
    if (text_.Take(".")) return any_;
    if (text_.Take("(")) {
      COPPICE_ASSIGN_OR_RETURN(Part part, Alternatives(nested + 1));
      if (!text_.Take(")")) return Error(begin, "a ( without its )");
      return part;
    }
    if (!BeginsName(text_.Peek()))
      return Error(begin, absl::StrCat(text_.Seen(), " is unexpected"));
    const std::string name = Name();
    const int rule = Number(name, begin);
    Blanks(false);
    if (text_.Sees(kDefines)) {
      return Error(begin,
                   absl::StrCat("rule ", name, " begins where the one before it needs more"));
    }
    return Rule(rule);
  }

  absl::StatusOr<Part> Repeated(Part part) {
    const size_t begin = text_.at();
    if (text_.Take("*")) return Repeat(std::move(part), 0, Expression::kNoMost);
    if (text_.Take("+")) return Repeat(std::move(part), 1, Expression::kNoMost);
    if (text_.Take("?")) return Optional(std::move(part));
    const bool has_least = absl::ascii_isdigit(static_cast<unsigned char>(text_.Peek(1)));
    const std::optional<Counts> counts = TakeCounts(&text_);
    if (!has_least || !counts.has_value())
      return Error(begin, "a { that is none of {n}, {n,}, {n,m}");
    if (counts->wrong())
      return Error(begin, absl::StrCat("counts must ascend and be at most ", kMostRepeated));
    return Repeat(std::move(part), counts->least, counts->most);
  }

  absl::StatusOr<Part> Quoted(size_t begin) {
    std::string bytes;
    while (!text_.Take("\"")) {
      if (text_.done() || text_.Peek() == '\n') return Error(begin, "a \" without its end");
      COPPICE_ASSIGN_OR_RETURN(const uint32_t c, OneCharacter(/*in_class=*/false));
      tokenizer::AppendUtf8(c, &bytes);
    }
    return Literal(bytes);
  }

  absl::StatusOr<Part> Class(size_t begin) {
    const bool negated = text_.Take("^");
    CodePoints ranges;
    while (!text_.Take("]")) {
      if (text_.done() || text_.Peek() == '\n') return Error(begin, "a [ without its ]");
      COPPICE_ASSIGN_OR_RETURN(const uint32_t first, OneCharacter(/*in_class=*/true));
      uint32_t last = first;
      if (text_.Peek() == '-' && text_.Peek(1) != ']' && text_.Take("-")) {
        if (text_.done() || text_.Peek() == '\n') return Error(begin, "a [ without its ]");
        COPPICE_ASSIGN_OR_RETURN(last, OneCharacter(/*in_class=*/true));
      }
      if (first > last) return Error(begin, "a range that descends");
      ranges.emplace_back(first, last);
    }
    if (ranges.empty()) return Error(begin, "a class without characters");
    Part part = characters_.Of(negated ? Others(std::move(ranges)) : ranges);
    if (part == nullptr) return Error(begin, "there are too many different classes");
    return part;
  }

  // Reads one character of a literal or class, which may be escaped.
  absl::StatusOr<uint32_t> OneCharacter(bool in_class) {
    const size_t begin = text_.at();
    const std::optional<uint32_t> c = text_.Character();
    if (!c.has_value()) return Error(begin, "not valid UTF-8");
    if (*c != '\\') return *c;
    const char letter = text_.Peek();
    std::optional<uint32_t> named;
    if (text_.Take("n")) {
      named = '\n';
    } else if (text_.Take("t")) {
      named = '\t';
    } else if (text_.Take("r")) {
      named = '\r';
    } else if (text_.Take("x")) {
      named = text_.Hex(2);
    } else if (text_.Take("u")) {
      named = text_.Utf16();
    } else if (text_.Take("U")) {
      named = text_.Hex(8);
    } else if (!text_.done() && absl::string_view(in_class ? "\\\"[]-^" : "\\\"[]").find(letter) !=
                                    absl::string_view::npos) {
      named = text_.Character();
    } else {
      return Error(begin, absl::StrCat("the escape \\ before ", text_.Seen(), " is not known"));
    }
    if (!named.has_value() || *named > 0x10ffff || IsSurrogate(*named))
      return Error(begin, absl::StrCat("\\", std::string(1, letter), " names no character"));
    return *named;
  }

  SourceText text_;
  CharacterParts characters_{Character};
  const Part any_ = CharacterNot({});
  Grammar grammar_;
  absl::flat_hash_map<std::string, int> number_;
  std::vector<size_t> used_;  // [rules] position in the text where each was named first
};

}  // namespace

absl::StatusOr<Grammar> ReadEbnf(absl::string_view text) { return EbnfReader(text).Read(); }

}  // namespace coppice::grammar
