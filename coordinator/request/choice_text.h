// The ids and text of one choice as they become known. Detokenises token by token, finds stop
// strings, and holds back text that may still change. Streamed and plain answers both use it, so
// they are equal. Thread-compatible.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "coordinator/api/generate_request.h"
#include "coordinator/message/message_parser.h"
#include "coordinator/request/stop_matcher.h"
#include "tokenizer/tokenizer.h"

namespace coppice::coordinator {

class ChoiceText {
 public:
  // tokenizer must outlive this.
  ChoiceText(const tokenizer::Tokenizer* tokenizer, absl::Span<const TokenId> prompt,
             const GenerateRequest& request);

  // Returns the text that is now final. Tokens after a stop string are dropped.
  std::string Append(absl::Span<const TokenId> tokens);
  // The rest of the text: what was held back.
  std::string Finish();

  const std::vector<TokenId>& tokens() const { return tokens_; }  // without dropped tokens
  // [tokens] Characters of the text before each, as if no stop string were cut off. A character
  // counts if all its bytes come before the token, and an invalid part of UTF-8 is one.
  const std::vector<size_t>& offsets() const { return offsets_; }
  // The first so many offsets are final. After Finish all are.
  size_t settled_tokens() const { return settled_tokens_; }
  size_t characters() const { return characters_; }  // characters of that text so far
  const std::string& text() const { return text_; }  // all final text
  const std::optional<std::string>& stop() const { return matcher_.matched(); }
  // What that text consists of; nullptr: of content alone (GenerateRequest::syntax).
  const MessageParts* parts() const { return parser_ ? &parser_->parts() : nullptr; }
  // Tokens up to the end of the reasoning, with its marks; 0: there was none.
  size_t reasoning_tokens() const { return reasoning_tokens_; }

 private:
  void AddOffset(TokenId token);
  void CountHeldCharacter();  // in the offsets that are not final
  std::string Settle(const std::string& piece, bool search);
  void NoteSpecial(TokenId token);
  void Divide(bool ended);  // gives the parser what is new

  tokenizer::Detokenizer detokenizer_;
  StopMatcher matcher_;
  const int min_tokens_;
  std::vector<TokenId> tokens_;
  std::vector<size_t> offsets_;
  size_t settled_tokens_ = 0;  // what follows has no text, and is behind an unfinished character
  size_t characters_ = 0;
  std::string text_;

  // Of a chat whose text is divided.
  const tokenizer::Tokenizer* const tokenizer_;
  const bool skips_special_;
  std::optional<MessageParser> parser_;
  size_t reasoning_tokens_ = 0;
  size_t divided_ = 0;                                   // bytes of text_ that the parser has
  size_t given_ = 0;                                     // bytes that the matcher has
  std::deque<std::pair<size_t, std::string>> specials_;  // given_ before a special token, its text
};

}  // namespace coppice::coordinator
