// Text of a chat template -> tokens, with the white space rules of Jinja2 under trim_blocks and
// lstrip_blocks, which Hugging Face Transformers sets. Called by the parser. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace coppice::tokenizer::jinja {

enum class TokenKind {
  kText,         // outside of tags
  kOutputBegin,  // {{
  kOutputEnd,    // }}
  kBlockBegin,   // {%
  kBlockEnd,     // %}
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd,  // end of the template
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 1;
  std::string text;  // name, operator, or the text of a string without its escapes
  int64_t integer = 0;
  double number = 0;
};

// The last token is kEnd. Errors name the line.
absl::StatusOr<std::vector<Token>> Tokenize(absl::string_view source);

// "line 3: why".
absl::Status TemplateError(int line, absl::string_view why);

}  // namespace coppice::tokenizer::jinja
