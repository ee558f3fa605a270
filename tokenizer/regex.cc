#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/regex.h"

#include <pcre2.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tokenizer/onig_pattern.h"
#include "tokenizer/utf8.h"

namespace coppice::tokenizer {
namespace {

// PCRE2 counts U+180E as white space, which Unicode and the libraries that train tokenizers do not.
// U+200B is no white space for either, and it has the same category and as many bytes.
constexpr absl::string_view kVowelSeparator = "\xE1\xA0\x8E", kZeroWidthSpace = "\xE2\x80\x8B";

}  // namespace

absl::StatusOr<Regex> Regex::Compile(const std::string& pattern, bool literal) {
  std::string pcre = pattern;
  if (!literal) {
    auto translated = PcreOfOnig(pattern);
    if (!translated.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("pattern ", pattern, ": ", translated.status().message()));
    }
    pcre = *std::move(translated);
  }
  int error = 0;
  PCRE2_SIZE position = 0;
  const uint32_t options = PCRE2_UTF | (literal ? PCRE2_LITERAL : PCRE2_UCP);
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pcre.data()), pcre.size(), options,
                                   &error, &position, context.get());
  if (code == nullptr) {
    PCRE2_UCHAR reason[256];
    pcre2_get_error_message(error, reason, sizeof(reason));
    return absl::InvalidArgumentError(absl::StrCat("pattern ", pattern, ": as ", pcre, " at byte ",
                                                   position, ": ",
                                                   reinterpret_cast<const char*>(reason)));
  }
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // if this fails, matching is interpreted
  Regex regex;
  regex.literal_ = literal;
  regex.code_ =
      std::shared_ptr<void>(code, [](void* p) { pcre2_code_free(static_cast<pcre2_code*>(p)); });
  return regex;
}

std::vector<Regex::Range> Regex::FindAll(absl::string_view text) const {
  std::string changed;
  if (!literal_ && absl::StrContains(text, kVowelSeparator)) {
    changed = absl::StrReplaceAll(text, {{kVowelSeparator, kZeroWidthSpace}});
    text = changed;
  }
  std::vector<Range> ranges;
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
      pcre2_match_data_create(1, nullptr), &pcre2_match_data_free);
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match.get());
  for (size_t at = 0; at < text.size();) {
    const auto find = [&](uint32_t options) {
      return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                         PCRE2_NO_UTF_CHECK | options, match.get(), nullptr);
    };
    int found = find(0);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = find(PCRE2_NO_JIT);
    if (found < 0) break;
    if (range[1] > range[0]) ranges.push_back({range[0], range[1]});
    // After an empty match, continue one character later.
    at = range[1] > at ? range[1] : at + NextUtf8Char(text.substr(at)).length;
  }
  return ranges;
}

}  // namespace coppice::tokenizer
