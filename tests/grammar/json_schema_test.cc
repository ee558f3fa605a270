#include "grammar/json_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bitset>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grammar/compile.h"
#include "tests/grammar/schema_cases.h"
#include "tests/grammar/texts.h"

namespace coppice::grammar {
namespace {

TEST(JsonSchemaTest, Scalars) {
  ExpectCases({
      {R"({"type":"boolean"})", {"true", "false"}, {"null", "True", " true", "true ", ""}},
      {R"({"type":"null"})", {"null"}, {"nul", "0"}},
      {R"({"type":"number"})",
       {"0", "-0", "1", "-12.50", "0.1", "1e5", "2E-3", "1.5e+10", "1234567890123456"},
       {"01", ".5", "1.", "+1", "1e", "1e100", "12345678901234567", "NaN", "\"1\"", ""}},
      {R"({"type":"integer"})",
       {"0", "-1", "1234567890123456"},
       {"-0", "00", "1.0", "1e2", "12345678901234567", "-"}},
      {R"({"type":["integer","null","string"]})", {"1", "null", "\"x\""}, {"true", "1.5", "{}"}},
      {R"({"type":"string"})",
       {R"("")", R"("a b")", "\"\xc3\xa4\xf0\x9f\x98\x80\x7f\"", R"("\"\\\/\b\f\n\r\t")",
        R"("\u00e4\uD83D\uDE00\ud7ff\uE000")"},
       {"a", "\"", "\"a\nb\"", "\"\t\"", R"("\x")", R"("\u00e")", R"("\ud83d")", R"("\ude00")",
        R"("\ud83d\u0041")", "\"\xff\"", "\"a\"b\"", "'a'"}},
      {R"({"type":"string","minLength":2,"maxLength":3})",
       {R"("ab")", R"("abc")", "\"\xc3\xa4\xf0\x9f\x98\x80\"", R"("\n\ud83d\ude00a")"},
       {R"("")", R"("a")", R"("abcd")", "\"\xc3\xa4\""}},
      {R"({"minLength":1})", {R"("a")"}, {R"("")", "1"}},
      {R"({"maxLength":0})", {R"("")"}, {R"("a")"}},
      {R"({"enum":["a",1,1.5,null,true,{"k":[1,2]},"q\"\n","ä"]})",
       {R"("a")", "1", "1.5", "null", "true", R"({"k":[1,2]})", R"("q\"\n")", "\"ä\""},
       {"a", "2", "false", R"({"k": [1,2]})"}},
      {R"({"type":"string","enum":["a",1,"b"]})", {R"("a")", R"("b")"}, {"1"}},
      {R"({"type":["integer","null"],"enum":[1,1.5,2.0,null]})", {"1", "2.0", "null"}, {"1.5"}},
      {R"({"const":[]})", {"[]"}, {"", "[[]]"}},
      {R"({"type":"object","const":{"b":1,"a":2}})", {R"({"b":1,"a":2})"}, {R"({"a":2,"b":1})"}},
  });
}

TEST(JsonSchemaTest, Objects) {
  ExpectCases({
      {R"({"type":"object"})",
       {"{}", "{ }", R"({"a":1})", R"({"a": [1, {"b": null}], "c":"d"})",
        "{\n  \"a\": {\n\t\t\"b\": 1\n  }\n}"},
       {"", "[]", "{", R"({"a"})", R"({"a":1,})", R"({a:1})", R"({"a" :1})", R"({"a":1 ,"b":2})",
        "{  }", "{\n                     }", "{}\n"}},
      {R"({"properties":{"b":{"type":"integer"},"a":{"type":"null"}},"required":["a","b"]})",
       {R"({"b":1,"a":null})", "{\n  \"b\": 1,\n  \"a\": null\n}"},
       {R"({"a":null,"b":1})", R"({"b":1})", "{}", R"({"b":1,"a":null,"c":1})"}},
      {R"({"properties":{"a":{"const":1},"b":{"const":2},"c":{"const":3}},"required":["b"]})",
       {R"({"b":2})", R"({"a":1,"b":2})", R"({"b":2,"c":3})", R"({"a":1,"b":2,"c":3})"},
       {"{}", R"({"a":1})", R"({"c":3})", R"({"a":1,"c":3})", R"({,"b":2})", R"({"b":2,})"}},
      {R"({"properties":{"a":{"const":1},"b":{"const":2}}})",
       {"{}", R"({"a":1})", R"({"b":2})", R"({"a":1,"b":2})"},
       {R"({"b":2,"a":1})", R"({"a":1,"a":1})", "{,}"}},
      {R"({"type":"object","properties":{}})", {"{}"}, {R"({"a":1})"}},
      {R"({"type":"object","additionalProperties":false})", {"{}"}, {R"({"a":1})"}},
      {R"({"additionalProperties":{"type":"integer"}})",
       {"{}", R"({"a":1,"b":2})"},
       {R"({"a":"1"})"}},
      {R"({"properties":{"ab":{"const":1},"ac\"":{"const":2}},"additionalProperties":{"const":3}})",
       {"{}", R"({"ab":1})", R"({"ab":1,"x":3,"":3,"a":3,"abc":3})", R"({"ä":3})",
        R"({"ac\"":2,"ad":3})"},
       {R"({"ab":3})", R"({"x":3,"ab":1})", R"({"x":1})", R"({"\u0061b":3})", R"({"x":3,"ab":3})"}},
      {R"({"properties":{"a":{"const":1}},"required":["a"],"additionalProperties":{"const":3}})",
       {R"({"a":1})", R"({"a":1,"b":3})"},
       {"{}", R"({"b":3})"}},
      {R"({"required":["a"]})", {R"({"a":[]})", R"({"a":1,"b":{}})"}, {"{}", R"({"b":1})"}},
      {R"({"properties":{"a":true},"required":["z"]})",
       {R"({"z":1})", R"({"a":[],"z":{}})"},
       {"{}"}},
      {R"({"minProperties":1,"maxProperties":2})",
       {R"({"a":1})", R"({"a":1,"b":2})"},
       {"{}", R"({"a":1,"b":2,"c":3})"}},
      {R"({"maxProperties":0})", {"{}"}, {R"({"a":1})"}},
      {R"({"properties":{"q\"\\\n/~ä":{"const":1}}})", {R"({"q\"\\\n/~ä":1})"}, {}},
  });
}

TEST(JsonSchemaTest, KeysOfObjects) {
  ExpectCases({
      {R"({"patternProperties":{"^[a-c]+$":{"type":"integer"}},"additionalProperties":false})",
       {"{}", R"({"a":1})", R"({"ab": 1, "c":2})"},
       {R"({"d":1})", R"({"a":"x"})", R"({"":1})"}},
      {R"({"patternProperties":{"x":{"type":"null"}},"maxProperties":1})",
       {R"({"axb":null})"},
       {R"({"a":null})", R"({"x":null,"x":null})"}},
      {R"({"propertyNames":{"enum":["a","b"]},"additionalProperties":{"type":"integer"}})",
       {"{}", R"({"b":1,"a":2})"},
       {R"({"c":1})", R"({"a":null})"}},
      {R"({"propertyNames":{"minLength":2},"minProperties":1})",
       {R"({"ab":[1]})"},
       {"{}", R"({"a":1})"}},
      {R"({"propertyNames":{"$ref":"#/$defs/k"},"$defs":{"k":{"type":"string","format":"uuid"}}})",
       {R"({"123e4567-e89b-12d3-a456-426614174000":null})"},
       {R"({"1":null})"}},
      {R"({"propertyNames":{"maxLength":1},"additionalProperties":false})", {"{}"}, {R"({"a":1})"}},
  });
}

TEST(JsonSchemaTest, Arrays) {
  ExpectCases({
      {R"({"type":"array"})",
       {"[]", "[ ]", "[1]", "[1, \"a\", [], {}]", "[\n  1,\n  2\n]"},
       {"[1,]", "[,]", "{}", "[1 ,2]", "[1 2]", "["}},
      {R"({"items":{"type":"integer"}})", {"[]", "[1,2]"}, {"[true]"}},
      {R"({"items":{"const":1},"minItems":2,"maxItems":3})",
       {"[1,1]", "[1, 1, 1]"},
       {"[]", "[1]", "[1,1,1,1]"}},
      {R"({"minItems":1})", {"[1]", "[null,{}]"}, {"[]"}},
      {R"({"maxItems":1})", {"[1]", "[]"}, {"[1,1]"}},
      {R"({"maxItems":0})", {"[]", "[ ]"}, {"[1]"}},
      {R"({"items":false})", {"[]"}, {"[1]"}},
      {R"({"prefixItems":[{"const":1},{"const":2}]})",
       {"[]", "[1]", "[1, 2]", "[\n1,\n2\n]"},
       {"[2]", "[1,2,3]", "[1,]"}},
      {R"({"prefixItems":[{"const":1},{"const":2}],"minItems":2})", {"[1,2]"}, {"[]", "[1]"}},
      {R"({"prefixItems":[{"const":1}],"minItems":2})", {"[1,[]]"}, {"[1]", "[1,2,3]"}},
      {R"({"prefixItems":[{"const":1},{"const":2}],"maxItems":1})", {"[]", "[1]"}, {"[1,2]"}},
      {R"({"prefixItems":[{"const":1},{"const":2}],"items":{"const":3}})",
       {"[]", "[1]", "[1,2]", "[1,2,3,3]"},
       {"[1,3]", "[3]"}},
      {R"({"prefixItems":[{"const":1}],"items":{"const":3},"minItems":2,"maxItems":3})",
       {"[1,3]", "[1,3,3]"},
       {"[1]", "[1,3,3,3]"}},
      {R"({"prefixItems":[{"const":1}],"items":false})", {"[1]"}, {"[1,2]"}},
  });
}

TEST(JsonSchemaTest, SchemasTogether) {
  ExpectCases({
      {"true", {"1", "{}", "[null]", "\"a\""}, {"", "x", " 1"}},
      {"{}", {"1", R"({"a":{"b":[{}]}})"}, {"{]"}},
      {R"({"title":"t","description":"d","default":1,"examples":[],"$schema":"s","$id":"i",)"
       R"("$comment":"c","deprecated":true,"readOnly":true,"writeOnly":true,"strict":true,"x-y":1,)"
       R"("$defs":{"unused":{"multipleOf":-3}},"type":"null"})",
       {"null"},
       {"1"}},
      {R"({"anyOf":[{"type":"null"},{"type":"integer"}]})", {"null", "1"}, {"true"}},
      {R"({"oneOf":[{"type":"null"},{"type":"integer"}],"title":"t"})", {"null", "1"}, {"true"}},
      {R"({"allOf":[{"type":"null"}]})", {"null"}, {"1"}},
      {R"({"$defs":{"a/b~c d":{"type":"null"}},"$ref":"#/$defs/a~1b~0c%20d"})", {"null"}, {"1"}},
      {R"({"definitions":{"a":{"const":1}},"items":{"$ref":"#/definitions/a"}})", {"[1]"}, {"[2]"}},
      {R"({"properties":{"a":{"const":1},"b":{"$ref":"#/properties/a"}}})",
       {R"({"b":1})"},
       {R"({"b":2})"}},
      {R"({"prefixItems":[{"const":1},{"$ref":"#/prefixItems/0"}]})", {"[1,1]"}, {"[1,2]"}},
      {R"({"properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},)"
       R"("required":["v","next"]})",
       {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":{"v":3,"next":null}}})"},
       {R"({"v":1,"next":{"v":2}})"}},
      {R"({"$defs":{"t":{"type":"array","items":{"$ref":"#/$defs/t"}}},"$ref":"#/$defs/t"})",
       {"[]", "[[],[[]]]"},
       {"[1]"}},
      // "type" is what the keywords are for.
      {R"({"properties":{"a":true},"items":{"const":1}})", {"{}", "[1]"}, {"1", "[2]"}},
  });
}

// Keywords that the standard does not have describe, and limit nothing.
TEST(JsonSchemaTest, KeywordsThatAreNotKnownAreAnnotations) {
  std::vector<std::string> annotations;
  ASSERT_TRUE(
      ReadJsonSchema(
          R"({"type":"object","uniqueItems":false,"patternProperties":{},"propertyNames":{"type":"string"},
                      "then":{"const":1},"minContains":1,"additionalItems":{},
                      "nullable":false,"unit":"cm","properties":{"a/b":{"$ref":"#/$defs/n","hint":1}},
                      "$defs":{"n":{"type":"null","propertyOrdering":["a"]}}})",
          &annotations)
          .ok());
  EXPECT_EQ(annotations, (std::vector<std::string>{"#/unit", "#/properties/a~1b/hint",
                                                   "#/$defs/n/propertyOrdering"}));
}

TEST(JsonSchemaTest, WhatIsNotServedIsNamed) {
  const std::string deep = std::string(300, '[') + std::string(300, ']');
  std::string wide = "{\"properties\":{\"k\":true";
  for (int i = 0; i < 2000; ++i) wide += absl::StrCat(",\"k", i, "\":true");
  std::string patterns = R"({"anyOf":[{"pattern":"a"})";
  for (int i = 0; i < 1000; ++i) patterns += R"(,{"format":"date"})";
  const struct {
    std::string schema;
    const char* error;
  } kCases[] = {
      {"", "JSON schema, byte 1: no JSON"},
      {"{\"type\":", "no JSON"},
      {"{} x", "no JSON"},
      {"\"\xff\"", "no JSON"},
      {"1e999", "no JSON"},
      {deep, "it is nested more than 200 deep"},
      {wide + "}}", "an object has more than 2000 members"},
      {patterns + "]}", "#/anyOf/1000/format: there are too many patterns and formats"},
      {R"({"type":"null","type":"string"})", R"(an object has the key "type" twice)"},
      {"1", "#: a schema must be an object, true or false"},
      {"false", "#: false allows no value"},
      {R"({"items":{"not":{}}})", R"(#/items/not: the keyword "not" is not served)"},
      {R"({"patternProperties":{"(":{}}})", "#/patternProperties: regular expression"},
      {R"({"patternProperties":[]})", "#/patternProperties: it must be an object of schemas"},
      {R"({"if":{"const":1},"then":false})", "#/if: the keyword"},
      {R"({"divisibleBy":5})", "#/divisibleBy: the keyword"},
      {R"({"propertyNames":false})", "#/propertyNames: no schema of strings"},
      {R"({"propertyNames":{"type":"integer"}})", "#/propertyNames: keys are strings"},
      {R"({"propertyNames":{"$ref":"#/$defs/k"}})", "#/propertyNames/$ref: there is nothing at"},
      {R"({"nullable":true,"type":"string"})", "#/nullable: the keyword"},
      {R"({"type":"strin"})", R"(#/type: "strin" is no type)"},
      {R"({"type":[]})", "#/type: it must be a type or a list of types"},
      {R"({"type":[1]})", "#/type: 1 is no type"},
      {R"({"type":"null","minLength":1})", R"(#/minLength: "minLength" needs the type "string")"},
      {R"({"type":"string","minimum":1})", R"(#/minimum: "minimum" needs the type "number")"},
      {R"({"multipleOf":0})", "#/multipleOf: it must be above 0"},
      {R"({"multipleOf":-2})", "#/multipleOf: it must be above 0"},
      {R"({"multipleOf":"2"})", "#/multipleOf: it must be a number"},
      {R"({"multipleOf":1001})", "#/multipleOf: steps of more than 1000 times a power of ten"},
      {R"({"multipleOf":301})", "or with a factor other than 2 and 5 above 300"},
      {R"({"multipleOf":1e-10})", "or more than 9 decimals are not served"},
      {R"({"type":"number","minimum":1e15})", "#: no number of 15 digits is within the limits"},
      {R"({"type":"number","exclusiveMinimum":1,"maximum":1})", "#: no number of 15 digits"},
      {R"({"type":"number","minimum":1,"maximum":9,"multipleOf":10})", "#: no number of 15"},
      {R"({"type":"number","exclusiveMinimum":0.3,"maximum":0.30000000000000004})", "#: no number"},
      {R"({"type":"integer","minimum":"1"})", "#/minimum: it must be a number"},
      {R"({"type":"integer","minimum":1e30})", "#: no integer of 19 digits is within the limits"},
      {R"({"type":"integer","minimum":2,"maximum":1})", "#: no integer of 16 digits is within"},
      {R"({"type":"integer","minimum":1.2,"maximum":1.8})", "#: no integer of 16 digits"},
      {R"({"minLength":-1})", "#/minLength: it must be a number from 0 on without fraction"},
      {R"({"minLength":"1"})", "#/minLength: it must be a number from 0 on"},
      {R"({"maxItems":1.5})", "#/maxItems: it must be a number from 0 on"},
      {R"({"maxItems":1e6})", "#/maxItems: more than 100000 is not served"},
      {R"({"minItems":3,"maxItems":2})", R"(#/maxItems: it is below "minItems")"},
      {R"({"pattern":1})", "#/pattern: it must be a string"},
      {R"s({"pattern":"a(?<=b)"})s",
       "#/pattern: regular expression, byte 1: (?<= (look-behind) is not served"},
      {R"({"pattern":"^a{3}$","maxLength":2})", "#/pattern: no text of it has the required length"},
      {R"({"pattern":"^a*b{300}[^c]*$","maxLength":400})",
       "#/pattern: with the limits of the length the schema is too large"},
      {R"({"format":"date","maxLength":3})", "#/format: no text of it has the required length"},
      {R"({"properties":[]})", "#/properties: it must be an object of schemas"},
      {R"({"properties":{"a":1}})", "#/properties/a: a schema must be an object"},
      {R"({"properties":{"a":false}})", "#/properties/a: false allows no value"},
      {R"({"required":"a"})", "#/required: it must be a list of keys"},
      {R"({"required":[1]})", "#/required: it must be a list of keys"},
      {R"({"required":["a"],"additionalProperties":false})",
       R"(#/required: the key "a" is required, but not allowed)"},
      {R"({"additionalProperties":1})", "#/additionalProperties: a schema must be"},
      {R"({"properties":{"a":true},"minProperties":1})",
       R"(#: "minProperties" and "maxProperties")"},
      {R"({"items":false,"minItems":1})", "#/items: fewer items than \"minItems\" are allowed"},
      {R"({"prefixItems":[]})", "#/prefixItems: it must be a list of schemas"},
      {R"({"prefixItems":[1]})", "#/prefixItems/0: a schema must be"},
      {R"({"enum":[]})", "#/enum: no value of it has the type"},
      {R"({"enum":1})", "#/enum: it must be a list of values"},
      {R"({"type":"null","enum":[1]})", "#/enum: no value of it has the type"},
      {R"({"enum":["a"],"minLength":1})",
       R"(#/minLength: "minLength" is not served beside "enum")"},
      {R"({"enum":["a"],"const":"a"})", R"(#/const: "const" is not served beside "enum")"},
      {R"({"anyOf":[]})", "#/anyOf: it must be a list of schemas"},
      {R"({"oneOf":{}})", "#/oneOf: it must be a list of schemas"},
      {R"({"$ref":1})", "#/$ref: it must be a string"},
      {R"({"$ref":"#/a"})", R"(#/$ref: there is nothing at "#/a")"},
      {R"({"$ref":"#/"})", R"(#/$ref: there is nothing at "#/")"},
      {R"({"$ref":"http://x/y"})", R"(#/$ref: "http://x/y" is not served: a reference must begin)"},
      {R"({"$ref":"#/$ref"})", "#/$ref: a schema must be an object"},
      {R"({"$ref":"#","properties":{}})",
       "#: the reference leads back to itself, or schemas are nested too deep"},
      {R"({"uniqueItems":1})", "#/uniqueItems: it must be true or false"},
      {R"({"uniqueItems":true,"minItems":3,"items":{"type":"boolean"}})",
       "#/uniqueItems: there are only 2 different items"},
      {R"({"items":[true],"prefixItems":[true]})", "#/items: a list is not served here"},
      {R"({"items":[1]})", "#/items/0: a schema must be"},
      {R"({"pattern":"a)(b","format":"date"})",
       "#/pattern: regular expression, byte 1: a ) without"},
      {R"({"properties":{"a/b":{"contains":true}}})",
       R"(#/properties/a~1b/contains: the keyword "contains" is not served)"},
      {R"({"propertyNames":{"enum":["a"]},"patternProperties":{"a":{}}})",
       "#/propertyNames: it is served for objects without keys of their own only"},
      {R"({"allOf":[{"type":"null"},{"type":"string"}]})", "#/allOf/1: no value fulfils all"},
      {R"({"allOf":[{"enum":[1]},{"const":2}]})", "no value fulfils all that is demanded"},
      {R"({"allOf":[{},false]})", "#/allOf/1: no value fulfils all"},
      {R"({"allOf":[{"multipleOf":2},{"multipleOf":3}]})",
       R"(#/allOf/1/multipleOf: "multipleOf" of several schemas cannot be merged)"},
      {R"({"allOf":[{"format":"date"},{"format":"uuid"}]})", "#/allOf/1/format: \"format\" of"},
      {R"({"allOf":[{"patternProperties":{"a":{}}},{"properties":{}}]})",
       "/patternProperties: \"patternProperties\" of several schemas"},
      {R"({"allOf":[{"minimum":1,"exclusiveMinimum":true},{"minimum":2}]})",
       "/exclusiveMinimum: \"exclusiveMinimum\" of several"},
      {R"({"allOf":[{"enum":["a"]},{"minLength":1}]})",
       "\"minLength\" is not served beside \"enum\""},
      {R"({"allOf":[{"not":{}},{"type":"null"}]})", "#/not: the keyword"},
      {R"({"anyOf":[{"type":"null"}],"type":"string"})", "#: no value fulfils all"},
      {R"({"required":["a"],"properties":{"a":{"type":"null"}},"patternProperties":{"a":{"const":1}}})",
       R"(#/required: the key "a" is required, but not allowed)"},
  };
  for (const auto& c : kCases) {
    const auto grammar = ReadJsonSchema(c.schema);
    EXPECT_EQ(grammar.status().code(), absl::StatusCode::kInvalidArgument) << c.schema;
    EXPECT_THAT(std::string(grammar.status().message()), testing::HasSubstr(c.error));
  }
}

// Whatever the vocabulary can write.
TEST(JsonSchemaTest, AReferenceThatLeadsBackToItselfIsRefusedAtItsPlace) {
  for (const auto& [schema, pointer] : std::vector<std::pair<const char*, const char*>>{
           {R"({"$ref":"#"})", "#/$ref"},
           {R"({"anyOf":[{"type":"null"},{"$ref":"#"}]})", "#/anyOf/1/$ref"},
           {R"({"allOf":[{"oneOf":[{"$ref":"#"}]}]})", "#/allOf/0/oneOf/0/$ref"},
           {R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}})",
            "#/$defs/a/$ref"},
           {R"({"items":{"$ref":"#/$defs/a"},"$defs":{"a":{"anyOf":[{"$ref":"#/$defs/a"}]}}})",
            "#/$defs/a/anyOf/0/$ref"}}) {
    const auto grammar = ReadJsonSchema(schema);
    EXPECT_EQ(grammar.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(
        grammar.status().message(),
        absl::StrCat("JSON schema, ", pointer,
                     ": the reference leads back to itself and describes no value on the way"));
  }
  // Not reached, or with a value on the way.
  for (const char* schema : {R"({"type":"null","$defs":{"a":{"$ref":"#/$defs/a"}}})",
                             R"({"anyOf":[{"items":{"$ref":"#"}},{"$ref":"#/anyOf/0"}]})"}) {
    EXPECT_TRUE(MakeAutomaton(ReadJsonSchema(schema)).ok()) << schema;
  }
}

TEST(JsonSchemaTest, ASchemaWithoutAnyTextIsBlamedAndNotTheVocabulary) {
  const std::string endless = R"({"properties":{"a":{"$ref":"#"}},"required":["a"]})";
  std::bitset<256> some = Automaton::AllBytes();
  some.reset(200);
  for (const auto& writable : {Automaton::AllBytes(), some}) {
    EXPECT_EQ(CompileFormat({FormatSpec::Kind::kJsonSchema, endless}, writable).status().message(),
              "no text has the format");
  }
  some.reset();
  EXPECT_EQ(
      CompileFormat({FormatSpec::Kind::kJsonSchema, R"({"type":"null"})"}, some).status().message(),
      "the vocabulary can write no text that has the format");
}

}  // namespace
}  // namespace coppice::grammar
