// UTF-8 that arrives in pieces: which part of a byte string is final, and invalid bytes as U+FFFD.
// Called by every tokenizer and by the detokenizer. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace coppice::tokenizer {

struct Utf8Char {
  uint32_t code_point = 0;  // U+FFFD when invalid
  // Bytes; of an invalid part its maximal subpart (Unicode 15.0, section 3.9, D93b).
  int length = 1;
  bool valid = false;
  bool incomplete = false;  // the text ended inside a character that could still become valid
};

// The character that starts at text[0]; text must not be empty.
Utf8Char NextUtf8Char(absl::string_view text);

// Appends code_point (a Unicode scalar value) to *text.
void AppendUtf8(uint32_t code_point, std::string* text);

// Bytes at the end of text, at most 3, which begin a character that more bytes could complete.
size_t IncompleteTail(absl::string_view text);

// text with every maximal invalid part replaced by U+FFFD.
std::string ValidUtf8(absl::string_view text);

}  // namespace coppice::tokenizer
