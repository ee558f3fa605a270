// UTF-8 that arrives in pieces: finds the final part of a byte string and replaces invalid bytes by
// U+FFFD. Called by all tokenizers and by the detokenizer. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace coppice::tokenizer {

struct Utf8Char {
  uint32_t code_point = 0;  // U+FFFD when invalid
  // In bytes. For an invalid part: of its maximal subpart (Unicode 15.0, section 3.9, D93b).
  int length = 1;
  bool valid = false;
  bool incomplete = false;  // the text ended inside a character that could still become valid
};

// The character that starts at text[0]; text must not be empty.
Utf8Char NextUtf8Char(absl::string_view text);

// Appends code_point (a Unicode scalar value) to *text.
void AppendUtf8(uint32_t code_point, std::string* text);

// Number of bytes at the end of text, at most 3, that start a character which more bytes could
// complete.
size_t IncompleteTail(absl::string_view text);

// The text with every maximal invalid part replaced by U+FFFD.
std::string ValidUtf8(absl::string_view text);

}  // namespace coppice::tokenizer
