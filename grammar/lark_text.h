// The text of a Lark grammar, in small parts. Used by lark. Pure.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "grammar/source_text.h"

namespace coppice::grammar {

bool BeginsLarkName(char c);
bool IsTerminalName(absl::string_view name);

// Skips spaces and comments, and line ends if `lines`.
void SkipLarkBlanks(SourceText* text, bool lines);
// Moves past a name. "": none stands here.
std::string TakeLarkName(SourceText* text);

// The object that begins at `at`. "": none, or it has no end. It need not be valid JSON.
absl::string_view JsonObjectAt(absl::string_view text, size_t at);

}  // namespace coppice::grammar
