#include "grammar/json_keywords.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"

namespace coppice::grammar {
namespace {

struct Keyword {
  absl::string_view name;
  absl::string_view type;  // type that the keyword is for
};
constexpr Keyword kKeywordsOfTypes[] = {{"properties", "object"},
                                        {"required", "object"},
                                        {"additionalProperties", "object"},
                                        {"minProperties", "object"},
                                        {"maxProperties", "object"},
                                        {"items", "array"},
                                        {"prefixItems", "array"},
                                        {"minItems", "array"},
                                        {"maxItems", "array"},
                                        {"minLength", "string"},
                                        {"maxLength", "string"},
                                        {"pattern", "string"},
                                        {"format", "string"},
                                        {"minimum", "integer"},
                                        {"maximum", "integer"},
                                        {"exclusiveMinimum", "integer"},
                                        {"exclusiveMaximum", "integer"}};
// They limit the values, and are not served unless they have this value, which limits nothing.
struct Unserved {
  absl::string_view name;
  const char* neutral;  // JSON; nullptr: there is none
};
constexpr Unserved kUnserved[] = {
    {"not", nullptr},
    {"if", nullptr},
    {"then", nullptr},
    {"else", nullptr},
    {"multipleOf", nullptr},
    {"uniqueItems", "false"},
    {"contains", nullptr},
    {"minContains", nullptr},
    {"maxContains", nullptr},
    {"additionalItems", "true"},
    {"unevaluatedItems", "true"},
    {"unevaluatedProperties", "true"},
    {"patternProperties", "{}"},
    {"propertyNames", "true"},
    {"dependencies", "{}"},
    {"dependentRequired", "{}"},
    {"dependentSchemas", "{}"},
    {"$dynamicRef", nullptr},
    {"$recursiveRef", nullptr},
    {"nullable", "false"},
};

}  // namespace

bool IsWhole(absl::string_view keyword) {
  return std::find(std::begin(kWholeKeywords), std::end(kWholeKeywords), keyword) !=
         std::end(kWholeKeywords);
}

bool OnlyDescribes(absl::string_view keyword) {
  for (const absl::string_view known :
       {"title", "description", "default", "examples", "$schema", "$id", "$comment", "deprecated",
        "readOnly", "writeOnly", "strict", "$defs", "definitions"}) {
    if (keyword == known) return true;
  }
  return absl::StartsWith(keyword, "x-");
}

bool IsUnserved(absl::string_view keyword, const OrderedJson& value) {
  for (const Unserved& unserved : kUnserved) {
    if (keyword != unserved.name) continue;
    return unserved.neutral == nullptr || value != OrderedJson::parse(unserved.neutral);
  }
  return false;
}

absl::string_view TypeOfKeyword(absl::string_view keyword) {
  for (const Keyword& known : kKeywordsOfTypes) {
    if (keyword == known.name) return known.type;
  }
  return "";
}

}  // namespace coppice::grammar
