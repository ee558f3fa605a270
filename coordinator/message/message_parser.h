// Divides the text of an answer, while it grows, into reasoning, content and calls of tools. Used
// for streamed and plain answers alike, so they are equal. Thread-compatible.
//
// The parts depend on the whole input only, not on how it was cut. Those of the beginning of an
// answer are beginnings of those of the answer: what may become a mark is held back. Time is linear
// in the text, whatever it is.
//
// A text that begins as a call but is none, or names no tool of the request, is content as it was
// written. A call that breaks off keeps the arguments that came. White space beside marks is
// dropped: between the reasoning and the content, and between the content and a call.
#pragma once

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "coordinator/message/message_parts.h"
#include "coordinator/message/message_syntax.h"

namespace coppice::coordinator {

class MessageParser {
 public:
  explicit MessageParser(std::shared_ptr<const MessageSyntax> syntax);
  ~MessageParser();
  MessageParser(MessageParser&&) noexcept;
  MessageParser& operator=(MessageParser&&) noexcept;

  // The text of ordinary tokens. May be cut between any two characters.
  void AppendText(absl::string_view text);
  // The text of a special token, which an answer does not show. Ignored if it is no mark of the
  // syntax; else as if it had been written in plain.
  void AppendSpecial(absl::string_view token);
  // The answer ends: what was held back becomes content, or the end of what it stands in.
  void Finish();

  const MessageParts& parts() const;
  // The text that has come ends inside of the reasoning.
  bool in_reasoning() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace coppice::coordinator
