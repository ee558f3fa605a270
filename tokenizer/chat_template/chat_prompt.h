// From the messages of a chat to token ids: the chat template of the model and its special tokens.
// A special token with any byte of a message's text stays text. Only those that the template alone
// has written become tokens, so a message cannot end its turn or begin another, also together with
// the texts beside it. Immutable and thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/types.h"
#include "tokenizer/chat_template/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace coppice::tokenizer {

// What the template sees of a request. Special tokens in its texts, at any depth, stay text. Roles and
// the fields of messages are known names.
struct Chat {
  using Json = nlohmann::ordered_json;

  // Objects with a role and a content: a text, or a list of {"type": "text", "text": ...}. Further
  // fields (name, tool_calls, tool_call_id, reasoning_content, ...) reach the template as they are.
  // As in Transformers, fields that are null are left out.
  Json messages = Json::array();
  Json tools;      // a list of objects; null: None in the template
  Json documents;  // a list of objects; null: None in the template
  // chat_template_kwargs: an object of further variables of the template. Those that CheckVariables
  // refuses are an error of Write.
  Json variables = Json::object();
};

struct ChatOptions {
  bool add_generation_prompt = true;
  // The prompt ends inside of the last message, which the model continues.
  bool continue_final_message = false;
  bool add_special_tokens = false;  // in addition to those that the template writes
  int64_t now_unix = 0;
};

// The text that a chat template has made from messages.
struct ChatText {
  std::string text;
  std::vector<size_t> literal;  // bytes that are part of no special token; ascending
};

class ChatPrompt {
 public:
  // choice: "" for the template of the folder (chat_template.jinja, else chat_template in
  // tokenizer_config.json), "none", a family, or a file. nullptr: there is no template. Errors name
  // the file, the line and what is wrong. tokenizer must outlive the result.
  static absl::StatusOr<std::unique_ptr<ChatPrompt>> Load(const std::string& dir,
                                                          const std::string& choice,
                                                          const Tokenizer* tokenizer);
  // With this template and these texts of the special tokens.
  ChatPrompt(ChatTemplate chat_template, std::string bos_token, std::string eos_token,
             const Tokenizer* tokenizer);

  // Errors as those of ChatTemplate::Render; OutOfRange: the template does not end with the final
  // message that is to be continued.
  absl::StatusOr<std::vector<TokenId>> Encode(const Chat& chat, const ChatOptions& options) const;
  // The two steps of Encode: the text that is encoded, and its tokens.
  absl::StatusOr<ChatText> Write(const Chat& chat, const ChatOptions& options) const;
  std::vector<TokenId> Tokens(const ChatText& text, const ChatOptions& options) const;
  // Whether these can be Chat::variables: an object without the names of the other variables
  // (messages, tools, documents, add_generation_prompt). InvalidArgument says what is wrong.
  static absl::Status CheckVariables(const nlohmann::ordered_json& variables);
  // Whether a variable of this name may change what the template writes.
  bool Reads(absl::string_view variable) const { return template_.Reads(variable); }
  // Whether the source of the template has this text.
  bool Mentions(absl::string_view text) const { return template_.HasText(text); }
  // The tokens that end a turn, as tokenizer_config.json and the model say.
  std::vector<TokenId> end_ids() const { return tokenizer_->eos_ids(); }

 private:
  // The form of message content that the template takes.
  enum class ContentForm { kText, kParts, kBoth };
  ContentForm FindContentForm() const;
  nlohmann::ordered_json Variables(const Chat& chat, const ChatOptions& options) const;
  nlohmann::ordered_json Message(const nlohmann::ordered_json& message, bool is_final) const;
  nlohmann::ordered_json Content(const nlohmann::ordered_json& content, bool is_final) const;
  nlohmann::ordered_json Parts(const nlohmann::ordered_json& content, bool is_final) const;
  // The text, or every text and name inside of the value, with the literal special tokens marked.
  std::string Marked(absl::string_view text) const;
  nlohmann::ordered_json MarkedJson(const nlohmann::ordered_json& json) const;
  // The rendered text, in which literal special tokens and the end of the final message are marked.
  absl::StatusOr<std::string> Render(const Chat& chat, const ChatOptions& options) const;

  ChatTemplate template_;
  const std::string bos_token_, eos_token_;
  const Tokenizer* const tokenizer_;
  bool knows_developer_ = false;
  ContentForm form_ = ContentForm::kText;
};

}  // namespace coppice::tokenizer
