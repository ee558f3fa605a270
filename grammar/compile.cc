#include "grammar/compile.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "grammar/ebnf.h"
#include "grammar/json_schema.h"
#include "grammar/lark.h"
#include "grammar/regex.h"
#include "grammar/structural_tag.h"

namespace coppice::grammar {

absl::StatusOr<Grammar> ReadFormat(const FormatSpec& spec, std::vector<std::string>* annotations) {
  if (spec.text.size() > kMostFormatBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the format has ", spec.text.size(), " bytes, at most ", kMostFormatBytes, " are read"));
  }
  switch (spec.kind) {
    case FormatSpec::Kind::kRegex:
      return ReadRegex(spec.text);
    case FormatSpec::Kind::kGrammar:
      return IsLark(spec.text) ? ReadLark(spec.text, annotations) : ReadEbnf(spec.text);
    case FormatSpec::Kind::kJsonSchema:
      return ReadJsonSchema(spec.text, annotations);
    case FormatSpec::Kind::kStructuralTag:
      return ReadStructuralTag(spec.text, annotations);
    case FormatSpec::Kind::kCatalogue:
      return absl::InvalidArgumentError("a catalogue has no grammar");
    case FormatSpec::Kind::kNone:
      break;
  }
  return absl::InvalidArgumentError("there is no format");
}

absl::StatusOr<Automaton> CompileFormat(const FormatSpec& spec, const std::bitset<256>& writable,
                                        std::vector<std::string>* annotations) {
  COPPICE_ASSIGN_OR_RETURN(const Grammar grammar, ReadFormat(spec, annotations));
  return Automaton::Make(grammar, writable);
}

}  // namespace coppice::grammar
