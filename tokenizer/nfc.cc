#include "tokenizer/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>

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
    const absl::string_view part = rest.substr(0, rest.find(kNoFinalConsonant, 1));
    AppendComposed(part, &out);
    rest.remove_prefix(part.size());
  }
  return out;
}

}  // namespace coppice::tokenizer
