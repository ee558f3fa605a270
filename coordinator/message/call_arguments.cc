#include "coordinator/message/call_arguments.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace coppice::coordinator {
Took JsonValueReader::Read(char c) {
  if (string_) {
    if (escape_)
      escape_ = false;
    else if (c == '\\')
      escape_ = true;
    else if (c == '"')
      string_ = false;
    return string_ || depth_ > 0 ? Took::kTaken : Took::kLast;
  }
  if (scalar_) {
    return absl::StrContains(",:{}[]\" \t\r\n", c) ? Took::kNone : Took::kTaken;
  }
  if (c == '"') {
    string_ = true;
  } else if (c == '{' || c == '[') {
    ++depth_;
  } else if (c == '}' || c == ']') {
    if (depth_ == 0) return Took::kNone;
    if (--depth_ == 0) return Took::kLast;
  } else if (depth_ == 0) {
    if (absl::StrContains(",: \t\r\n", c)) return Took::kNone;
    scalar_ = true;
  }
  return Took::kTaken;
}

void AppendToJsonString(absl::string_view text, std::string* json) {
  constexpr absl::string_view kNames = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
  for (const char c : text) {
    const size_t name = kNames.find(c);
    if (name != absl::string_view::npos)
      absl::StrAppend(json, "\\", kLetters.substr(name, 1));
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      absl::StrAppend(json, "\\u", absl::Hex(c, absl::kZeroPad4));
    else
      json->push_back(c);
  }
}

}  // namespace coppice::coordinator
