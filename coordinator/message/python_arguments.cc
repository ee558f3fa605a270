#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "coordinator/message/call_arguments.h"

namespace coppice::coordinator {
namespace {

constexpr size_t kMostWord = 400;  // of a name or a number
constexpr size_t kMostDepth = 200;

bool IsPythonSpace(char c) { return absl::StrContains(" \t\r\n", c); }

bool IsNameBegin(char c) {
  return absl::ascii_isalpha(c) || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}

bool IsNamePart(char c) { return IsNameBegin(c) || absl::ascii_isdigit(c); }

bool IsWordPart(char c) { return IsNamePart(c) || c == '.' || c == '+' || c == '-'; }

// The value of a number or word as JSON; "" if it is none.
std::string WordAsJson(const std::string& word) {
  if (word == "True" || word == "true") return "true";
  if (word == "False" || word == "false") return "false";
  if (word == "None" || word == "null") return "null";
  std::string number = absl::StrReplaceAll(word, {{"_", ""}});
  if (absl::StartsWith(number, "+")) number.erase(0, 1);
  const size_t digits = absl::StartsWith(number, "-") ? 1 : 0;
  const size_t point = number.find('.');
  if (point != std::string::npos) {
    if (point + 1 == number.size() || !absl::ascii_isdigit(number[point + 1]))
      number.insert(point + 1, "0");
    if (point == digits) number.insert(point, "0");
  }
  const bool begins = number.size() > digits && absl::ascii_isdigit(number[digits]);
  return begins && nlohmann::json::accept(number) ? number : "";
}

void AppendUtf8(uint32_t code, std::string* out) {
  const auto byte = [out](uint32_t value) { out->push_back(static_cast<char>(value)); };
  const auto rest = [&](int shift) { byte(0x80 | (code >> shift & 0x3f)); };
  if (code < 0x80) {
    byte(code);
  } else if (code < 0x800) {
    byte(0xc0 | code >> 6), rest(0);
  } else if (code < 0x10000) {
    byte(0xe0 | code >> 12), rest(6), rest(0);
  } else {
    byte(0xf0 | code >> 18), rest(12), rest(6), rest(0);
  }
}

// What an escape stands for, as part of a JSON string. One that Python does not know is itself.
void AppendEscape(const std::string& escape, std::string* json) {
  constexpr absl::string_view kLetters = "abfnrtv", kValues = "\a\b\f\n\r\t\v";
  const char kind = escape[0];
  const size_t letter = kLetters.find(kind);
  const bool octal = kind >= '0' && kind <= '7';
  if (escape.size() > 1 || octal) {
    uint32_t code = 0;
    for (const char c : octal ? escape : escape.substr(1)) {
      const char lower = absl::ascii_tolower(c);
      const uint32_t digit = absl::ascii_isdigit(c) ? c - '0' : lower - 'a' + 10;
      code = code * (octal ? 8 : 16) + digit;
    }
    if (code >= 0xd800 && code < 0xe000) {  // half of a character, as JSON may have it too
      absl::StrAppend(json, "\\u", absl::Hex(code, absl::kZeroPad4));
    } else if (code > 0x10ffff) {
      AppendToJsonString(absl::StrCat("\\", escape), json);
    } else {
      std::string text;
      AppendUtf8(code, &text);
      AppendToJsonString(text, json);
    }
  } else if (letter != absl::string_view::npos) {
    AppendToJsonString(kValues.substr(letter, 1), json);
  } else if (absl::StrContains("\\'\"", kind)) {
    AppendToJsonString(escape, json);
  } else if (kind != '\n') {
    AppendToJsonString(absl::StrCat("\\", escape), json);
  }
}

}  // namespace

Took PythonArgumentsReader::Read(char c, std::string* json) {
  const Took took = ReadAny(c, json);
  const bool holds = at_ == At::kInName || at_ == At::kEquals || at_ == At::kWord;
  if (took == Took::kTaken && holds) held_ += c;
  if (!holds) held_.clear();
  return took;
}

Took PythonArgumentsReader::ReadAny(char c, std::string* json) {
  switch (at_) {
    case At::kName:
    case At::kInName:
    case At::kEquals:
      return ReadName(c, json);
    case At::kValue:
    case At::kElement:
    case At::kKey:
      return ReadValue(c, json);
    case At::kColon:
    case At::kAfterValue:
      return ReadAfterString(c, json);
    case At::kWord:
      if (IsWordPart(c)) {
        word_ += c;
        return word_.size() > kMostWord ? Took::kWrong : Took::kTaken;
      }
      return EndWord(json) ? ReadAfterValue(c, json) : Took::kWrong;
    case At::kQuote:
    case At::kSecondQuote:
    case At::kString:
      return ReadString(c, json);
    case At::kEscape:
      return ReadEscape(c, json);
  }
  return Took::kWrong;
}

void PythonArgumentsReader::Finish(std::string* json) {
  if (at_ == At::kWord) EndWord(json);
  if (at_ == At::kSecondQuote) EndString(json);
}

Took PythonArgumentsReader::ReadName(char c, std::string* json) {
  if (at_ == At::kName) {
    if (IsPythonSpace(c)) return Took::kTaken;
    if (c == ')') return Close(json);
    if (!IsNameBegin(c)) return Took::kWrong;
    word_ = c;
    at_ = At::kInName;
    return Took::kTaken;
  }
  if (at_ == At::kInName && IsNamePart(c)) {
    if (word_.size() >= kMostWord) return Took::kWrong;
    word_ += c;
    return Took::kTaken;
  }
  if (IsPythonSpace(c)) {
    at_ = At::kEquals;
    return Took::kTaken;
  }
  if (c != '=') return Took::kWrong;
  if (open_.empty() && first_) json->push_back('{');
  Separate(json);
  absl::StrAppend(json, "\"", word_, "\": ");
  word_.clear();
  at_ = At::kValue;
  return Took::kTaken;
}

// Before an element of the innermost bracket.
void PythonArgumentsReader::Separate(std::string* json) {
  if (!first_) absl::StrAppend(json, ", ");
  first_ = false;
}

Took PythonArgumentsReader::ReadValue(char c, std::string* json) {
  if (IsPythonSpace(c)) return Took::kTaken;
  const bool may_end = at_ != At::kValue;
  if (may_end && absl::StrContains("])}", c)) return ReadAfterValue(c, json);
  const bool quote = c == '"' || c == '\'';
  key_ = at_ == At::kKey;
  if (key_ && !quote) return Took::kWrong;
  if (quote) {
    if (may_end) Separate(json);
    json->push_back('"');
    quote_ = c;
    at_ = At::kQuote;
  } else if (absl::StrContains("[({", c)) {
    if (open_.size() >= kMostDepth) return Took::kWrong;
    if (may_end) Separate(json);
    json->push_back(c == '{' ? '{' : '[');
    open_ += c;
    first_ = true;
    at_ = c == '{' ? At::kKey : At::kElement;
  } else if (IsWordPart(c)) {
    word_ = c;
    at_ = At::kWord;
    key_ = may_end;  // whether an element is to be separated from the one before
  } else {
    return Took::kWrong;
  }
  return Took::kTaken;
}

bool PythonArgumentsReader::EndWord(std::string* json) {
  const std::string value = WordAsJson(word_);
  if (value.empty()) return false;
  if (key_) Separate(json);
  key_ = false;
  absl::StrAppend(json, value);
  word_.clear();
  at_ = At::kAfterValue;
  return true;
}

Took PythonArgumentsReader::ReadAfterValue(char c, std::string* json) {
  if (IsPythonSpace(c)) return Took::kTaken;
  const char inner = open_.empty() ? '(' : open_.back();
  if (c == ',') {
    at_ = open_.empty() ? At::kName : inner == '{' ? At::kKey : At::kElement;
    return Took::kTaken;
  }
  const char closing = inner == '(' ? ')' : inner == '[' ? ']' : '}';
  return c == closing ? Close(json) : Took::kWrong;
}

Took PythonArgumentsReader::ReadAfterString(char c, std::string* json) {
  if (at_ == At::kAfterValue) return ReadAfterValue(c, json);
  if (IsPythonSpace(c)) return Took::kTaken;
  if (c != ':') return Took::kWrong;
  absl::StrAppend(json, ": ");
  at_ = At::kValue;
  return Took::kTaken;
}

Took PythonArgumentsReader::Close(std::string* json) {
  if (open_.empty()) {
    absl::StrAppend(json, first_ ? "{}" : "}");
    return Took::kLast;
  }
  json->push_back(open_.back() == '{' ? '}' : ']');
  open_.pop_back();
  first_ = false;  // what was closed is an element
  at_ = At::kAfterValue;
  return Took::kTaken;
}

void PythonArgumentsReader::EndString(std::string* json) {
  json->push_back('"');
  triple_ = false;
  at_ = key_ ? At::kColon : At::kAfterValue;
}

Took PythonArgumentsReader::ReadString(char c, std::string* json) {
  if (at_ == At::kQuote) {
    at_ = c == quote_ ? At::kSecondQuote : At::kString;
    if (c == quote_) return Took::kTaken;
  } else if (at_ == At::kSecondQuote) {
    if (c != quote_) {
      EndString(json);
      return ReadAfterString(c, json);
    }
    triple_ = true;
    at_ = At::kString;
    return Took::kTaken;
  }
  if (c == quote_) {
    if (triple_ && ++quotes_ < 3) return Took::kTaken;
    quotes_ = 0;
    EndString(json);
    return Took::kTaken;
  }
  AppendToJsonString(std::string(quotes_, quote_), json);
  quotes_ = 0;
  if (c == '\\') {
    escape_.clear();
    at_ = At::kEscape;
  } else {
    AppendToJsonString(absl::string_view(&c, 1), json);
  }
  return Took::kTaken;
}

Took PythonArgumentsReader::ReadEscape(char c, std::string* json) {
  const char kind = escape_.empty() ? c : escape_[0];
  const auto is_octal = [](char d) { return d >= '0' && d <= '7'; };
  const size_t size = kind == 'x' ? 3 : kind == 'u' ? 5 : kind == 'U' ? 9 : is_octal(kind) ? 3 : 1;
  const bool part = escape_.empty() || (is_octal(kind) ? is_octal(c) : absl::ascii_isxdigit(c));
  if (part) escape_ += c;
  if (part && escape_.size() < size) return Took::kTaken;
  at_ = At::kString;
  if (escape_.size() == size || is_octal(kind))
    AppendEscape(escape_, json);
  else
    AppendToJsonString(absl::StrCat("\\", escape_), json);  // cut short: itself
  return part ? Took::kTaken : ReadString(c, json);
}

}  // namespace coppice::coordinator
