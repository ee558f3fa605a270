#include "base/utf8_check.h"

#include <cstddef>
#include <cstdint>

namespace coppice {
namespace {

bool IsContinuation(absl::string_view text, size_t at) {
  return at < text.size() && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80;
}

// Bytes of the character at `at`, which begins with `first`; 0: none is there.
size_t CharacterBytes(absl::string_view text, size_t at) {
  const auto first = static_cast<uint8_t>(text[at]);
  if (first < 0x80) return 1;
  const size_t bytes = first < 0xC2   ? 0
                       : first < 0xE0 ? 2
                       : first < 0xF0 ? 3
                       : first < 0xF5 ? 4
                                      : 0;
  for (size_t i = 1; i < bytes; ++i) {
    if (!IsContinuation(text, at + i)) return 0;
  }
  if (bytes < 3) return bytes;
  const auto second = static_cast<uint8_t>(text[at + 1]);
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool outside = (first == 0xED && second > 0x9F) || (first == 0xF4 && second > 0x8F);
  return overlong || outside ? 0 : bytes;
}

}  // namespace

bool IsValidUtf8(absl::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = CharacterBytes(text, at);
    if (bytes == 0) return false;
    at += bytes;
  }
  return true;
}

}  // namespace coppice
