#include "grammar/lark_text.h"

#include "absl/strings/ascii.h"
#include "grammar/lark.h"

namespace coppice::grammar {

bool BeginsLarkName(char c) {
  return absl::ascii_isalpha(static_cast<unsigned char>(c)) || c == '_';
}

// Skips spaces and comments, and line ends if `lines`.
void SkipLarkBlanks(SourceText* text, bool lines) {
  for (;; text->Back(text->at() + 1)) {
    if (text->Peek() == '#' || text->Sees("//")) {
      while (!text->done() && text->Peek() != '\n') text->Back(text->at() + 1);
    }
    if (text->done()) return;
    const char c = text->Peek();
    if (c != ' ' && c != '\t' && c != '\r' && !(lines && c == '\n')) return;
  }
}

std::string TakeLarkName(SourceText* text) {
  std::string name;
  while (BeginsLarkName(text->Peek()) ||
         absl::ascii_isdigit(static_cast<unsigned char>(text->Peek()))) {
    name.push_back(text->Peek());
    text->Back(text->at() + 1);
  }
  return name;
}

bool IsTerminalName(absl::string_view name) {
  const size_t letter = name.find_first_not_of("_0123456789");
  return letter != absl::string_view::npos &&
         absl::ascii_isupper(static_cast<unsigned char>(name[letter]));
}

absl::string_view JsonObjectAt(absl::string_view text, size_t at) {
  int nested = 0;
  bool quoted = false;
  for (size_t i = at; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{') {
      ++nested;
    } else if (c == '}' && --nested == 0) {
      return text.substr(at, i + 1 - at);
    }
    if (nested == 0) return "";  // it does not begin with a brace
  }
  return "";
}

bool IsLark(absl::string_view text) {
  SourceText source(text);
  SkipLarkBlanks(&source, true);
  if (source.Peek() == '%') return true;
  while (source.Take("?") || source.Take("!")) {
  }
  if (TakeLarkName(&source).empty()) return false;
  if (source.Take(".")) {
    source.Take("-");
    source.Count();
  }
  SkipLarkBlanks(&source, false);
  return source.Peek() == ':' && !source.Sees("::=");
}

}  // namespace coppice::grammar
