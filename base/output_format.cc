#include "base/output_format.h"

#include <bit>

#include "absl/strings/str_cat.h"
#include "base/printable_name.h"

namespace coppice {

std::vector<TokenId> AllowedTokens::Tokens() const {
  if (bits.empty() || !listed.empty()) return listed;
  std::vector<TokenId> tokens;
  for (size_t word = 0; word < bits.size(); ++word) {
    for (uint64_t left = bits[word]; left != 0; left &= left - 1)
      tokens.push_back(static_cast<TokenId>(word * 64 + std::countr_zero(left)));
  }
  return tokens;
}

absl::string_view FormatKindName(FormatSpec::Kind kind) {
  switch (kind) {
    case FormatSpec::Kind::kNone:
      return "";
    case FormatSpec::Kind::kRegex:
      return "regex";
    case FormatSpec::Kind::kGrammar:
      return "grammar";
    case FormatSpec::Kind::kJsonSchema:
      return "json_schema";
    case FormatSpec::Kind::kStructuralTag:
      return "structural_tag";
    case FormatSpec::Kind::kCatalogue:
      return "catalogue";
  }
  return "";
}

absl::StatusOr<FormatSpec::Kind> ParseFormatKind(absl::string_view name) {
  for (const auto kind : {FormatSpec::Kind::kNone, FormatSpec::Kind::kRegex,
                          FormatSpec::Kind::kGrammar, FormatSpec::Kind::kJsonSchema,
                          FormatSpec::Kind::kStructuralTag, FormatSpec::Kind::kCatalogue}) {
    if (name == FormatKindName(kind)) return kind;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", PrintableName(name), "\" is no kind of format"));
}

}  // namespace coppice
