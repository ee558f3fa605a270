// Unicode normalization form C (UAX 15) of Unicode 9, as Hugging Face tokenizers has it: characters
// composed where a composed form exists. Later characters stay where and what they are. Called by
// the normalizer; the tables are those of libutf8proc. Pure function.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace coppice::tokenizer {

// Invalid parts of the text become U+FFFD.
std::string ToNfc(absl::string_view text);

}  // namespace coppice::tokenizer
