// Fields that are not served, unknown fields, and values that mean that a field is absent.
#include "coordinator/api/unserved_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "coordinator/api/openapi.h"
#include "decoding/method.h"
#include "tests/coordinator/api/api_parse.h"

namespace coppice::coordinator {
namespace {

using api_text::Bad;
using api_text::Context;
using api_text::Good;
using api_text::Parse;
using api_text::Parsed;
using nlohmann::json;
using ::testing::HasSubstr;

TEST(Api, HintsAndUnknownFieldsAreIgnoredAndNamed) {
  api_text::ExpectIgnored({
      {R"("foo": 1)", "unknown_field", "foo"},
      {R"("speculative": {"foo": 1})", "unknown_field", "speculative.foo"},
      {R"("stream": true, "stream_options": {"foo": 1})", "unknown_field", "stream_options.foo"},
      {R"("cache_prompt": false)", "unsupported_field", "cache_prompt"},
      {R"("stream": true, "stream_options": {"continuous_usage_stats": true})",
       "unsupported_combination", "stream_options.continuous_usage_stats"},
      {R"("store": true)", "unsupported_field", "store"},
      {R"("service_tier": "gold")", "unsupported_field", "service_tier"},
      {R"("prompt_cache_key": "k")", "unsupported_field", "prompt_cache_key"},
      {R"("return_tokens_as_token_ids": true)", "unsupported_combination",
       "return_tokens_as_token_ids"},
      {R"("include_stop_str_in_output": true)", "unsupported_combination",
       "include_stop_str_in_output"},
      {R"("stream_options": {"include_usage": true})", "unsupported_combination", "stream_options"},
      {R"("length_penalty": 2)", "unsupported_combination", "length_penalty"},
      {R"("early_stopping": false)", "unsupported_combination", "early_stopping"},
  });
  EXPECT_THAT(Good(R"("foo": 1, "speculative": {"bar": 1}, "store": true)").ignored.names(),
              ::testing::UnorderedElementsAre("foo", "speculative.bar", "store"));
}

// Another server's record of its answer, and a client's own remarks.
TEST(Api, NeutralValuesAreAbsent) {
  const std::string body =
      R"("presence_penalty": 0, "frequency_penalty": 0.0, "repetition_penalty": 1.0, "echo": false, "tools": [],
          "response_format": {"type": "text"}, "priority": 0, "num_beam_groups": 1, "diversity_penalty": 0,
          "spaces_between_special_tokens": true, "store": false, "service_tier": "auto", "user": "u", "metadata": {"a": 1},
          "safety_identifier": "s", "parallel_tool_calls": true, "typical_p": 1.0, "mirostat": 0, "cache_prompt": true,
          "max_tokens": -1, "max_completion_tokens": false, "logprobs": false, "stop": false, "lora": [])";
  for (const bool strict : {false, true}) {
    const Parsed parsed = Parse(body, strict);
    ASSERT_TRUE(std::holds_alternative<GenerateRequest>(parsed)) << Bad(parsed).message;
    const GenerateRequest& request = std::get<GenerateRequest>(parsed);
    EXPECT_TRUE(request.ignored.empty()) << request.ignored.Text();
    EXPECT_FALSE(request.max_tokens_given);
    EXPECT_FALSE(request.logprobs.has_value());
  }
}

TEST(Api, AnswersNameNoMoreThanAFewIgnoredFieldsAndNoUnsafeCharacters) {
  std::string fields = R"("a\r\nb": 1, ")" + std::string(100, 'x') + R"(": 1)";
  for (int i = 0; i < 100; ++i) absl::StrAppend(&fields, ", \"f", i, "\": 1");
  const IgnoredFields ignored = Good(fields).ignored;
  EXPECT_EQ(ignored.names().size(), 32u);
  EXPECT_EQ(ignored.names()[0], "a??b");
  EXPECT_LE(ignored.Text().size(), 32u * 65);
}

// The result of a request of these fields, without its random parts.
std::string Result(const std::string& body, bool chat) {
  static const tokenizer::ChatPrompt* const prompt = new tokenizer::ChatPrompt(
      *tokenizer::ChatTemplate::Parse("{{ messages[0].content }}"), "", "", &api_text::Tokens());
  ApiContext context = Context(/*strict=*/true);
  context.chat = prompt;
  const Parsed parsed = chat ? ParseChatCompletion(body, "", context, /*now_unix=*/0)
                             : ParseCompletion(body, "", context);
  if (const ApiError* error = std::get_if<ApiError>(&parsed))
    return absl::StrCat(error->code, " ", error->message);
  GenerateRequest request = std::get<GenerateRequest>(parsed);
  ModelLimits model;
  model.max_model_len = 100;
  model.vocab_size = 258;
  if (const std::optional<ApiError> error = FitToModel(model, {}, &request)) return error->message;
  return absl::StrCat(request.params.max_tokens, " ", request.params.stop_strings.size(), " ",
                      request.n, request.samples, request.stream, request.echo, request.ignore_eos,
                      request.logprobs.value_or(-1), " ", request.params.sampling.temperature, " ",
                      request.params.sampling.top_k, " ", request.params.sampling.top_p, " ",
                      decoding::MethodName(request.params), request.format_field,
                      request.params.beam_width, " ", request.ignored.Text());
}

// For every field of both endpoints that /openapi.json has: null, and every empty value of a type,
// mean that the field is absent, also for a strict server.
TEST(Api, EmptyValuesOfEveryFieldAreAbsent) {
  const json document = json::parse(OpenApiJson(ApiLimits(), "1"));
  for (const bool chat : {false, true}) {
    const std::string own =
        chat ? R"("messages": [{"role": "user", "content": "hi"}])" : R"("prompt": "hi")";
    const std::string absent = Result(absl::StrCat("{\"seed\": 3, ", own, "}"), chat);
    int fields = 0;
    for (const auto& field :
         document["components"]["schemas"][chat ? "ChatRequest" : "CompletionRequest"]["properties"]
             .items()) {
      if (field.key() == "prompt" || field.key() == "messages" || field.key() == "seed") continue;
      ++fields;
      for (const char* empty : {"null", "[]", "{}", "\"\""}) {
        const bool any_schema = std::string(empty) == "{}" &&
                                (field.key() == "guided_json" || field.key() == "json_schema");
        const std::string result = Result(
            absl::StrCat("{\"seed\": 3, ", own, ", \"", field.key(), "\": ", empty, "}"), chat);
        EXPECT_EQ(result == absent, !any_schema) << field.key() << " " << empty << ": " << result;
      }
    }
    EXPECT_GT(fields, 60);
  }
}

TEST(Api, ThePageHasTheCurrentTableOfUnservedFields) {
  std::ifstream file("docs/api.md");  // tests run in the root of the source tree
  const std::string page{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_THAT(page, HasSubstr("\n\n" + UnservedFieldTable() + "\n"))
      << "the table of docs/api.md 2 is stale: coppice-reference unserved";
}

TEST(Api, UnservedFieldsAreAbsentAtEachNeutralValue) {
  for (const bool chat : {false, true}) {
    const std::string own =
        chat ? R"("messages": [{"role": "user", "content": "hi"}])" : R"("prompt": "hi")";
    const std::string absent = Result(absl::StrCat("{\"seed\": 3, ", own, "}"), chat);
    for (const UnservedField& field : UnservedFields()) {
      if (!IsOf(field, chat)) continue;
      json values = json::parse(field.neutral);
      if (std::find(values.begin(), values.end(), json(true)) == values.end())
        values.push_back(false);
      for (const json& value : values) {
        EXPECT_EQ(Result(absl::StrCat("{\"seed\": 3, ", own, ", \"", field.name,
                                      "\": ", value.dump(), "}"),
                         chat),
                  absent)
            << field.name << " " << value;
      }
      const std::string other =
          Result(absl::StrCat("{\"seed\": 3, ", own, ", \"", field.name, "\": {\"x\": 7}}"), chat);
      EXPECT_EQ(other == absent, field.effect == UnservedField::Effect::kNone) << field.name;
    }
  }
}

}  // namespace
}  // namespace coppice::coordinator
