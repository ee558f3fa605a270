#include "tokenizer/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "tokenizer/utf8.h"

namespace coppice::tokenizer {
namespace {

// All characters below U+0300 are in NFC, and only later ones join others. Their first bytes are
// below this one.
constexpr unsigned char kFirstChanged = 0xCC;

// U+11A7 joins no character. utf8proc 2.8 drops it after a Hangul syllable without a final
// consonant, so it always begins a part of its own.
constexpr absl::string_view kNoFinalConsonant = "\xE1\x86\xA7";

// What later versions of Unicode than 9 have given a combining class or a composition, up to 15.1;
// unassigned in version 9. In the order of the code points.
constexpr std::pair<uint32_t, uint32_t> kLater[] = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},
    {0xC3C, 0xC3C},     {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},
    {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},   {0x10D24, 0x10D27},
    {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85},
    {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
    {0x11930, 0x11930}, {0x11938, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943},
    {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99},
    {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x11F41, 0x11F42},
    {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE},
    {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}};

bool IsLater(uint32_t code_point) {
  const auto* after = std::upper_bound(
      std::begin(kLater), std::end(kLater), code_point,
      [](uint32_t c, const std::pair<uint32_t, uint32_t>& range) { return c < range.first; });
  return after != std::begin(kLater) && code_point <= std::prev(after)->second;
}

// The first characters of a text that is not empty, valid UTF-8, which are normalized by themselves.
absl::string_view FirstPart(absl::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = NextUtf8Char(text.substr(at));
    if (IsLater(c.code_point)) return text.substr(0, at > 0 ? at : c.length);
    if (at > 0 && text.substr(at, c.length) == kNoFinalConsonant) return text.substr(0, at);
    at += c.length;
  }
  return text;
}

// part: valid UTF-8.
void AppendComposed(absl::string_view part, std::string* out) {
  utf8proc_uint8_t* composed = nullptr;
  const utf8proc_ssize_t length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(part.data()),
                   static_cast<utf8proc_ssize_t>(part.size()), &composed,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owned(composed, &std::free);
  if (length == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
  COPPICE_CHECK_MSG(length >= 0, utf8proc_errmsg(length));
  out->append(reinterpret_cast<const char*>(composed), static_cast<size_t>(length));
}

}  // namespace

std::string ToNfc(absl::string_view text) {
  const auto may_change = [](char c) { return static_cast<unsigned char>(c) >= kFirstChanged; };
  if (std::none_of(text.begin(), text.end(), may_change)) return std::string(text);
  const std::string valid = ValidUtf8(text);
  std::string out;
  for (absl::string_view rest = valid; !rest.empty();) {
    const absl::string_view part = FirstPart(rest);
    if (IsLater(NextUtf8Char(part).code_point)) {
      absl::StrAppend(&out, part);
    } else {
      AppendComposed(part, &out);
    }
    rest.remove_prefix(part.size());
  }
  return out;
}

}  // namespace coppice::tokenizer
