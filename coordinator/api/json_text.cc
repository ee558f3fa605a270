#include "coordinator/api/json_text.h"

#include <array>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "base/utf8_check.h"

namespace coppice::coordinator {
namespace {

using Json = nlohmann::ordered_json;

std::string JsonLine(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// [bytes] How a byte is written within a string; empty: as it is.
std::array<std::string, 256> MakeEscapes() {
  std::array<std::string, 256> escapes;
  for (int c = 0; c < 0x20; ++c) escapes[c] = absl::StrCat("\\u", absl::Hex(c, absl::kZeroPad4));
  escapes['\b'] = "\\b";
  escapes['\t'] = "\\t";
  escapes['\n'] = "\\n";
  escapes['\f'] = "\\f";
  escapes['\r'] = "\\r";
  escapes['"'] = "\\\"";
  escapes['\\'] = "\\\\";
  return escapes;
}

// Reads valid JSON.
class JsonScanner {
 public:
  explicit JsonScanner(absl::string_view text) : text_(text) {}

  // Whether the character comes next, which is then passed.
  bool Take(char wanted) {
    SkipSpace();
    if (at_ >= text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  absl::string_view Value() {
    SkipSpace();
    const size_t begin = at_;
    int depth = 0;
    do {
      if (at_ >= text_.size()) break;
      const char c = text_[at_];
      if (c == '"') {
        SkipString();
      } else if (c == '{' || c == '[') {
        ++depth;
        ++at_;
      } else if (c == '}' || c == ']') {
        --depth;
        ++at_;
      } else if (depth > 0) {
        ++at_;
      } else {  // a number or a word
        while (at_ < text_.size() && !Ends(text_[at_])) ++at_;
        break;
      }
    } while (depth > 0);
    return text_.substr(begin, at_ - begin);
  }

 private:
  static bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
  static bool Ends(char c) { return IsSpace(c) || c == ',' || c == '}' || c == ']'; }
  void SkipSpace() {
    while (at_ < text_.size() && IsSpace(text_[at_])) ++at_;
  }
  void SkipString() {
    ++at_;
    while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    ++at_;
  }

  const absl::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::vector<std::pair<std::string, absl::string_view>> MemberTexts(absl::string_view text) {
  std::vector<std::pair<std::string, absl::string_view>> members;
  JsonScanner scanner(text);
  if (!scanner.Take('{') || scanner.Take('}')) return members;
  do {
    const absl::string_view name = scanner.Value();
    scanner.Take(':');
    const absl::string_view value = scanner.Value();
    members.emplace_back(Json::parse(name).get<std::string>(), value);
  } while (scanner.Take(','));
  return members;
}

absl::string_view MemberText(absl::string_view object, absl::string_view name) {
  absl::string_view found;
  for (const auto& [member, value] : MemberTexts(object)) {
    if (member == name) found = value;
  }
  return found;
}

std::vector<absl::string_view> EntryTexts(absl::string_view text) {
  std::vector<absl::string_view> entries;
  JsonScanner scanner(text);
  if (!scanner.Take('[') || scanner.Take(']')) return entries;
  do {
    entries.push_back(scanner.Value());
  } while (scanner.Take(','));
  return entries;
}

std::string CompactText(absl::string_view text) {
  std::string compact;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (!in_string && (c == ' ' || c == '\n' || c == '\r' || c == '\t')) continue;
    compact += c;
    if (c == '"') in_string = !in_string;
    if (in_string && c == '\\' && i + 1 < text.size()) compact += text[++i];
  }
  return compact;
}

// The same bytes as nlohmann's dump, without its allocations: streams have a short text in each
// event.
void AppendQuoted(absl::string_view text, std::string* out) {
  static const std::array<std::string, 256>& escapes = *new auto(MakeEscapes());
  if (!IsValidUtf8(text)) {
    *out += JsonLine(std::string(text));
    return;
  }
  *out += '"';
  size_t written = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string& escape = escapes[static_cast<unsigned char>(text[i])];
    if (escape.empty()) continue;
    absl::StrAppend(out, text.substr(written, i - written), escape);
    written = i + 1;
  }
  absl::StrAppend(out, text.substr(written), "\"");
}

std::string QuotedText(absl::string_view text) {
  std::string quoted;
  AppendQuoted(text, &quoted);
  return quoted;
}

ObjectText& ObjectText::Add(absl::string_view name, const Json& value) {
  return AddText(name, JsonLine(value));
}

ObjectText& ObjectText::AddText(absl::string_view name, absl::string_view text) {
  absl::StrAppend(&members_, members_.empty() ? "" : ",", QuotedText(name), ":", text);
  return *this;
}

ObjectText& ObjectText::AddMembers(absl::string_view members) {
  absl::StrAppend(&members_, members_.empty() || members.empty() ? "" : ",", members);
  return *this;
}

void ListText::Add(absl::string_view text) {
  absl::StrAppend(&entries_, size_ == 0 ? "" : ",", text);
  ++size_;
}

}  // namespace coppice::coordinator
