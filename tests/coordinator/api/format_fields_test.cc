// The fields that bind the output to a format (docs/api.md 2.6): what each one asks for, and what
// is refused. Whether a format can be read, tests/grammar checks.
#include "coordinator/api/format_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/api/ordered_text.h"
#include "grammar/compile.h"
#include "proto/convert.h"
#include "tests/coordinator/api/api_parse.h"
#include "tokenizer/chat_template/chat_template.h"
#include "tokenizer/vocabulary.h"

namespace coppice::coordinator {
namespace {

using api_text::Bad;
using api_text::ExpectRefused;
using api_text::Good;
using api_text::Parse;
using nlohmann::json;
using ::testing::HasSubstr;
using Kind = FormatSpec::Kind;

struct Read {
  FormatSpec spec;
  std::string field;
  std::vector<std::string> ignored, unknown;
  ApiError error{200, "accepted", "", ""};
};

// Of a request that may have other fields.
Read ReadAll(const std::string& fields, bool ignore_unknown = false) {
  const std::string body = absl::StrCat("{", fields, "}");
  const json object = json::parse(body);
  const ApiLimits limits;
  IgnoredFields ignored(/*refuse=*/!ignore_unknown);
  JsonFields reader(object, "", &ignored);
  GenerateRequest request;
  ReadFormatFields(body, limits, &reader, &request);
  Read read{request.params.format_spec, request.format_field, ignored.names(), reader.Unknown()};
  if (reader.error()) read.error = *reader.error();
  return read;
}

Read ReadFields(const std::string& fields, bool ignore_unknown = false) {
  Read read = ReadAll(fields, ignore_unknown);
  EXPECT_TRUE(read.unknown.empty()) << fields;
  return read;
}

TEST(FormatFields, EachAsksForItsFormat) {
  const struct {
    const char* fields;
    Kind kind;
    const char* text;
    const char* field;
  } cases[] = {
      {R"("structured_outputs": {"regex": "a|b"})", Kind::kRegex, "a|b",
       "structured_outputs.regex"},
      {R"("structured_outputs": {"grammar": "root ::= \"a\""})", Kind::kGrammar, R"(root ::= "a")",
       "structured_outputs.grammar"},
      {R"("structured_outputs": {"choice": ["a", "b c"]})", Kind::kGrammar,
       R"(root ::= "a" | "b c")", "structured_outputs.choice"},
      {R"("structured_outputs": {"json": {"b": 1, "a": 2}})", Kind::kJsonSchema, R"({"b":1,"a":2})",
       "structured_outputs.json"},
      {R"("structured_outputs": {"json": "{ \"b\": 1, \"a\": 2}"})", Kind::kJsonSchema,
       R"({ "b": 1, "a": 2})", "structured_outputs.json"},
      {R"("structured_outputs": {"json_object": true, "json": null})", Kind::kJsonSchema,
       R"({"type":"object"})", "structured_outputs.json_object"},
      {R"("structured_outputs": {"regex": "a", "json_object": false, "disable_fallback": false,
           "disable_any_whitespace": false, "whitespace_pattern": null, "structural_tag": null})",
       Kind::kRegex, "a", "structured_outputs.regex"},
      {R"("response_format": {"type": "json_object"})", Kind::kJsonSchema, R"({"type":"object"})",
       "response_format.type"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": false,
           "description": "d", "schema": {"type": "object"}}})",
       Kind::kJsonSchema, R"({"type":"object"})", "response_format.json_schema.schema"},
      {R"("guided_regex": "a")", Kind::kRegex, "a", "guided_regex"},
      {R"("guided_grammar": "g")", Kind::kGrammar, "g", "guided_grammar"},
      {R"("guided_choice": ["a"])", Kind::kGrammar, R"(root ::= "a")", "guided_choice"},
      {R"("guided_json": {})", Kind::kJsonSchema, "{}", "guided_json"},
      {R"("regex": "a", "guided_whitespace_pattern": null, "guided_decoding_backend": null)",
       Kind::kRegex, "a", "regex"},
      {R"("ebnf": "g")", Kind::kGrammar, "g", "ebnf"},
      {R"("json_schema": "{\"z\": 0}")", Kind::kJsonSchema, R"({"z": 0})", "json_schema"},
      {R"("json_schema": {"z": 0})", Kind::kJsonSchema, R"({"z":0})", "json_schema"},
      {R"("response_format": {"type": "text", "json_schema": null}, "regex": "a")", Kind::kRegex,
       "a", "regex"},
  };
  for (const auto& asks : cases) {
    const Read read = ReadFields(asks.fields);
    EXPECT_EQ(read.error.code, "accepted") << asks.fields << ": " << read.error.message;
    EXPECT_EQ(read.spec.kind, asks.kind) << asks.fields;
    EXPECT_EQ(read.spec.text, asks.text) << asks.fields;
    EXPECT_EQ(read.field, asks.field) << asks.fields;
  }
}

TEST(FormatFields, TextAndNullAskForNone) {
  for (const char* fields :
       {"", R"("response_format": {"type": "text"})", R"("response_format": null)",
        R"("structured_outputs": null)", R"("guided_json": null, "regex": null)"}) {
    const Read read = ReadFields(fields);
    EXPECT_EQ(read.error.code, "accepted") << read.error.message;
    EXPECT_EQ(read.spec, FormatSpec()) << fields;
    EXPECT_EQ(read.field, "") << fields;
    EXPECT_EQ(Good(fields).params.format_spec, FormatSpec()) << fields;
  }
}

// The bytes of a choice are those of the literal: only quotes, backslashes and controls are
// escaped.
TEST(FormatFields, ChoicesBecomeLiterals) {
  EXPECT_EQ(
      ReadFields(R"("guided_choice": ["a\"b", "\\n", "\n\t\u0000\u007f", "\u20ac'[x]"])").spec.text,
      R"(root ::= "a\"b" | "\\n" | "\x0a\x09\x00\x7f" | ")"
      "\xe2\x82\xac'[x]\"");
}

TEST(FormatFields, AChoiceHasItsTextsAndNoOther) {
  const std::vector<std::string> texts = {"a\"b", "\\n", std::string("\n\t\r\x01\x7f\0", 6),
                                          "\xe2\x82\xac'[x]", "::= | #"};
  const FormatSpec spec = ReadFields(absl::StrCat(R"("guided_choice": )", json(texts).dump())).spec;
  auto format = grammar::CompileFormat(spec);
  ASSERT_TRUE(format.ok()) << format.status();
  for (const std::string& text : texts) {
    for (size_t length = 0; length <= text.size(); ++length) {
      auto state = format->start();
      for (const char byte : text.substr(0, length))
        state = format->Next(state, static_cast<uint8_t>(byte));
      ASSERT_GE(state, 0) << text;
      EXPECT_EQ(format->Complete(state), length == text.size()) << text;
    }
  }
}

TEST(FormatFields, SchemasKeepTheOrderOfTheirKeys) {
  const std::string schema =
      R"({"type":"object","properties":{"zeta":{"type":"integer"},"alpha":{"enum":["b","a",null,)"
      R"(true,-1,18446744073709551615,0.50,1e2]},"mid":{"properties":{"y":{},"x":[[],{}]}}},)"
      R"("required":["zeta","alpha"],"a\"\n":"\\"})";
  const std::string named =
      absl::StrCat(R"({"strict": true, "schema": )", schema, R"(, "name": "n"})");
  for (const std::string& fields :
       {absl::StrCat(R"("structured_outputs": {"json": )", schema, "}"),
        absl::StrCat(R"("response_format": {"json_schema": )", named,
                     R"(, "type": "json_schema"})"),
        absl::StrCat(R"("guided_json": )", schema), absl::StrCat(R"("json_schema": )", schema)}) {
    const Read read = ReadFields(fields);
    EXPECT_EQ(read.error.code, "accepted") << read.error.message;
    EXPECT_EQ(read.spec.text, schema) << fields;
  }
}

TEST(OrderedText, FollowsTheKeysToTheLastOfEqualOnes) {
  EXPECT_EQ(
      OrderedText(R"({"x": {"b": 1}, "a": {"x": 3, "b": {"z": 1 , "y": [ 2 ]}}})", {"a", "b"}),
      R"({"z":1,"y":[2]})");
  EXPECT_EQ(OrderedText(R"({"b": 1, "a": [{"b": 2}], "c": {"a": {"b": 3}}})", {"a", "b"}), "");
  EXPECT_EQ(OrderedText(R"({"a": {"b": [1]}, "a": {"b": {}}})", {"a", "b"}), "{}");
  EXPECT_EQ(OrderedText(R"({"a": {"c": {"b": 1}, "b": "t"}, "b": 2})", {"a", "b"}), R"("t")");
  EXPECT_EQ(OrderedText(R"({"p": [[{"\u0061": 0}], {}], "\u0061": {"\u00e9": 1}})", {"a"}),
            "{\"\xc3\xa9\":1}");
}

// nlohmann::json and the text agree but for the order, whatever the body is.
TEST(OrderedText, HasTheValueOfTheParser) {
  const std::string body =
      R"({"a": {"k": [1, {"a": {"k": 2}}], "k": {"a": [], "k": [{}, "", {"b": [[[0.25]]]}]}},
          "c": [{"k": 1}, {"a": 2}], "k": {"k": 1}})";
  const json object = json::parse(body);
  for (const std::vector<std::string>& keys : std::vector<std::vector<std::string>>{
           {"a"}, {"a", "k"}, {"a", "k", "k"}, {"k"}, {"k", "k"}, {"c"}}) {
    json value = object;
    for (const std::string& key : keys) value = json(value[key]);
    EXPECT_EQ(json::parse(OrderedText(body, keys)), value);
  }
}

TEST(FormatFields, WrongOnesAreNamed) {
  ExpectRefused({
      {R"("structured_outputs": "a")", "invalid_type", "structured_outputs"},
      {R"("structured_outputs": {"json_object": false})", "missing_field", "structured_outputs"},
      {R"("structured_outputs": {"regex": ""})", "missing_field", "structured_outputs"},
      {R"("structured_outputs": {"regex": 1})", "invalid_type", "structured_outputs.regex"},
      {R"("structured_outputs": {"grammar": [1]})", "invalid_type", "structured_outputs.grammar"},
      {R"("structured_outputs": {"choice": []})", "missing_field", "structured_outputs"},
      {R"("structured_outputs": {"choice": "a"})", "invalid_type", "structured_outputs.choice"},
      {R"("structured_outputs": {"choice": [1]})", "invalid_type", "structured_outputs.choice"},
      {R"("structured_outputs": {"choice": ["a", ""]})", "invalid_value",
       "structured_outputs.choice"},
      {R"("structured_outputs": {"json": 1})", "invalid_type", "structured_outputs.json"},
      {R"("structured_outputs": {"json": [{}]})", "invalid_type", "structured_outputs.json"},
      {R"("structured_outputs": {"json": "{"})", "invalid_value", "structured_outputs.json"},
      {R"("structured_outputs": {"json": "[]"})", "invalid_value", "structured_outputs.json"},
      {R"("structured_outputs": {"json_object": 1})", "invalid_type",
       "structured_outputs.json_object"},
      {R"("structured_outputs": {"regex": "a", "disable_any_whitespace": true})",
       "unsupported_field", "structured_outputs.disable_any_whitespace"},
      {R"("structured_outputs": {"regex": "a", "whitespace_pattern": " "})", "unsupported_field",
       "structured_outputs.whitespace_pattern"},
      {R"("response_format": "json_object")", "invalid_type", "response_format"},
      {R"("response_format": {"type": ""})", "missing_field", "response_format.type"},
      {R"("response_format": {"type": "xml"})", "invalid_value", "response_format.type"},
      {R"("response_format": {"type": "json_schema"})", "missing_field",
       "response_format.json_schema"},
      {R"("response_format": {"type": "json_object", "json_schema": {"schema": {}}})",
       "unsupported_combination", "response_format.json_schema"},
      {R"("response_format": {"type": "json_schema", "json_schema": [1]})", "invalid_type",
       "response_format.json_schema"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"name": "n"}})",
       "missing_field", "response_format.json_schema.schema"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"schema": {}, "strict": 1}})",
       "invalid_type", "response_format.json_schema.strict"},
      {R"("guided_regex": ["a"])", "invalid_type", "guided_regex"},
      {R"("guided_json": true)", "invalid_type", "guided_json"},
      {R"("guided_choice": [""])", "invalid_value", "guided_choice"},
      {R"("guided_whitespace_pattern": " ")", "unsupported_field", "guided_whitespace_pattern"},
      {R"("ebnf": 1)", "invalid_type", "ebnf"},
      {R"("json_schema": "x")", "invalid_value", "json_schema"},
  });
}

TEST(FormatFields, UnknownOnesAreIgnoredAndNamed) {
  api_text::ExpectIgnored({
      {R"("structured_outputs": {"regex": "a", "colour": 1})", "unknown_field",
       "structured_outputs.colour"},
      {R"("structured_outputs": {"regex": "a", "disable_fallback": true})", "unsupported_field",
       "structured_outputs.disable_fallback"},
      {R"("response_format": {"type": "text", "colour": 1})", "unknown_field",
       "response_format.colour"},
      {R"("response_format": {"type": "json_schema", "json_schema": {"schema": {}, "x": 1}})",
       "unknown_field", "response_format.json_schema.x"},
      {R"("regex": "a", "guided_decoding_backend": "x")", "unsupported_field",
       "guided_decoding_backend"},
      {R"("guided_json": {"properties": {"a": {"markdown": 1}}})", "unknown_field",
       "guided_json/properties/a/markdown"},
  });
}

TEST(FormatFields, ATextOfASchemaIsNotNestedDeeperThanABody) {
  const auto nested = [](int levels) {
    std::string text;
    for (int i = 1; i < levels; ++i) text += "{\\\"a\\\":";
    return ReadFields(
               absl::StrCat(R"("json_schema": ")", text, "{}", std::string(levels - 1, '}'), "\""))
        .error;
  };
  EXPECT_EQ(nested(32).code, "accepted") << nested(32).message;
  EXPECT_THAT(nested(33).message, HasSubstr("at most 32 levels"));
}

TEST(FormatFields, UnknownOnesInsideMayBeIgnored) {
  const Read read = ReadFields(
      R"("response_format": {"type": "json_schema", "x": 1, "json_schema": {"schema": {}, "y": 1}})",
      /*ignore_unknown=*/true);
  EXPECT_EQ(read.error.code, "accepted") << read.error.message;
  EXPECT_THAT(read.ignored,
              ::testing::ElementsAre("response_format.json_schema.y", "response_format.x"));
}

// A client may name its format twice.
TEST(FormatFields, TwoFieldsMayAskForTheSame) {
  for (
      const char* fields :
      {R"("guided_grammar": "root ::= \"a\"", "structured_outputs": {"grammar": "root ::= \"a\""})",
       R"("guided_json": {"type": "object"}, "response_format": {"type": "json_object"})",
       R"("guided_json": "{ \"type\" : \"null\" }", "json_schema": {"type": "null"})"}) {
    EXPECT_EQ(ReadFields(fields).error.code, "accepted") << ReadFields(fields).error.message;
  }
  // The order of properties is that of the answer.
  EXPECT_EQ(ReadFields(R"("guided_json": {"properties": {"a": {}, "b": {}}},
                          "json_schema": {"properties": {"b": {}, "a": {}}})")
                .error.code,
            "conflicting_fields");
}

TEST(FormatFields, AnObjectMayHaveItsSchemaBesideTheType) {
  const Read read = ReadFields(R"("response_format": {"type": "json_object", "schema": {"b": 1}})");
  EXPECT_EQ(read.spec.text, R"({"b":1})");
  EXPECT_EQ(read.field, "response_format.schema");
  const Read any = ReadFields(R"("response_format": {"type": "json_object", "schema": {}})");
  EXPECT_EQ(any.spec.text, R"({"type":"object"})");
}

// Of any two of them, the one that is read second is refused; the message names both.
TEST(FormatFields, TwoFormatsAreAConflict) {
  const std::vector<std::pair<std::string, std::string>> fields = {
      {R"("response_format": {"type": "json_object"})", "response_format.type"},
      {R"("structured_outputs": {"regex": "a"})", "structured_outputs.regex"},
      {R"("guided_regex": "c")", "guided_regex"},
      {R"("guided_choice": ["a"])", "guided_choice"},
      {R"("guided_grammar": "a")", "guided_grammar"},
      {R"("guided_json": {})", "guided_json"},
      {R"("regex": "b")", "regex"},
      {R"("ebnf": "b")", "ebnf"},
      {R"("grammar": "c")", "grammar"},
      {R"("json_schema": "{\"type\": \"null\"}")", "json_schema"}};
  for (size_t i = 0; i < fields.size(); ++i) {
    for (size_t k = i + 1; k < fields.size(); ++k) {
      const ApiError error = ReadFields(absl::StrCat(fields[k].first, ", ", fields[i].first)).error;
      EXPECT_EQ(error.code, "conflicting_fields") << error.message;
      EXPECT_EQ(error.param, fields[k].second);
      EXPECT_THAT(error.message, HasSubstr(fields[i].second));
    }
  }
  ExpectRefused({
      {R"("structured_outputs": {"regex": "a", "choice": ["a"]})", "conflicting_fields",
       "structured_outputs.choice"},
      {R"("structured_outputs": {"json": {}, "json_object": true})", "conflicting_fields",
       "structured_outputs.json_object"},
      {R"("response_format": {"type": "json_object"}, "structured_outputs": {"regex": ""})",
       "missing_field", "structured_outputs"},
  });
}

TEST(FormatFields, WhatCannotBeBoundIsRefusedWithBothNames) {
  const struct {
    const char* fields;
    const char* other;
  } cases[] = {
      {R"("ignore_eos": true, "stop_token_ids": [256])", "ignore_eos"},
      {R"("min_tokens": 1)", "min_tokens"},
      {R"("decoding": "beam_sampling", "sampling_scope": "joint")", "sampling_scope joint"},
      {R"("decoding": "beam_sampling", "sampling_scope": "rowcut")", "sampling_scope rowcut"},
      {R"("stop_token_ids": [256, 65])", "stop_token_ids 65"},
  };
  for (const auto& clash : cases) {
    const ApiError error = Bad(Parse(absl::StrCat(R"("guided_regex": "[a-z]+", )", clash.fields)));
    EXPECT_EQ(error.code, "unsupported_combination") << error.message;
    EXPECT_EQ(error.param, "guided_regex");
    EXPECT_THAT(error.message, HasSubstr(absl::StrCat("cannot be combined with ", clash.other)));
    Good(clash.fields);
  }
}

TEST(FormatFields, AModelWithoutAnEndNeedsStopIds) {
  ModelLimits limits;
  limits.max_model_len = 100;
  limits.vocab_size = 258;
  const auto fit = [&](const char* fields) {
    GenerateRequest request = Good(fields);
    request.params.format_spec = {Kind::kRegex, "a"};
    request.format_field = "regex";
    const std::optional<ApiError> error = FitToModel(limits, ApiLimits(), &request);
    return error.value_or(ApiError{200, "accepted", "", ""});
  };
  EXPECT_EQ(fit("").code, "unsupported_combination");
  EXPECT_EQ(fit("").param, "regex");
  EXPECT_EQ(fit(R"("stop_token_ids": [257])").code, "accepted");
  limits.eos_ids = {256};
  EXPECT_EQ(fit("").code, "accepted");
}

TEST(FormatFields, AFormatThatCannotBeReadIsRefusedByItsField) {
  for (const auto& [fields, param] : std::vector<std::pair<std::string, std::string>>{
           {R"("structured_outputs": {"regex": "("})", "structured_outputs.regex"},
           {R"("guided_grammar": "::=")", "guided_grammar"},
           {R"("response_format": {"type": "json_schema", "json_schema": {"schema": {"type": 1}}})",
            "response_format.json_schema.schema"}}) {
    const ApiError error = Bad(Parse(fields));
    EXPECT_EQ(error.code, "invalid_value") << error.message;
    EXPECT_EQ(error.param, param);
    EXPECT_THAT(error.message, HasSubstr(absl::StrCat(param, " is refused: ")));
  }
  const ApiError large =
      Bad(Parse(absl::StrCat(R"("regex": ")", std::string(kMostFormatBytes + 1, 'a'), "\"")));
  EXPECT_THAT(large.message, HasSubstr("at most 262144"));
}

// A request is accepted if its format can be read, and the message to a replica has it.
TEST(FormatFields, WhatCanBeReadIsAccepted) {
  for (
      const char* fields :
      {R"("structured_outputs": {"regex": "[0-9]{4}-[0-9]{2}"}, "num_beams": 4, "n": 2)",
       R"("structured_outputs": {"grammar": "root ::= \"a\" [b-d]*"}, "sampling_scope": "row_raw")",
       R"("guided_choice": ["a\"b", "\\n", "\n\t\u007f", "\u20ac'[x]"], "min_tokens": 0)",
       R"("structured_outputs": {"json_object": true}, "max_tokens": 0, "echo": true)",
       R"("guided_json": {"properties": {"b": {"type": "integer"}, "a": {"enum": [1, "x"]}}})",
       R"("response_format": {"type": "json_object"}, "stop_token_ids": [257])"}) {
    const FormatSpec spec = ReadAll(fields).spec;
    const bool readable = grammar::CompileFormat(spec).ok();
    const api_text::Parsed parsed = Parse(fields);
    EXPECT_EQ(Bad(parsed).code, readable ? "accepted" : "invalid_value") << Bad(parsed).message;
    if (!readable) continue;
    const auto sent = proto::DecodingFromMessage(
        proto::DecodingToMessage(std::get<GenerateRequest>(parsed).params));
    ASSERT_TRUE(sent.ok()) << sent.status();
    EXPECT_EQ(sent->format_spec, spec) << fields;
  }
}

// Lacks the tokens of some bytes.
class LackingTokenizer : public ByteTokenizer {
 public:
  explicit LackingTokenizer(std::string lacks) : lacks_(std::move(lacks)) {}
  std::string TokenBytes(TokenId id, bool skip_special) const override {
    const std::string bytes = ByteTokenizer::TokenBytes(id, skip_special);
    return lacks_.find(bytes) == std::string::npos ? bytes : bytes + bytes;
  }

 private:
  const std::string lacks_;
};

TEST(FormatFields, TextsWithAByteThatTheVocabularyLacksAreLeftOut) {
  EXPECT_TRUE(tokenizer::OwnBytes(ByteTokenizer()).all());
  ApiContext context = api_text::Context();
  EXPECT_TRUE(ServesFormats(context));
  context.own_bytes = tokenizer::OwnBytes(LackingTokenizer("~"));
  EXPECT_EQ(context.own_bytes.count(), 255);
  EXPECT_FALSE(ServesFormats(context));
  const auto parse = [&](const char* regex) {
    return Bad(
        ParseCompletion(absl::StrCat(R"({"prompt": "a", "regex": ")", regex, "\"}"), "", context));
  };
  EXPECT_EQ(parse("a|~").code, "accepted");
  const ApiError error = parse("a~+");
  EXPECT_EQ(error.code, "invalid_value");
  EXPECT_EQ(error.message,
            "regex is refused: the vocabulary can write no text that has the format");
  EXPECT_EQ(error.param, "regex");
  const ApiError circle = Bad(ParseCompletion(
      R"({"prompt": "a", "guided_json": {"items": {"$ref": "#/items"}}})", "", context));
  EXPECT_EQ(circle.code, "invalid_value");
  EXPECT_EQ(circle.message,
            "guided_json is refused: JSON schema, #/items/$ref: the reference leads back to itself "
            "and describes no value on the way");
}

TEST(FormatFields, CopiesForManySequencesAreBounded) {
  ApiContext context = api_text::Context();
  context.limits.max_format_copies = 30;
  const auto parse = [&](int n) {
    return Bad(ParseCompletion(
        absl::StrCat(R"({"prompt": ["a", "b"], "regex": "(abc)*", "n": )", n, "}"), "", context));
  };
  EXPECT_EQ(parse(2).code, "accepted");  // 6 bytes, 4 sequences
  const ApiError error = parse(3);
  EXPECT_EQ(error.code, "invalid_value");
  EXPECT_EQ(error.message, "regex has 6 bytes for each of 6 sequences, at most 30 in all are sent");
}

TEST(FormatFields, TheModelsOfTheTestsHaveEveryByte) {
  for (const char* model : {"stories260k", "stories260k-draft"}) {
    const auto tokenizer = tokenizer::Tokenizer::Load(absl::StrCat("tests/models/", model));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
    const std::bitset<256> own = tokenizer::OwnBytes(**tokenizer);
    for (int byte = 0; byte <= 0xf4; ++byte)
      EXPECT_TRUE(own[byte] || byte == 0xc0 || byte == 0xc1) << model << " " << byte;
  }
}

TEST(FormatFields, ChatsHaveThemToo) {
  const tokenizer::ChatPrompt chat(*tokenizer::ChatTemplate::Parse("{{ messages[0].content }}"),
                                   "<s>", "</s>", &api_text::Tokens());
  ApiContext context = api_text::Context();
  context.chat = &chat;
  const ApiError error = Bad(ParseChatCompletion(
      R"({"messages": [{"role": "user", "content": "a"}], "regex": "a", "guided_json": {}})", "",
      context, /*now_unix=*/0));
  EXPECT_EQ(error.code, "conflicting_fields") << error.message;
}

TEST(FormatFields, BodiesThatMayHaveThemAreKnown) {
  for (const char* body :
       {R"({"response_format": {"type": "json_object"}})", R"({"structured_outputs": 1})",
        R"({"guided_json": 1})", R"({"regex": "a"})", R"({"ebnf": "a"})", R"({"json_schema": "a"})",
        R"({"r\u0065gex": "a"})"}) {
    EXPECT_TRUE(MayHaveFormat(body)) << body;
  }
  EXPECT_FALSE(MayHaveFormat(R"({"prompt": "a regex", "stop": "\n"})"));
}

}  // namespace
}  // namespace coppice::coordinator
