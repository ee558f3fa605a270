// From the messages of a chat to token ids: the chat template of the model and its special tokens.
// A special token with any byte of a message's text stays text. Only those that the template alone
// has written become tokens, so a message cannot end its turn or begin another, also together with
// the texts beside it. Immutable and thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/types.h"
#include "tokenizer/chat_template/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace coppice::tokenizer {

struct ChatMessage {
  std::string role;                // system, developer, user or assistant
  std::vector<std::string> parts;  // texts
  bool one_text = true;            // the content was one text and no list of parts
  std::string name;                // "" = not given
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
  absl::StatusOr<std::vector<TokenId>> Encode(const std::vector<ChatMessage>& messages,
                                              const ChatOptions& options) const;
  // The two steps of Encode: the text that is encoded, and its tokens.
  absl::StatusOr<ChatText> Write(const std::vector<ChatMessage>& messages,
                                 const ChatOptions& options) const;
  std::vector<TokenId> Tokens(const ChatText& text, const ChatOptions& options) const;
  // The tokens that end a turn, as tokenizer_config.json and the model say.
  std::vector<TokenId> end_ids() const { return tokenizer_->eos_ids(); }

 private:
  // The form of message content that the template takes.
  enum class ContentForm { kText, kParts, kBoth };
  ContentForm FindContentForm() const;
  nlohmann::ordered_json Variables(const std::vector<ChatMessage>& messages,
                                   const ChatOptions& options) const;
  nlohmann::ordered_json Content(const ChatMessage& message, bool is_final) const;
  std::string Marked(absl::string_view text) const;
  // The rendered text, in which literal special tokens and the end of the final message are marked.
  absl::StatusOr<std::string> Render(const std::vector<ChatMessage>& messages,
                                     const ChatOptions& options) const;

  ChatTemplate template_;
  const std::string bos_token_, eos_token_;
  const Tokenizer* const tokenizer_;
  bool knows_developer_ = false;
  ContentForm form_ = ContentForm::kText;
};

}  // namespace coppice::tokenizer
