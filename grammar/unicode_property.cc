#define PCRE2_CODE_UNIT_WIDTH 8
#include "grammar/unicode_property.h"

#include <pcre2.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "grammar/source_text.h"
#include "tokenizer/utf8.h"

namespace coppice::grammar {
namespace {

struct Category {
  absl::string_view name, long_name;
};
constexpr Category kCategories[] = {{"L", "Letter"},
                                    {"Lu", "Uppercase_Letter"},
                                    {"Ll", "Lowercase_Letter"},
                                    {"Lt", "Titlecase_Letter"},
                                    {"Lm", "Modifier_Letter"},
                                    {"Lo", "Other_Letter"},
                                    {"M", "Mark"},
                                    {"Mn", "Nonspacing_Mark"},
                                    {"Mc", "Spacing_Mark"},
                                    {"Me", "Enclosing_Mark"},
                                    {"N", "Number"},
                                    {"Nd", "Decimal_Number"},
                                    {"Nl", "Letter_Number"},
                                    {"No", "Other_Number"},
                                    {"P", "Punctuation"},
                                    {"Pc", "Connector_Punctuation"},
                                    {"Pd", "Dash_Punctuation"},
                                    {"Ps", "Open_Punctuation"},
                                    {"Pe", "Close_Punctuation"},
                                    {"Pi", "Initial_Punctuation"},
                                    {"Pf", "Final_Punctuation"},
                                    {"Po", "Other_Punctuation"},
                                    {"S", "Symbol"},
                                    {"Sm", "Math_Symbol"},
                                    {"Sc", "Currency_Symbol"},
                                    {"Sk", "Modifier_Symbol"},
                                    {"So", "Other_Symbol"},
                                    {"Z", "Separator"},
                                    {"Zs", "Space_Separator"},
                                    {"Zl", "Line_Separator"},
                                    {"Zp", "Paragraph_Separator"},
                                    {"C", "Other"},
                                    {"Cc", "Control"},
                                    {"Cf", "Format"},
                                    {"Cn", "Unassigned"}};
constexpr absl::string_view kScripts[] = {
    "Arabic",  "Armenian", "Bengali",  "Bopomofo", "Common",  "Cyrillic",  "Devanagari", "Ethiopic",
    "Greek",   "Georgian", "Gujarati", "Gurmukhi", "Han",     "Hangul",    "Hebrew",     "Hiragana",
    "Khmer",   "Kannada",  "Katakana", "Lao",      "Latin",   "Malayalam", "Mongolian",  "Myanmar",
    "Sinhala", "Tamil",    "Telugu",   "Thai",     "Tibetan", "Inherited"};

// How PCRE2 writes the property. "": the name is not served.
std::string PcreName(absl::string_view name) {
  const bool category =
      absl::ConsumePrefix(&name, "General_Category=") || absl::ConsumePrefix(&name, "gc=");
  const bool script =
      !category && (absl::ConsumePrefix(&name, "Script=") || absl::ConsumePrefix(&name, "sc="));
  for (const Category& one : kCategories) {
    if (!script && (name == one.name || name == one.long_name)) return std::string(one.name);
  }
  const bool known =
      std::find(std::begin(kScripts), std::end(kScripts), name) != std::end(kScripts);
  return known && !category ? absl::StrCat("sc:", name) : "";
}

CodePoints FindCharacters(const std::string& pcre_name) {
  const std::string pattern = absl::StrCat("\\p{", pcre_name, "}+");
  int error = 0;
  PCRE2_SIZE position = 0;
  const std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF, &error,
                    &position, nullptr),
      &pcre2_code_free);
  COPPICE_CHECK_MSG(code != nullptr, pattern);
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);  // without it, the same is found later
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
      pcre2_match_data_create(1, nullptr), &pcre2_match_data_free);
  // Every character that may have the property, in order: only C and Cn have some between the planes
  // of scripts and that of tags, and behind it.
  const bool everywhere = pcre_name[0] == 'C' && pcre_name.size() < 3;
  std::string all;
  for (uint32_t c = 0; c <= 0x10ffff; ++c) {
    const bool used = c <= 0x3ffff || (c >= 0xe0000 && c <= 0xe0fff);
    if (!IsSurrogate(c) && (used || everywhere)) tokenizer::AppendUtf8(c, &all);
  }
  const absl::string_view text = all;
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(match.get());
  CodePoints characters;
  for (size_t at = 0; pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                  text.size(), at, PCRE2_NO_UTF_CHECK, match.get(), nullptr) > 0;) {
    at = found[1];
    size_t last = at - 1;
    while ((text[last] & 0xc0) == 0x80) --last;
    characters.emplace_back(tokenizer::NextUtf8Char(text.substr(found[0])).code_point,
                            tokenizer::NextUtf8Char(text.substr(last)).code_point);
  }
  return characters;
}

}  // namespace

std::optional<CodePoints> CharactersOfProperty(absl::string_view name) {
  if (name == "Any") return CodePoints{{0, 0x10ffff}};
  if (name == "ASCII") return CodePoints{{0, 0x7f}};
  const std::string pcre_name = PcreName(name);
  if (pcre_name.empty()) return std::nullopt;
  static std::mutex lock;
  static auto* const known = new absl::flat_hash_map<std::string, CodePoints>;
  const std::lock_guard<std::mutex> guard(lock);
  const auto [at, added] = known->try_emplace(pcre_name);
  if (added) at->second = FindCharacters(pcre_name);
  return at->second;
}

}  // namespace coppice::grammar
