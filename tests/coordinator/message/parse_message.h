// Parses answers in pieces, for the tests and the fuzzer of messages.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "coordinator/message/message_parser.h"
#include "coordinator/message/tool_format.h"

namespace coppice::coordinator {

inline std::string ShownCalls(const MessageParts& parts) {
  std::string shown;
  for (const ToolCall& call : parts.calls) absl::StrAppend(&shown, call.name, call.arguments, ";");
  return shown;
}

// "(reasoning)content|f{...};g{...};"
inline std::string Shown(const MessageParts& parts) {
  return absl::StrCat(parts.reasoning.empty() ? "" : absl::StrCat("(", parts.reasoning, ")"),
                      parts.content, parts.calls.empty() ? "" : "|", ShownCalls(parts));
}

// Tools f and g, which take anything.
inline MessageSyntax SyntaxOf(absl::string_view format) {
  MessageSyntax syntax;
  syntax.tool_format = FindToolFormat(format);
  syntax.tools = {{"f", ""}, {"g", ""}};
  syntax.id_seed = "seed";
  return syntax;
}

inline bool BeginsCharacter(absl::string_view text, size_t at) {
  return at >= text.size() || (static_cast<unsigned char>(text[at]) & 0xc0) != 0x80;
}

// Parts as they are before and, as the last one, after the answer's end, with the text cut at these
// places. Throughout, one must be a beginning of the next.
class PartsGrow {
 public:
  explicit PartsGrow(const MessageSyntax& syntax)
      : parser_(std::make_shared<const MessageSyntax>(syntax)) {}

  void Text(absl::string_view text) { parser_.AppendText(text), Compare(); }
  void Special(absl::string_view token) { parser_.AppendSpecial(token), Compare(); }
  const MessageParts& Finish() {
    parser_.Finish();
    Compare();
    return last_;
  }
  bool grew() const { return grew_; }

 private:
  void Compare() {
    const MessageParts& next = parser_.parts();
    grew_ = grew_ && absl::StartsWith(next.reasoning, last_.reasoning) &&
            absl::StartsWith(next.content, last_.content) &&
            next.calls.size() >= last_.calls.size();
    for (size_t i = 0; grew_ && i < last_.calls.size(); ++i) {
      grew_ = next.calls[i].id == last_.calls[i].id && next.calls[i].name == last_.calls[i].name &&
              absl::StartsWith(next.calls[i].arguments, last_.calls[i].arguments);
    }
    last_ = next;
  }

  MessageParser parser_;
  MessageParts last_;
  bool grew_ = true;
};

// Before what is shown of parts that did not grow. No text of UTF-8 begins with it.
inline constexpr char kShrank[] = "\xff shrank: ";

inline std::string ParseInPieces(const MessageSyntax& syntax, absl::string_view text,
                                 std::vector<size_t> cuts) {
  PartsGrow parts(syntax);
  cuts.push_back(text.size());
  size_t at = 0;
  for (const size_t cut : cuts) {
    parts.Text(text.substr(at, cut - at));
    at = cut;
  }
  const std::string shown = Shown(parts.Finish());
  return parts.grew() ? shown : absl::StrCat(kShrank, shown);
}

// The same with special tokens as such.
inline std::string ParseWithSpecials(const MessageSyntax& syntax,
                                     const std::vector<std::string>& specials,
                                     absl::string_view text) {
  PartsGrow parts(syntax);
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const auto special = std::find_if(
        specials.begin(), specials.end(),
        [&](const std::string& token) { return absl::StartsWith(text.substr(at), token); });
    if (special == specials.end()) {
      ++at;
      continue;
    }
    parts.Text(text.substr(begin, at - begin));
    parts.Special(*special);
    begin = at += special->size();
  }
  parts.Text(text.substr(begin));
  const std::string shown = Shown(parts.Finish());
  return parts.grew() ? shown : absl::StrCat(kShrank, shown);
}

}  // namespace coppice::coordinator
