// Random texts of schemas: each is JSON and fulfils its schema.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "grammar/json_schema.h"
#include "tests/grammar/json_validator.h"
#include "tests/grammar/texts.h"

namespace coppice::grammar {
namespace {

constexpr const char* kSchemas[] = {
    "{}",
    R"({"type":"object"})",
    R"({"type":"array","items":{"type":"number"},"minItems":2,"maxItems":5})",
    R"({"type":["string","null","boolean"],"maxLength":4})",
    R"({"type":"string","minLength":3})",
    R"s({"type":"string","pattern":"^[^b-y]{1,3}(x|\\d+)"})s",
    R"({"type":"string","pattern":"[^a-y][!-~]"})",
    R"({"type":"string","format":"date-time"})",
    R"({"type":"string","format":"email"})",
    R"({"type":"integer","minimum":-17,"exclusiveMaximum":1234})",
    R"({"type":"integer","exclusiveMinimum":98.5})",
    R"({"type":"number","minimum":-2.5,"exclusiveMaximum":1000.125})",
    R"({"exclusiveMinimum":0.1,"exclusiveMaximum":0.3})",
    R"({"type":"number","multipleOf":0.05,"maximum":7})",
    R"({"type":"integer","multipleOf":12,"minimum":-500})",
    R"s({"pattern":"[b-d]\\d","minLength":3,"maxLength":6})s",
    R"({"format":"uri","maxLength":40})",
    R"s({"patternProperties":{"^[a-c]{2}":{"type":"boolean"}},"minProperties":1})s",
    R"({"propertyNames":{"maxLength":3,"pattern":"^[^a]"},"additionalProperties":{"type":"null"}})",
    R"({"enum":[1,"two",[3],{"four":null}]})",
    R"({"additionalProperties":{"type":"integer"},"minProperties":1})",
    R"({"properties":{"name":{"type":"string"},"n":{"type":"integer","minimum":0},"t":{"const":1}},
        "required":["n"],"additionalProperties":{"type":"boolean"}})",
    R"({"properties":{"a":{"type":"null"}},"required":["z"]})",
    R"({"prefixItems":[{"type":"integer"},{"type":"string","maxLength":1}],"minItems":1,
        "items":{"type":"boolean"}})",
    R"({"type":"object","required":["city","days"],"additionalProperties":false,"properties":{
        "city":{"type":"string","enum":["Bern","Ulm"]},"note":{"type":["string","null"]},
        "days":{"type":"array","maxItems":3,"items":{"$ref":"#/$defs/day"}}},
        "$defs":{"day":{"type":"object","required":["low"],"properties":{
          "high":{"type":"number"},"low":{"type":"number"},"kind":{"oneOf":[{"const":"sun"},
          {"const":"rain"}]}}}}})",
    R"({"anyOf":[{"$ref":"#/$defs/leaf"},{"$ref":"#/$defs/pair"}],"$defs":{
        "leaf":{"type":"integer"},"pair":{"type":"array","items":{"$ref":"#"},"minItems":2,
        "maxItems":2}}})",
    R"({"type":"array","items":{"enum":["a",1,1.0,null,{"k":[2]}]},"uniqueItems":true,"minItems":2})",
    R"({"items":{"$ref":"#/$defs/b"},"uniqueItems":true,"$defs":{"b":{"type":"boolean"}}})",
    R"({"items":[{"type":"integer"},{"type":"null"}],"additionalItems":{"const":"x"},"minItems":1})",
    R"({"type":"number","minimum":0,"exclusiveMinimum":true,"maximum":9,"exclusiveMaximum":true})",
    R"s({"patternProperties":{"^a":{"type":"integer"},"b$":{"minimum":3},"^c":{"type":"null"}},
        "additionalProperties":{"type":"boolean"}})s",
    R"s({"properties":{"ab":{"maximum":9},"x":{"type":"null"},"n":true},"required":["ay","x"],
        "patternProperties":{"^a[a-c]*$":{"type":"integer"},"y$":{"const":5}},
        "additionalProperties":{"type":"string","maxLength":2}})s",
    R"s({"propertyNames":{"pattern":"^[a-c]","maxLength":3},"properties":{"a":{"const":1},
        "zzz":{"const":2}},"additionalProperties":{"type":"null"}})s",
    R"({"allOf":[{"properties":{"a":{"type":"integer"},"c":{"minimum":2}},"required":["a"]},
        {"properties":{"b":{"type":"null"},"a":{"maximum":7}},"required":["b"]},
        {"additionalProperties":{"type":["integer","null"]}}]})",
    R"({"$ref":"#/$defs/node","required":["w"],"$defs":{"node":{"type":"object","properties":{
        "v":{"type":"integer"},"w":{"type":"null"},"next":{"$ref":"#/$defs/node","required":["v"]}}}}})",
    R"({"type":["string","integer","null"],"anyOf":[{"minLength":2,"type":["string","boolean"]},
        {"type":"null"},{"type":"integer","minimum":3},{"type":"array"}]})",
    R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2},"c":{"const":3}},
        "anyOf":[{"required":["a"]},{"required":["b","c"]}],"allOf":[{"required":["c"]}]})",
    R"s({"allOf":[{"pattern":"[a-c]"},{"pattern":"^.{3}$"},{"pattern":"\\d"},{"maxLength":9}]})s",
    R"s({"format":"date","pattern":"-0[12]-"})s",
    R"s({"type":"string","pattern":"^(?=.*[a-z])(?=.*\\d)[^A-Z]{3,5}$"})s",
    R"s({"type":"string","pattern":"^(?!.*ab)[a-c]+$","minLength":4,"maxLength":7})s",
    R"({"allOf":[{"enum":[1,2,3,"x"]},{"type":["integer","string"],"enum":[3,"x",null]}]})",
};

TEST(JsonWalkTest, RandomTextsFulfilTheirSchema) {
  for (const char* schema : kSchemas) {
    SCOPED_TRACE(schema);
    auto automaton = MakeAutomaton(ReadJsonSchema(schema));
    ASSERT_TRUE(automaton.ok()) << automaton.status();
    const nlohmann::json document = nlohmann::json::parse(schema);
    const JsonValidator validator(document);
    std::mt19937 random(11);
    for (int i = 0; i < 100; ++i) {
      const std::string text = RandomText(&*automaton, &random, /*eager=*/random() % 60);
      const auto value = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
      ASSERT_FALSE(value.is_discarded()) << text;
      ASSERT_TRUE(validator.Fulfils(value)) << text;
    }
    EXPECT_EQ(automaton->refusals(), 0);
  }
}

TEST(JsonWalkTest, LargeSchemasStayWithinTheAutomaton) {
  std::string schema = R"({"type":"object","properties":{)";
  for (int i = 0; i < 150; ++i)
    absl::StrAppend(&schema, i == 0 ? "" : ",", "\"property_", i, R"(":{"type":"number"})");
  auto automaton = MakeAutomaton(ReadJsonSchema(schema + "}}"));
  ASSERT_TRUE(automaton.ok()) << automaton.status();
  std::mt19937 random(5);
  for (int i = 0; i < 20; ++i) RandomText(&*automaton, &random, 1000);
  EXPECT_EQ(automaton->refusals(), 0);
  for (const char* large : {R"({"maxLength":65536})", R"({"maxItems":10000,"items":{}})"})
    EXPECT_TRUE(MakeAutomaton(ReadJsonSchema(large)).ok()) << large;
}

TEST(JsonWalkTest, BrokenSchemasDoNotCrash) {
  ExpectNoCrash({std::begin(kSchemas), std::end(kSchemas)},
                [](absl::string_view text) { return ReadJsonSchema(text); });
}

}  // namespace
}  // namespace coppice::grammar
