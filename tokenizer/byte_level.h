// The byte alphabet of GPT-2: each of the 256 bytes is one printable character, so a vocabulary of
// text covers every byte string. Printable Latin-1 bytes stand for themselves. The others are
// U+0100 and up, in byte order. Pure functions.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace coppice::tokenizer {

// "a b" -> "aĠb".
std::string BytesToByteLevel(absl::string_view bytes);

// The inverse. nullopt if a character is not one of the 256.
std::optional<std::string> ByteLevelToBytes(absl::string_view text);

}  // namespace coppice::tokenizer
