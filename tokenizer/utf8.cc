#include "tokenizer/utf8.h"

#include <algorithm>

namespace coppice::tokenizer {
namespace {

constexpr absl::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace

Utf8Char NextUtf8Char(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  Utf8Char c{.code_point = 0xFFFD};
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {.code_point = lead, .length = 1, .valid = true};
  // Table 3-7 of the Unicode standard: for each lead byte, the length and the range of the second
  // byte.
  int length = 0;
  uint8_t low = 0x80, high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return c;
  }
  uint32_t code_point = lead & (0xFF >> (length + 1));
  for (int i = 1; i < length; ++i) {
    if (static_cast<size_t>(i) == text.size()) {
      c.incomplete = true;
      return c;
    }
    if (byte(i) < low || byte(i) > high) return c;
    low = 0x80;
    high = 0xBF;
    code_point = code_point << 6 | (byte(i) & 0x3F);
    c.length = i + 1;
  }
  return {.code_point = code_point, .length = length, .valid = true};
}

void AppendUtf8(uint32_t code_point, std::string* text) {
  const auto push = [&](uint32_t byte) { text->push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    push(code_point);
    return;
  }
  if (code_point < 0x800) {
    push(0xC0 | code_point >> 6);
  } else {
    if (code_point < 0x10000) {
      push(0xE0 | code_point >> 12);
    } else {
      push(0xF0 | code_point >> 18);
      push(0x80 | (code_point >> 12 & 0x3F));
    }
    push(0x80 | (code_point >> 6 & 0x3F));
  }
  push(0x80 | (code_point & 0x3F));
}

size_t IncompleteTail(absl::string_view text) {
  const size_t most = std::min<size_t>(3, text.size());
  for (size_t n = 1; n <= most; ++n) {
    const absl::string_view tail = text.substr(text.size() - n);
    const uint8_t lead = static_cast<uint8_t>(tail[0]);
    if (lead < 0x80) return 0;
    if (lead >= 0xC0) {
      const Utf8Char c = NextUtf8Char(tail);
      return c.incomplete && static_cast<size_t>(c.length) == n ? n : 0;
    }
  }
  return 0;
}

std::string ValidUtf8(absl::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Char c = NextUtf8Char(text);
    const absl::string_view part = c.valid ? text.substr(0, c.length) : kReplacement;
    out.append(part.data(), part.size());
    text.remove_prefix(c.length);
  }
  return out;
}

}  // namespace coppice::tokenizer
