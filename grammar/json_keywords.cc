#include "grammar/json_keywords.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/match.h"

namespace coppice::grammar {
namespace {

struct Keyword {
  absl::string_view name;
  absl::string_view type;  // type that the keyword is for
};
constexpr Keyword kKeywordsOfTypes[] = {
    {"properties", "object"},       {"required", "object"},      {"additionalProperties", "object"},
    {"minProperties", "object"},    {"maxProperties", "object"}, {"patternProperties", "object"},
    {"propertyNames", "object"},    {"items", "array"},          {"prefixItems", "array"},
    {"minItems", "array"},          {"maxItems", "array"},       {"minLength", "string"},
    {"maxLength", "string"},        {"pattern", "string"},       {"format", "string"},
    {"minimum", "number"},          {"maximum", "number"},       {"exclusiveMinimum", "number"},
    {"exclusiveMaximum", "number"}, {"multipleOf", "number"},    {"uniqueItems", "array"}};
// They limit the values, and are not served unless they have one of these values, which limit
// nothing.
struct Unserved {
  absl::string_view name;
  const char* neutral = "[]";      // a list in JSON
  absl::string_view partner = "";  // the keyword without which this one has no effect
};
constexpr Unserved kUnserved[] = {
    {"not"},
    {"if", "[true, {}]"},
    {"then", "[true, {}]", "if"},
    {"else", "[true, {}]", "if"},
    {"divisibleBy"},
    {"disallow", "[[]]"},
    {"extends", "[{}]"},
    {"contains"},
    {"minContains", "[]", "contains"},
    {"maxContains", "[]", "contains"},
    {"additionalItems", "[true, {}]"},  // read beside a list in "items", else without effect
    {"unevaluatedItems", "[true, {}]"},
    {"unevaluatedProperties", "[true, {}]"},
    {"dependencies", "[{}]"},
    {"dependentRequired", "[{}]"},
    {"dependentSchemas", "[{}]"},
    {"$dynamicRef"},
    {"$recursiveRef"},
    {"nullable", "[false]"},
};

}  // namespace

bool IsWhole(absl::string_view keyword) {
  return std::find(std::begin(kWholeKeywords), std::end(kWholeKeywords), keyword) !=
         std::end(kWholeKeywords);
}

bool HasType(const OrderedJson& value, absl::string_view type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "number") return value.is_number();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (!value.is_number_float()) return value.is_number();
  const auto number = value.get<double>();
  return std::floor(number) == number;
}

bool OnlyDescribes(absl::string_view keyword) {
  for (const absl::string_view known :
       {"title", "description", "default", "examples", "$schema", "$id", "$comment", "deprecated",
        "readOnly", "writeOnly", "strict", "$defs", "definitions"}) {
    if (keyword == known) return true;
  }
  return absl::StartsWith(keyword, "x-");
}

absl::string_view TypeOfKeyword(absl::string_view keyword) {
  for (const Keyword& known : kKeywordsOfTypes) {
    if (keyword == known.name) return known.type;
  }
  return "";
}

bool MayBeUnserved(absl::string_view keyword) {
  return std::any_of(std::begin(kUnserved), std::end(kUnserved),
                     [&](const Unserved& unserved) { return unserved.name == keyword; });
}

bool IsUnserved(absl::string_view keyword, const OrderedJson& schema) {
  for (const Unserved& unserved : kUnserved) {
    if (keyword != unserved.name) continue;
    if (!unserved.partner.empty() && !schema.contains(unserved.partner)) return false;
    if (keyword == "additionalItems") return false;
    if (keyword == "if" && !schema.contains("then") && !schema.contains("else")) return false;
    const OrderedJson neutral = OrderedJson::parse(unserved.neutral);
    return std::find(neutral.begin(), neutral.end(), schema[std::string(keyword)]) == neutral.end();
  }
  return false;
}

}  // namespace coppice::grammar
