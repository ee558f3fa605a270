#include "base/output_format.h"

#include "absl/strings/str_cat.h"
#include "base/printable_name.h"

namespace coppice {

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
  for (const auto kind :
       {FormatSpec::Kind::kNone, FormatSpec::Kind::kRegex, FormatSpec::Kind::kGrammar,
        FormatSpec::Kind::kJsonSchema, FormatSpec::Kind::kStructuralTag,
        FormatSpec::Kind::kCatalogue}) {
    if (name == FormatKindName(kind)) return kind;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", PrintableName(name), "\" is no kind of format"));
}

}  // namespace coppice
