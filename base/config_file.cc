#include "base/config_file.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace coppice {
namespace {

struct Lexeme {
  enum Kind { kWord, kText, kMark, kEnd } kind = kEnd;
  std::string text;  // of kText: without its quotes and escapes
  int line = 1, column = 1;
};

class Lexer {
 public:
  Lexer(absl::string_view text, std::vector<ConfigError>* errors) : text_(text), errors_(errors) {}

  Lexeme Next() {
    SkipBlanks();
    Lexeme lexeme;
    lexeme.line = line_;
    lexeme.column = column_;
    if (at_ == text_.size()) return lexeme;
    const char c = text_[at_];
    if (c == '"' || c == '\'') {
      lexeme.kind = Lexeme::kText;
      lexeme.text = Quoted(lexeme);
    } else if (Wordlike(c)) {
      lexeme.kind = Lexeme::kWord;
      while (at_ < text_.size() && Wordlike(text_[at_])) lexeme.text += Take();
    } else {
      lexeme.kind = Lexeme::kMark;
      lexeme.text = Take();
    }
    return lexeme;
  }

 private:
  static bool Wordlike(char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '.' || c == '-' || c == '+';
  }
  char Take() {
    const char c = text_[at_++];
    ++column_;
    if (c == '\n') ++line_, column_ = 1;
    return c;
  }
  void SkipBlanks() {
    while (at_ < text_.size()) {
      if (text_[at_] == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') Take();
      } else if (absl::ascii_isspace(text_[at_])) {
        Take();
      } else {
        return;
      }
    }
  }
  void Fault(const Lexeme& at, absl::string_view what) {
    ConfigError& error = errors_->emplace_back();
    error.line = at.line;
    error.column = at.column;
    error.what = std::string(what);
  }
  std::string Quoted(const Lexeme& start) {
    const char quote = Take();
    std::string raw, plain;
    while (at_ < text_.size() && text_[at_] != quote && text_[at_] != '\n') {
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) raw += Take();
      raw += Take();
    }
    if (at_ == text_.size() || text_[at_] != quote) {
      Fault(start, "a text without its closing quote");
    } else {
      Take();
    }
    std::string error;
    if (!absl::CUnescape(raw, &plain, &error)) Fault(start, error);
    return plain;
  }

  const absl::string_view text_;
  std::vector<ConfigError>* const errors_;
  size_t at_ = 0;
  int line_ = 1, column_ = 1;
};

class Parser {
 public:
  Parser(absl::string_view text, std::vector<ConfigError>* errors)
      : lexer_(text, errors), errors_(errors) {
    Advance();
  }

  std::vector<ConfigField> Parse() {
    bool whole = true;
    while (whole && next_.kind != Lexeme::kEnd) whole = Item();
    if (whole && !blocks_.empty())
      Fail(next_, absl::StrCat("expected } at the end of ", blocks_.back()));
    return std::move(fields_);
  }

 private:
  static constexpr int kMaxDepth = 2;  // a section and one block in it

  void Advance() { next_ = lexer_.Next(); }
  bool IsMark(const char* mark) const { return next_.kind == Lexeme::kMark && next_.text == mark; }
  bool Fail(const Lexeme& at, std::string what) {
    errors_->push_back({at.line, at.column, std::move(what)});
    return false;
  }
  std::string Path(absl::string_view name) const {
    std::string path;
    for (const std::string& block : blocks_) absl::StrAppend(&path, block, ".");
    return absl::StrCat(path, name);
  }

  // A field, a block or the end of one. False: no use in going on.
  bool Item() {
    if (IsMark("}") && !blocks_.empty()) {
      blocks_.pop_back();
      Advance();
      return true;
    }
    if (next_.kind != Lexeme::kWord)
      return Fail(next_, absl::StrCat("expected a name, got '", next_.text, "'"));
    const Lexeme name = next_;
    Advance();
    const bool colon = IsMark(":");
    if (colon) Advance();
    if (IsMark("{")) return Block(name);
    if (!colon) return Fail(next_, absl::StrCat("expected : or { after ", Path(name.text)));
    return Field(name);
  }

  bool Block(const Lexeme& name) {
    if (blocks_.size() == kMaxDepth)
      return Fail(name, absl::StrCat(Path(name.text), ": blocks are nested too deep"));
    blocks_.push_back(name.text);
    Advance();
    return true;
  }

  bool Field(const Lexeme& name) {
    if (next_.kind != Lexeme::kWord && next_.kind != Lexeme::kText)
      return Fail(next_, absl::StrCat("expected the value of ", Path(name.text)));
    ConfigField field;
    field.section = blocks_.empty() ? "" : blocks_.front();
    field.name = name.text;
    field.path = Path(name.text);
    field.value = next_.text;
    field.quoted = next_.kind == Lexeme::kText;
    field.line = name.line;
    field.column = name.column;
    Advance();
    if (IsMark(",") || IsMark(";")) Advance();
    const auto [first, is_new] = seen_.emplace(field.section + "." + field.name, field.line);
    if (!is_new) {
      Fail(name, absl::StrCat(field.path, ": it is given twice, first in line ", first->second));
    } else {
      fields_.push_back(std::move(field));
    }
    return true;
  }

  Lexer lexer_;
  std::vector<ConfigError>* const errors_;
  Lexeme next_;
  std::vector<std::string> blocks_;
  std::map<std::string, int> seen_;  // section and name -> line
  std::vector<ConfigField> fields_;
};

size_t Distance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
    }
  }
  return row[b.size()];
}

}  // namespace

std::vector<ConfigField> ParseConfig(absl::string_view text, std::vector<ConfigError>* errors) {
  return Parser(text, errors).Parse();
}

std::string NearestName(absl::string_view name, const std::vector<std::string>& known) {
  std::string best;
  size_t least = name.size() / 2 + 1;
  for (const std::string& candidate : known) {
    const size_t distance = Distance(name, candidate);
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace coppice
