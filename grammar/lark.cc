#include "grammar/lark.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "grammar/adopt.h"
#include "grammar/json_schema.h"
#include "grammar/lark_terminals.h"
#include "grammar/lark_text.h"
#include "grammar/regex.h"
#include "grammar/source_text.h"
#include "tokenizer/utf8.h"

namespace coppice::grammar {
namespace {

constexpr int kMostJson = 2;  // schemas inside of a grammar

class LarkReader {
 public:
  LarkReader(absl::string_view text, std::vector<std::string>* annotations)
      : text_(text), source_(text), annotations_(annotations) {
    Number("start", 0);
    ignored_ = Add("ignored", 0);
  }

  absl::StatusOr<Grammar> Read() {
    for (Blanks(true); !text_.done(); Blanks(true)) {
      COPPICE_RETURN_IF_ERROR(text_.Peek() == '%' ? Directive() : Definition());
    }
    for (size_t rule = 0; rule < used_.size(); ++rule) {
      const bool missing = grammar_.rules[rule] == nullptr && static_cast<int>(rule) != ignored_;
      if (missing && rule == 0)
        return absl::InvalidArgumentError("grammar: there is no rule start");
      if (missing)
        return Error(used_[rule], absl::StrCat("there is no rule ", grammar_.names[rule]));
    }
    ignores_.push_back(Sequence({}));
    grammar_.rules[ignored_] = Choice(std::move(ignores_));
    return std::move(grammar_);
  }

 private:
  absl::Status Error(size_t at, absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("grammar, line ", text_.Line(at), ": ", what));
  }
  void Blanks(bool lines) { SkipLarkBlanks(&text_, lines); }

  int Add(const std::string& name, size_t at) {
    grammar_.names.push_back(name);
    grammar_.rules.push_back(nullptr);
    used_.resize(grammar_.rules.size(), at);
    return static_cast<int>(grammar_.rules.size()) - 1;
  }
  // The number of the rule or terminal that is named at `at`.
  int Number(const std::string& name, size_t at) {
    const auto known = number_.find(name);
    if (known != number_.end()) return known->second;
    return number_[name] = Add(name, at);
  }
  absl::Status Define(const std::string& name, size_t at, Part part) {
    const int rule = Number(name, at);
    if (grammar_.rules[rule] != nullptr) return Error(at, absl::StrCat(name, " is there twice"));
    grammar_.rules[rule] = std::move(part);
    return absl::OkStatus();
  }

  absl::Status Directive() {
    const size_t begin = text_.at();
    if (text_.Take("%ignore")) {
      in_terminal_ = true;
      COPPICE_ASSIGN_OR_RETURN(Part part, Alternatives(0));
      ignores_.push_back(std::move(part));
      return absl::OkStatus();
    }
    if (text_.Take("%import")) return Import(begin);
    if (text_.Take("%llguidance")) {  // a mark of the dialect
      Blanks(false);
      return text_.Take("{}") ? absl::OkStatus()
                              : Error(begin, "options of %llguidance are not served");
    }
    text_.Take("%");
    return Error(begin, absl::StrCat("%", TakeLarkName(&text_), " is not served"));
  }

  // common.NAME, common.NAME -> NAME, common (NAME, NAME)
  absl::Status Import(size_t begin) {
    Blanks(false);
    const std::string from = TakeLarkName(&text_);
    if (from != "common") return Error(begin, "only what is in `common` can be imported");
    if (text_.Take(".")) {
      const std::string name = TakeLarkName(&text_);
      Blanks(false);
      std::string as = name;
      if (text_.Take("->")) {
        Blanks(false);
        as = TakeLarkName(&text_);
      }
      return ImportOne(begin, name, as);
    }
    Blanks(false);
    if (!text_.Take("(")) return Error(begin, "%import needs a name");
    do {
      Blanks(true);
      const std::string name = TakeLarkName(&text_);
      COPPICE_RETURN_IF_ERROR(ImportOne(begin, name, name));
      Blanks(true);
    } while (text_.Take(","));
    return text_.Take(")") ? absl::OkStatus() : Error(begin, "a ( without its )");
  }

  absl::Status ImportOne(size_t begin, const std::string& name, const std::string& as) {
    const absl::string_view regex = CommonTerminal(name);
    if (regex.empty()) return Error(begin, absl::StrCat("`common` has no terminal ", name));
    if (!IsTerminalName(as)) return Error(begin, "a terminal has a name in capital letters");
    COPPICE_ASSIGN_OR_RETURN(Part part, RegexPart(regex));
    return Define(as, begin, std::move(part));
  }

  absl::Status Definition() {
    const size_t begin = text_.at();
    while (text_.Take("?") || text_.Take("!")) {
    }
    if (!BeginsLarkName(text_.Peek()))
      return Error(begin, absl::StrCat(text_.Seen(), " where a rule should begin"));
    const std::string name = TakeLarkName(&text_);
    if (text_.Take(".")) {  // a priority
      text_.Take("-");
      if (!text_.Count().has_value()) return Error(begin, "a priority must be a number");
    }
    if (text_.Peek() == '{') return Error(begin, "templates of rules are not served");
    if (text_.Take("[")) COPPICE_RETURN_IF_ERROR(Attributes(begin));
    Blanks(false);
    if (!text_.Take(":")) {
      return Error(text_.at(), absl::StrCat(text_.Seen(), " where : of rule ", name, " should be"));
    }
    Blanks(true);
    in_terminal_ = IsTerminalName(name);
    const int rule = Number(name, begin);
    COPPICE_ASSIGN_OR_RETURN(Part part, Alternatives(0));
    return Define(name, begin, WithoutLeftRecursion(rule, std::move(part)));
  }

  // What guidance says of a rule, after the bracket. To capture its text is left to the client.
  absl::Status Attributes(size_t begin) {
    do {
      Blanks(true);
      const std::string name = TakeLarkName(&text_);
      if (name != "capture")
        return Error(begin, absl::StrCat("the attribute \"", name, "\" of a rule is not served"));
      Blanks(true);
      if (text_.Take("=")) {
        Blanks(true);
        if (!text_.Take("\"")) return Error(begin, "a name to capture must be in quotes");
        COPPICE_RETURN_IF_ERROR(Characters(begin).status());
        Blanks(true);
      }
    } while (text_.Take(","));
    return text_.Take("]") ? absl::OkStatus() : Error(begin, "a [ without its ]");
  }

  // rule: rule x | y becomes rule: y x*.
  static Part WithoutLeftRecursion(int rule, Part part) {
    const auto is_rule = [rule](const Part& one) {
      return one->kind == Expression::Kind::kRule && one->rule == rule;
    };
    const bool choice = part->kind == Expression::Kind::kChoice;
    const std::vector<Part> ways = choice ? part->parts : std::vector<Part>{part};
    std::vector<Part> first, then;
    for (const Part& way : ways) {
      const bool sequence = way->kind == Expression::Kind::kSequence && !way->parts.empty();
      if (sequence && is_rule(way->parts[0])) {
        then.push_back(Sequence({way->parts.begin() + 1, way->parts.end()}));
      } else if (!is_rule(way)) {  // `rule: rule` adds nothing
        first.push_back(way);
      }
    }
    if (first.size() == ways.size()) return part;
    return Sequence(
        {Choice(std::move(first)), Repeat(Choice(std::move(then)), 0, Expression::kNoMost)});
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
        if (nested == 0 && !line_ended)
          return Error(text_.at(), absl::StrCat(text_.Seen(), " is unexpected"));
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
      if (text_.Take("->")) {  // the name of the alternative
        Blanks(false);
        if (TakeLarkName(&text_).empty()) return Error(text_.at(), "-> needs a name");
        Blanks(nested > 0);
      }
      const char c = text_.Peek();
      if (text_.done() || c == '|' || c == ')' || c == ']' || c == '\n')
        return Sequence(std::move(parts));
      COPPICE_ASSIGN_OR_RETURN(Part part, Element(nested));
      Blanks(nested > 0);
      for (int counts = 1; absl::string_view("*+?~").find(text_.Peek()) != absl::string_view::npos;
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
    if (text_.Take("\"")) return Ignoring(Quoted(begin));
    if (text_.Take("/")) return Ignoring(Regex(begin));
    if (text_.Take("(")) {
      COPPICE_ASSIGN_OR_RETURN(Part part, Alternatives(nested + 1));
      if (!text_.Take(")")) return Error(begin, "a ( without its )");
      return part;
    }
    if (text_.Take("[")) {
      COPPICE_ASSIGN_OR_RETURN(Part part, Alternatives(nested + 1));
      if (!text_.Take("]")) return Error(begin, "a [ without its ]");
      return Optional(std::move(part));
    }
    if (text_.Take("%json")) return Ignoring(Json(begin));
    if (text_.Peek() == '<') return Error(begin, "special tokens are not served");
    if (!BeginsLarkName(text_.Peek()))
      return Error(begin, absl::StrCat(text_.Seen(), " is unexpected"));
    const std::string name = TakeLarkName(&text_);
    if (text_.Peek() == '{') return Error(begin, "templates of rules are not served");
    Blanks(false);
    if (text_.Peek() == ':')
      return Error(begin,
                   absl::StrCat("rule ", name, " begins where the one before it needs more"));
    Part rule = Rule(Number(name, begin));
    if (IsTerminalName(name)) return Ignoring(std::move(rule));
    if (in_terminal_) return Error(begin, absl::StrCat("a terminal cannot have the rule ", name));
    return rule;
  }

  // What a rule has for a terminal.
  absl::StatusOr<Part> Ignoring(absl::StatusOr<Part> terminal) const {
    if (!terminal.ok() || in_terminal_) return terminal;
    return Sequence({*std::move(terminal), Rule(ignored_)});
  }

  absl::StatusOr<Part> Repeated(Part part) {
    const size_t begin = text_.at();
    if (text_.Take("*")) return Repeat(std::move(part), 0, Expression::kNoMost);
    if (text_.Take("+")) return Repeat(std::move(part), 1, Expression::kNoMost);
    if (text_.Take("?")) return Optional(std::move(part));
    text_.Take("~");
    Blanks(false);
    const std::optional<int> least = text_.Count();
    const std::optional<int> most = text_.Take("..") ? text_.Count() : least;
    if (!least || !most) return Error(begin, "a ~ that is none of ~ n, ~ n..m");
    if (Counts{*least, *most}.wrong())
      return Error(begin, absl::StrCat("counts must ascend and be at most ", kMostRepeated));
    return Repeat(std::move(part), *least, *most);
  }

  // A literal after its first quote, or a range of characters.
  absl::StatusOr<Part> Quoted(size_t begin) {
    COPPICE_ASSIGN_OR_RETURN(const std::vector<uint32_t> text, Characters(begin));
    if (text_.Take("..")) {
      if (!text_.Take("\"")) return Error(begin, ".. needs a character in quotes");
      COPPICE_ASSIGN_OR_RETURN(const std::vector<uint32_t> last, Characters(begin));
      if (text.size() != 1 || last.size() != 1)
        return Error(begin, "a range of more than characters");
      if (text[0] > last[0]) return Error(begin, "a range that descends");
      return CharactersOf(begin, {{text[0], last[0]}});
    }
    const bool any_case = text_.Take("i");
    std::vector<Part> parts;
    for (const uint32_t c : text) {
      CodePoints ranges = {{c, c}};
      const bool letter = c < 0x80 && absl::ascii_isalpha(static_cast<unsigned char>(c));
      if (any_case && letter) ranges.emplace_back(c ^ 0x20, c ^ 0x20);
      COPPICE_ASSIGN_OR_RETURN(Part one, CharactersOf(begin, ranges));
      parts.push_back(std::move(one));
    }
    return Sequence(std::move(parts));
  }

  absl::StatusOr<Part> CharactersOf(size_t begin, const CodePoints& ranges) {
    Part part = characters_.Of(ranges);
    if (part == nullptr) return Error(begin, "there are too many different classes");
    return part;
  }

  // Up to the quote that ends them.
  absl::StatusOr<std::vector<uint32_t>> Characters(size_t begin) {
    std::vector<uint32_t> characters;
    while (!text_.Take("\"")) {
      if (text_.done() || text_.Peek() == '\n') return Error(begin, "a \" without its end");
      const size_t at = text_.at();
      const bool escaped = text_.Take("\\");
      const std::optional<uint32_t> c = text_.Character();
      if (!c) return Error(at, "not valid UTF-8");
      const std::optional<uint32_t> meant = escaped ? Escaped(*c) : c;
      if (!meant || *meant > 0x10ffff || IsSurrogate(*meant))
        return Error(at, "an escape that names no character");
      characters.push_back(*meant);
    }
    return characters;
  }

  std::optional<uint32_t> Escaped(uint32_t letter) {
    switch (letter) {
      case 'n':
        return '\n';
      case 't':
        return '\t';
      case 'r':
        return '\r';
      case 'f':
        return '\f';
      case 'x':
        return text_.Hex(2);
      case 'u':
        return text_.Utf16();
      case 'U':
        return text_.Hex(8);
      case '\\':
      case '"':
        return letter;
      default:
        return std::nullopt;
    }
  }

  // The texts of a JSON schema.
  absl::StatusOr<Part> Json(size_t begin) {
    Blanks(true);
    if (--json_left_ < 0)
      return Error(begin, absl::StrCat("more than ", kMostJson, " %json are not served"));
    const absl::string_view schema = JsonObjectAt(source_, text_.at());
    if (schema.empty()) return Error(begin, "%json needs an object");
    text_.Back(text_.at() + schema.size());
    auto grammar = ReadJsonSchema(schema, annotations_);
    if (!grammar.ok()) return Error(begin, grammar.status().message());
    return AdoptRules(*std::move(grammar), &grammar_);
  }

  // A regular expression after its first slash.
  absl::StatusOr<Part> Regex(size_t begin) {
    const size_t first = text_.at();
    while (text_.Peek() != '/') {
      if (text_.done() || text_.Peek() == '\n') return Error(begin, "a / without its end");
      text_.Back(text_.at() + (text_.Peek() == '\\' && text_.Peek(1) != '\0' ? 2 : 1));
    }
    const absl::string_view expression = source_.substr(first, text_.at() - first);
    text_.Take("/");
    RegexUse use{.conditions = false};
    while (absl::ascii_isalpha(static_cast<unsigned char>(text_.Peek()))) {
      const char flag = text_.Peek();
      if (flag != 'i' && flag != 's' && flag != 'u')
        return Error(text_.at(), absl::StrCat("the flag ", std::string(1, flag), " is not served"));
      use.any_case = use.any_case || flag == 'i';
      use.dot_all = use.dot_all || flag == 's';
      text_.Back(text_.at() + 1);
    }
    auto grammar = RegexGrammar(expression, use);
    if (!grammar.ok()) return Error(begin, grammar.status().message());
    return AdoptRules(*std::move(grammar), &grammar_);
  }

  SourceText text_;
  const absl::string_view source_;
  std::vector<std::string>* const annotations_;
  int json_left_ = kMostJson;
  CharacterParts characters_{Character};
  Grammar grammar_;
  absl::flat_hash_map<std::string, int> number_;
  std::vector<size_t> used_;  // [rules that are named] position in the text where each was first
  std::vector<Part> ignores_;
  int ignored_ = 0;           // the rule of what may stand after a terminal
  bool in_terminal_ = false;  // the definition that is read is one of a terminal
};

}  // namespace

absl::StatusOr<Grammar> ReadLark(absl::string_view text, std::vector<std::string>* annotations) {
  return LarkReader(text, annotations).Read();
}

}  // namespace coppice::grammar
