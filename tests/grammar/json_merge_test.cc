// Schemas of several parts, and what is said of keys and of different items.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grammar/json_schema.h"
#include "tests/grammar/schema_cases.h"

namespace coppice::grammar {
namespace {

TEST(JsonMergeTest, SchemasThatMustAllBeFulfilled) {
  ExpectCases({
      {R"({"allOf":[{"type":["integer","string"],"minimum":2},{"type":"number","maximum":5}]})",
       {"2", "5"},
       {"1", "6", "\"a\"", "2.5"}},
      {R"({"allOf":[{"properties":{"a":{"type":"integer"}},"required":["a"]},
          {"properties":{"b":{"type":"null"},"a":{"maximum":3}}}]})",
       {R"({"a":3})", R"({"a":1,"b":null})"},
       {R"({"b":null})", R"({"a":4})", "{}"}},
      {R"({"allOf":[{"properties":{"a":{"const":1}},"additionalProperties":false},
          {"properties":{"a":true,"b":true}}]})",
       {"{}", R"({"a":1})"},
       {R"({"b":1})", R"({"a":2})"}},
      {R"({"allOf":[{"properties":{"a":true,"b":true,"c":true}},
          {"properties":{"a":{"const":1}},"additionalProperties":{"const":2}}]})",
       {"{}", R"({"a":1,"b":2,"c":2})"},
       {R"({"b":1})", R"({"a":2})"}},
      {R"({"$ref":"#/$defs/a","description":"d","title":"t","default":1,"$defs":{"a":{"const":1}}})",
       {"1"},
       {"2"}},
      {R"({"$defs":{"a":{"type":"string"}},"$ref":"#/$defs/a","maxLength":1})",
       {R"("a")"},
       {R"("ab")", "1"}},
      {R"({"anyOf":[{"required":["a"]},{"required":["b"]}],"type":"object",
          "properties":{"a":{"const":1},"b":{"const":2}}})",
       {R"({"a":1})", R"({"b":2})", R"({"a":1,"b":2})"},
       {"{}"}},
      {R"({"anyOf":[{"type":"null"},{"type":"integer"}],"oneOf":[{"type":"integer"},{"const":"x"}]})",
       {"1"},
       {"null", "\"x\""}},
      {R"({"allOf":[{"pattern":"a"},{"pattern":"b$"}],"minLength":3})",
       {R"("acb")", R"("bab")"},
       {R"("ab")", R"("aba")", R"("xxb")"}},
      {R"({"allOf":[{"items":{"minimum":1}},{"items":{"maximum":2},"minItems":1}]})",
       {"[1]", "[2,1]"},
       {"[]", "[3]", "[0]"}},
      {R"({"allOf":[{"format":"date"},{"format":"unknown"}]})", {R"("2026-01-31")"}, {R"("x")"}},
      {R"({"propertyNames":{"anyOf":[{"const":"a"},{"maxLength":0}]}})",
       {R"({"a":1})", R"({"":1})"},
       {R"({"b":1})"}},
  });
}

TEST(JsonMergeTest, KeysOfSeveralPatterns) {
  ExpectCases({
      {R"({"patternProperties":{"^a":{"type":"integer"},"b$":{"minimum":3}}})",
       {"{}", R"({"a":1,"b":3,"ab":4})", R"({"b":3.5})"},
       {R"({"ab":1})", R"({"ab":3.5})", R"({"c":1})", R"({"a":1.5})"}},
      {R"({"patternProperties":{"^a":{"const":1}},"additionalProperties":{"const":2}})",
       {R"({"a":1,"b":2})"},
       {R"({"a":2})", R"({"b":1})"}},
      {R"({"properties":{"a":{"maximum":5},"b":true},"patternProperties":{"a":{"minimum":4}},
          "additionalProperties":false})",
       {R"({"a":4})", R"({"a":5,"b":null,"ca":9})", R"({"ba":4})"},
       {R"({"a":6})", R"({"a":3})", R"({"c":4})", R"({"ca":4,"b":1})", R"({"ca":9,"a":4})"}},
      {R"({"patternProperties":{"^a":{"const":1},"z":{"const":2}}})",
       {R"({"a":1,"z":2})"},
       {R"({"az":1})", R"({"az":2})"}},
      {R"({"patternProperties":{"^[a-z]+$":{"type":"integer"}},"propertyNames":{"maxLength":2}})",
       {R"({"ab":1})"},
       {R"({"abc":1})", R"({"A":1})"}},
      {R"({"required":["key"],"patternProperties":{"k":{"const":1}}})",
       {R"({"key":1})", R"({"key":1,"k":1})"},
       {"{}", R"({"key":2})"}},
      {R"s({"patternProperties":{"^(?!x)":{"const":1}},"additionalProperties":{"const":2}})s",
       {R"({"a":1,"xa":2})"},
       {R"({"xa":1})"}},
  });
}

TEST(JsonMergeTest, ItemsThatMustDiffer) {
  ExpectCases({
      {R"({"uniqueItems":true,"items":{"enum":["a","b",1,1.0]}})",
       {"[]", R"(["a"])", R"(["b", "a"])", R"([1,"a","b"])"},
       {R"(["a","a"])", "[1,1.0]", R"(["a","b",1,"a"])"}},
      {R"({"uniqueItems":true,"items":{"type":"boolean"},"minItems":1,"maxItems":5})",
       {"[true]", "[false,true]"},
       {"[]", "[true,true]", "[true,false,true]"}},
      {R"({"uniqueItems":true,"items":{"$ref":"#/$defs/c"},"maxItems":2,
          "$defs":{"c":{"type":"string","enum":["r","g","b"]}}})",
       {R"(["r","g"])"},
       {R"(["r","r"])", R"(["r","g","b"])"}},
      {R"({"uniqueItems":true,"items":{"const":{"a":1}}})",
       {R"([{"a":1}])"},
       {R"([{"a":1},{"a":1}])"}},
      {R"({"uniqueItems":true,"maxItems":1})", {"[1]"}, {"[1,1]"}},
  });
}

// Where they cannot be kept apart, that is told.
TEST(JsonMergeTest, ItemsThatMustDifferWithoutEndAreIgnoredByName) {
  std::string nine = R"({"uniqueItems":true,"items":{"enum":[0)";
  for (int i = 1; i < 9; ++i) absl::StrAppend(&nine, ",", i);
  const struct {
    std::string schema;
    std::vector<std::string> ignored;
  } kCases[] = {
      {R"({"items":{"type":"integer"},"uniqueItems":true})", {"#/uniqueItems"}},
      {R"({"uniqueItems":true})", {"#/uniqueItems"}},
      {nine + "]}}", {"#/uniqueItems"}},
      {R"({"uniqueItems":true,"maxItems":1})", {}},
      {R"({"uniqueItems":true,"items":{"type":"null"}})", {}},
      {R"({"contentMediaType":"application/json","contentSchema":{},"type":"string"})", {}},
      {R"({"contentMediaType":"text/html","type":"string"})", {"#/contentMediaType"}},
      {R"({"propertyNames":{"format":"regex"},"type":"object"})", {"#/propertyNames/format"}},
      {R"({"oneOf":[{"type":"null"}],"discriminator":{"propertyName":"k"}})", {"#/discriminator"}},
  };
  for (const auto& c : kCases) {
    std::vector<std::string> ignored;
    EXPECT_TRUE(ReadJsonSchema(c.schema, &ignored).ok()) << c.schema;
    EXPECT_EQ(ignored, c.ignored) << c.schema;
  }
}

TEST(JsonMergeTest, StringsWithJson) {
  ExpectCases({
      {R"({"type":"string","contentMediaType":"application/json"})",
       {R"("1")", R"("{\"a\": [\"b\\\"c\\\\\"]}")", R"("[\n \t1]")"},
       {"1", R"("a")", R"("{"a": 1}")", R"("")"}},
      {R"({"contentMediaType":"application/json","contentSchema":{"$ref":"#/$defs/t"},
          "$defs":{"t":{"type":"array","items":{"anyOf":[{"const":"x"},{"$ref":"#/$defs/t"}]}}}})",
       {R"("[]")", R"("[\"x\", [[]]]")"},
       {R"("[1]")", R"("[x]")"}},
      {R"({"contentMediaType":"application/json","contentSchema":{"type":"string",
          "contentMediaType":"application/json"}})",
       {R"("\"any\"")"},
       {R"("1")"}},
  });
}

TEST(JsonMergeTest, OlderDrafts) {
  ExpectCases({
      {R"({"items":[{"const":1},{"const":2}],"additionalItems":{"const":3}})",
       {"[]", "[1]", "[1,2,3,3]"},
       {"[2]", "[1,3]"}},
      {R"({"items":[{"const":1}],"additionalItems":false})", {"[1]"}, {"[1,1]"}},
      {R"({"items":[{"const":1}]})", {"[1]"}, {"[1,1]"}},
      {R"({"type":"integer","minimum":1,"exclusiveMinimum":true,"maximum":3,"exclusiveMaximum":false})",
       {"2", "3"},
       {"1", "4"}},
      {R"({"type":"integer","exclusiveMinimum":true})", {"-1", "0"}, {"a"}},
  });
}

TEST(JsonMergeTest, HostileSchemasEnd) {
  const std::string many =
      R"({"allOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}],"$defs":{)"
      R"("a":{"anyOf":[{"$ref":"#/$defs/b"},{"$ref":"#/$defs/a"},{"minLength":1}],"maxLength":5},)"
      R"("b":{"anyOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"},{"minLength":2}],"maxLength":6}}})";
  EXPECT_FALSE(ReadJsonSchema(many).ok());
  std::string product = R"({"type":"object","allOf":[)";
  for (int i = 0; i < 12; ++i) {
    absl::StrAppend(&product, i == 0 ? "" : ",", R"({"anyOf":[{"minProperties":)", i,
                    R"(},{"required":["a)", i, R"("]},{"required":["b)", i, R"("]}]})");
  }
  EXPECT_FALSE(ReadJsonSchema(product + "]}").ok());
  std::string patterns = R"({"patternProperties":{)";
  for (int i = 0; i < 40; ++i)
    absl::StrAppend(&patterns, i == 0 ? "" : ",", R"("a{)", i, R"(}b":true)");
  EXPECT_FALSE(ReadJsonSchema(patterns + "}}").ok());
}

}  // namespace
}  // namespace coppice::grammar
