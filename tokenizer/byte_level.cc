#include "tokenizer/byte_level.h"

#include <array>
#include <cstdint>

#include "tokenizer/utf8.h"

namespace coppice::tokenizer {
namespace {

constexpr int kAlphabetEnd = 256 + 68;  // 68 bytes are not printable in Latin-1

constexpr bool PrintsInLatin1(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<uint16_t, 256> MakeCodePoints() {
  std::array<uint16_t, 256> code_points{};
  uint16_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    code_points[byte] = PrintsInLatin1(byte) ? static_cast<uint16_t>(byte) : next++;
  }
  return code_points;
}

constexpr std::array<int16_t, kAlphabetEnd> MakeBytes() {
  std::array<int16_t, kAlphabetEnd> bytes{};
  for (int16_t& byte : bytes) byte = -1;
  for (int byte = 0; byte < 256; ++byte) bytes[MakeCodePoints()[byte]] = static_cast<int16_t>(byte);
  return bytes;
}

constexpr std::array<uint16_t, 256> kCodePointOfByte = MakeCodePoints();
constexpr std::array<int16_t, kAlphabetEnd> kByteOfCodePoint = MakeBytes();

}  // namespace

std::string BytesToByteLevel(absl::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char c : bytes) AppendUtf8(kCodePointOfByte[static_cast<uint8_t>(c)], &text);
  return text;
}

std::optional<std::string> ByteLevelToBytes(absl::string_view text) {
  std::string bytes;
  while (!text.empty()) {
    const Utf8Char c = NextUtf8Char(text);
    if (!c.valid || c.code_point >= kAlphabetEnd || kByteOfCodePoint[c.code_point] < 0) {
      return std::nullopt;
    }
    bytes.push_back(static_cast<char>(kByteOfCodePoint[c.code_point]));
    text.remove_prefix(c.length);
  }
  return bytes;
}

}  // namespace coppice::tokenizer
