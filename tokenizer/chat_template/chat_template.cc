#include "tokenizer/chat_template/chat_template.h"

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "base/status.h"
#include "tokenizer/chat_template/lexer.h"
#include "tokenizer/chat_template/parser.h"
#include "tokenizer/chat_template/renderer.h"
#include "tokenizer/utf8.h"

namespace coppice::tokenizer {

struct ChatTemplate::Tree {
  std::string source;
  jinja::Block block;
  std::vector<std::string> strings;  // string constants in expressions
  std::set<std::string> names;       // in expressions and statements
};

ChatTemplate::ChatTemplate() : tree_(std::make_unique<Tree>()) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<ChatTemplate> ChatTemplate::Parse(absl::string_view source) {
  if (ValidUtf8(source) != source) return absl::InvalidArgumentError("the template is not UTF-8");
  ChatTemplate parsed;
  COPPICE_ASSIGN_OR_RETURN(parsed.tree_->block, jinja::ParseTemplate(source));
  COPPICE_ASSIGN_OR_RETURN(const std::vector<jinja::Token> tokens, jinja::Tokenize(source));
  parsed.tree_->source = std::string(source);
  for (const jinja::Token& token : tokens) {
    if (token.kind == jinja::TokenKind::kString) parsed.tree_->strings.push_back(token.text);
    if (token.kind == jinja::TokenKind::kName) parsed.tree_->names.insert(token.text);
  }
  return parsed;
}

absl::StatusOr<std::string> ChatTemplate::Render(const nlohmann::ordered_json& variables,
                                                 int64_t now_unix,
                                                 const ChatRenderLimits& limits) const {
  const jinja::Value values = jinja::Value::FromJson(variables);
  jinja::Renderer renderer(values.entries(), jinja::Budget(limits.max_steps, limits.max_bytes),
                           now_unix);
  return renderer.Render(tree_->block);
}

bool ChatTemplate::Reads(absl::string_view variable) const {
  return tree_->names.count(std::string(variable)) > 0;
}

bool ChatTemplate::Mentions(absl::string_view word) const {
  for (const std::string& text : tree_->strings) {
    if (absl::StrContains(text, word)) return true;
  }
  return false;
}

bool ChatTemplate::HasText(absl::string_view text) const {
  return absl::StrContains(tree_->source, text) || Mentions(text);
}

}  // namespace coppice::tokenizer
