// Text operations of Python's str, which chat templates use: white space, characters as code
// points, printed forms. Text is UTF-8; an invalid byte counts as one character. Letters, digits and
// case are those of libutf8proc. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace coppice::tokenizer::jinja {

// str.isspace of one character.
bool IsSpace(uint32_t code_point);

// str.strip, lstrip or rstrip. chars: nullptr for white space, else the characters to remove.
absl::string_view StripText(absl::string_view text, bool left, bool right,
                            const std::string* chars);

size_t CountCharacters(absl::string_view text);
// The characters from one index to another, which must not be smaller.
absl::string_view CharacterRange(absl::string_view text, size_t begin, size_t end);
// The characters of the text, as views into it.
std::vector<absl::string_view> Characters(absl::string_view text);

// str.split and str.rsplit; most < 0: no limit. separator nullptr: runs of white space.
std::vector<std::string> SplitText(absl::string_view text, const std::string* separator,
                                   int64_t most, bool from_right);
std::vector<std::string> SplitLines(absl::string_view text, bool keep_ends);
// str.replace; most < 0: no limit. old may be empty, as in Python.
std::string ReplaceText(absl::string_view text, absl::string_view old, absl::string_view with,
                        int64_t most);

// What a character is, as str.isalpha and its kin say.
struct CharacterKind {
  bool letter = false, upper = false, lower = false, title = false;
  bool decimal = false, digit = false, numeric = false;
};
CharacterKind KindOf(absl::string_view character);
// str.isupper or str.islower: it has letters with a case, and all are of this one.
bool HasCase(absl::string_view text, bool upper);
bool IsAlphanumeric(absl::string_view character);
bool IsPrintable(absl::string_view character);  // repr shows it as it is

std::string Upper(absl::string_view text);
std::string Lower(absl::string_view text);
std::string Capitalize(absl::string_view text);
std::string SwapCase(absl::string_view text);
std::string TitleMethod(absl::string_view text);  // str.title
std::string TitleFilter(
    absl::string_view text);  // the filter: words end at white space and - ( { [ <

std::string FloatRepr(double value);
std::string StringRepr(absl::string_view text);
std::string JsonQuoted(absl::string_view text, bool ensure_ascii);  // json.dumps(text, ...)

}  // namespace coppice::tokenizer::jinja
