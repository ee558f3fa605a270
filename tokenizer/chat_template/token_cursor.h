// A place in the tokens of a template, and the first error found there. After an error the place is
// the end, so parsing stops soon. Used by both parsers. Thread-compatible.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tokenizer/chat_template/lexer.h"
#include "tokenizer/chat_template/python_text.h"

namespace coppice::tokenizer::jinja {

class TokenCursor {
 public:
  explicit TokenCursor(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& Peek(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  int line() const { return Peek().line; }
  Token Next() {
    const Token token = Peek();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }

  bool Is(TokenKind kind, absl::string_view text, size_t ahead = 0) const {
    return Peek(ahead).kind == kind && Peek(ahead).text == text;
  }
  bool IsName(absl::string_view name, size_t ahead = 0) const {
    return Is(TokenKind::kName, name, ahead);
  }
  bool IsOperator(absl::string_view text, size_t ahead = 0) const {
    return Is(TokenKind::kOperator, text, ahead);
  }
  bool SkipName(absl::string_view name) { return IsName(name) && (Next(), true); }
  bool SkipOperator(absl::string_view text) { return IsOperator(text) && (Next(), true); }

  void ExpectOperator(absl::string_view text) {
    if (!SkipOperator(text)) Unexpected(absl::StrCat("'", text, "'"));
  }
  void Expect(TokenKind kind, absl::string_view what) {
    if (Peek().kind == kind) {
      Next();
    } else {
      Unexpected(what);
    }
  }
  std::string ExpectName(absl::string_view what) {
    if (Peek().kind == TokenKind::kName) return Next().text;
    Unexpected(what);
    return "";
  }

  void Fail(int line, absl::string_view why) {
    if (!status_.ok()) return;
    status_ = TemplateError(line, why);
    at_ = tokens_.size() - 1;
  }
  void Unexpected(absl::string_view wanted) {
    Fail(line(), absl::StrCat("expected ", wanted, ", got ", Describe(Peek())));
  }
  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }

 private:
  static std::string Describe(const Token& token) {
    switch (token.kind) {
      case TokenKind::kText:
        return "text";
      case TokenKind::kOutputBegin:
        return "'{{'";
      case TokenKind::kOutputEnd:
        return "'}}'";
      case TokenKind::kBlockBegin:
        return "'{%'";
      case TokenKind::kBlockEnd:
        return "'%}'";
      case TokenKind::kString:
        return "a string";
      case TokenKind::kEnd:
        return "the end of the template";
      default:
        return StringRepr(token.text.substr(0, 40));
    }
  }

  const std::vector<Token> tokens_;  // at least the token of the end
  size_t at_ = 0;
  absl::Status status_;
};

}  // namespace coppice::tokenizer::jinja
