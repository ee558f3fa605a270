// Every field of POST /v1/completions: range, type, null, aliases, combinations
// (docs/api.md 2, 2.1).
#include "coordinator/api/api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "coordinator/api/endpoints.h"
#include "coordinator/api/openapi.h"
#include "coordinator/api/served_models.h"
#include "coordinator/api/unserved_fields.h"
#include "decoding/method.h"
#include "tests/coordinator/api/api_parse.h"
#include "tests/coordinator/byte_tokenizer.h"

namespace coppice::coordinator {
namespace {

using api_text::Bad;
using api_text::Context;
using api_text::ExpectRefused;
using api_text::Good;
using api_text::Parse;
using api_text::Parsed;
using api_text::ParseText;
using nlohmann::json;
using ::testing::HasSubstr;

TEST(Api, DefaultsAreOneMultinomialSample) {
  const GenerateRequest request = Good("");
  EXPECT_EQ(request.params.kind, sampling::DecodingKind::kMultinomial);
  EXPECT_EQ(request.n, 1);
  EXPECT_EQ(request.samples, 1);
  EXPECT_EQ(request.params.max_tokens, 256);
  EXPECT_EQ(decoding::MethodName(request.params), "gumbel_coupling");
  EXPECT_EQ(request.params.draft_top_k, 64);
  EXPECT_EQ(request.timeout_s, 600);
  EXPECT_EQ(request.prompts[0], (std::vector<TokenId>{ByteTokenizer::kBos, 'h', 'i'}));
  EXPECT_LT(request.params.seed, uint64_t{1} << 53);
  EXPECT_NE(request.params.seed, Good("").params.seed);
}

// A model may have more ids than its tokenizer.
TEST(Api, IdsAreThoseOfTheModelOnceItIsKnown) {
  ApiContext context = Context();
  context.model_vocab = 300;
  const auto parse = [&](const std::string& fields) {
    return ParseCompletion("{" + fields + "}", "", context);
  };
  const Parsed good = parse(
      R"("prompt": [65, 299], "stop_token_ids": [299], "logit_bias": {"299": 1}, "top_k": 300)");
  ASSERT_TRUE(std::holds_alternative<GenerateRequest>(good)) << Bad(good).message;
  EXPECT_EQ(std::get<GenerateRequest>(good).prompts[0], (std::vector<TokenId>{65, 299}));
  EXPECT_EQ(Bad(parse(R"("prompt": [300])")).message, "prompt has token ids between 0 and 299");
  EXPECT_EQ(Bad(parse(R"("prompt": "a", "stop_token_ids": [300])")).param, "stop_token_ids");
  EXPECT_EQ(Bad(parse(R"("prompt": "a", "logit_bias": {"300": 1})")).param, "logit_bias");
}

TEST(Api, OutOfRange) {
  ExpectRefused({
      {R"("temperature": -0.1)", "invalid_value", "temperature"},
      {R"("temperature": 2.1)", "invalid_value", "temperature"},
      {R"("temperature": 1e-308)", "invalid_value", "temperature"},
      {R"("top_p": 0)", "invalid_value", "top_p"},
      {R"("top_p": 1.1)", "invalid_value", "top_p"},
      {R"("min_p": -0.1)", "invalid_value", "min_p"},
      {R"("top_k": -2)", "invalid_value", "top_k"},
      {R"("top_k": 259)", "invalid_value", "top_k"},
      {R"("n": 0)", "invalid_value", "n"},
      {R"("n": 65)", "invalid_value", "n"},
      {R"("n": 1.5)", "invalid_value", "n"},
      {R"("best_of": 0)", "invalid_value", "best_of"},
      {R"("n": 3, "best_of": 2)", "invalid_value", "best_of"},
      {R"("max_tokens": -2)", "invalid_value", "max_tokens"},
      {R"("max_tokens": "4")", "invalid_type", "max_tokens"},
      {R"("max_tokens": 0)", "unsupported_combination", "max_tokens"},
      {R"("max_tokens": 0, "echo": true, "stream": true)", "unsupported_combination", "max_tokens"},
      {R"("max_tokens": 0, "echo": true, "min_tokens": 1)", "invalid_value", "min_tokens"},
      {R"("max_tokens": 0, "max_new_tokens": 1, "echo": true)", "conflicting_fields", "max_tokens"},
      {R"("logprobs": 21)", "invalid_value", "logprobs"},
      {R"("logprobs": -1)", "invalid_value", "logprobs"},
      {R"("logprobs": "3")", "invalid_type", "logprobs"},
      {R"("echo": 1)", "invalid_type", "echo"},
      {R"("max_new_tokens": 0)", "unsupported_combination", "max_new_tokens"},
      {R"("min_tokens": 9, "max_tokens": 8)", "invalid_value", "min_tokens"},
      {R"("beam_width": 9)", "invalid_value", "beam_width"},
      {R"("num_beams": 0)", "invalid_value", "num_beams"},
      {R"("use_beam_search": true, "n": 9)", "invalid_value", "n"},
      {R"("seed": 9223372036854775808)", "invalid_value", "seed"},
      {R"("timeout": 0)", "invalid_value", "timeout"},
      {R"("timeout": 3601)", "invalid_value", "timeout"},
      {R"("length_penalty": 10.5)", "invalid_value", "length_penalty"},
      {R"("presence_penalty": 2.1)", "invalid_value", "presence_penalty"},
      {R"("presence_penalty": "1")", "invalid_type", "presence_penalty"},
      {R"("frequency_penalty": -2.1)", "invalid_value", "frequency_penalty"},
      {R"("repetition_penalty": 0)", "invalid_value", "repetition_penalty"},
      {R"("repetition_penalty": 2.1)", "invalid_value", "repetition_penalty"},
      {R"("stop_token_ids": [258])", "invalid_value", "stop_token_ids"},
      {R"("logit_bias": {"5": 101})", "invalid_value", "logit_bias"},
      {R"("logit_bias": {"x": 1})", "invalid_value", "logit_bias"},
      {R"("logit_bias": {"05": 1})", "invalid_value", "logit_bias"},
      {R"("logit_bias": {"5": 1, " 5": 1})", "invalid_value", "logit_bias"},
      {R"("logit_bias": {"258": 1})", "invalid_value", "logit_bias"},
      {R"("decoding": "best")", "invalid_value", "decoding"},
      {R"("sampling_scope": "col")", "invalid_value", "sampling_scope"},
      {R"("early_stopping": "always")", "invalid_value", "early_stopping"},
      {R"("speculative": "maybe")", "invalid_value", "speculative"},
      {R"("speculative": {"method": "magic"})", "invalid_value", "speculative.method"},
      {R"("speculative": {"draft_width": 0})", "invalid_value", "speculative.draft_width"},
      {R"("speculative": {"draft_width": 65})", "invalid_value", "speculative.draft_width"},
      {R"("speculative": {"draft_depth": 17})", "invalid_value", "speculative.draft_depth"},
      {R"("speculative": {"draft_depth": "deep"})", "invalid_value", "speculative.draft_depth"},
      {R"("speculative": {"draft_top_k": 1025})", "invalid_value", "speculative.draft_top_k"},
      {R"("speculative": {"width_threshold": 0})", "invalid_value", "speculative.width_threshold"},
      {R"("speculative": {"min_width": 2})", "invalid_value", "speculative.min_width"},
      {R"("speculative": {"draft_tree": "3-0"})", "invalid_value", "speculative.draft_tree"},
      {R"("speculative": {"draft_tree": "oak"})", "invalid_value", "speculative.draft_tree"},
      {R"("speculative": {"draft_tree": "8-9"})", "invalid_value", "speculative.draft_tree"},
      {R"("speculative": {"draft_tree": "1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1"})", "invalid_value",
       "speculative.draft_tree"},
      {R"("speculative": {"draft_beams": 0})", "invalid_value", "speculative.draft_beams"},
      {R"("speculative": {"draft_beams": 65})", "invalid_value", "speculative.draft_beams"},
      {R"("speculative": {"mjsd_threshold": 1.01})", "invalid_value", "speculative.mjsd_threshold"},
      {R"("speculative": {"fallback_threshold": -0.1})", "invalid_value",
       "speculative.fallback_threshold"},
      {R"("speculative": {"rollback_threshold": -1})", "invalid_value",
       "speculative.rollback_threshold"},
      {R"("speculative": {"joint_tokens": 0})", "invalid_value", "speculative.joint_tokens"},
      {R"("speculative": {"joint_tokens": 17})", "invalid_value", "speculative.joint_tokens"},
      {R"("decoding": "beam_sampling", "beam_duplicates": "twice")", "invalid_value",
       "beam_duplicates"},
  });
}

TEST(Api, TooManyStops) {
  json stops = json::array();
  for (int i = 0; i < 16; ++i) stops.push_back(absl::StrCat("s", i));
  EXPECT_EQ(Good(absl::StrCat(R"("stop": )", stops.dump())).params.stop_strings.size(), 16);
  stops.push_back("one more");
  EXPECT_EQ(Bad(Parse(absl::StrCat(R"("stop": )", stops.dump()))).param, "stop");
  EXPECT_EQ(Bad(Parse(absl::StrCat(R"("stop": ")", std::string(257, 'a'), "\""))).code,
            "invalid_value");
}

// Every field with each JSON type that it does not take.
TEST(Api, WrongTypes) {
  const std::vector<std::pair<const char*, const char*>> fields = {
      {"model", "s"},
      {"max_tokens", "n"},
      {"n", "n"},
      {"best_of", "n"},
      {"decoding", "s"},
      {"use_beam_search", "b"},
      {"do_sample", "b"},
      {"beam_width", "n"},
      {"length_penalty", "n"},
      {"early_stopping", "bs"},
      {"refill", "b"},
      {"temperature", "n"},
      {"top_k", "n"},
      {"top_p", "n"},
      {"min_p", "n"},
      {"sampling_scope", "s"},
      {"seed", "n"},
      {"stop", "sa"},
      {"include_stop_str_in_output", "b"},
      {"stop_token_ids", "a"},
      {"ignore_eos", "b"},
      {"min_tokens", "n"},
      {"logit_bias", "o"},
      {"stream", "b"},
      {"return_token_ids", "b"},
      {"return_tokens_as_token_ids", "b"},
      {"skip_special_tokens", "b"},
      {"add_special_tokens", "b"},
      {"timeout", "n"},
      {"speculative", "bso"}};
  const std::vector<std::pair<char, const char*>> values = {
      {'s', R"("1")"}, {'n', "1"}, {'b', "true"}, {'a', "[1]"}, {'o', R"({"1": 1})"}};
  for (const auto& [name, takes] : fields) {
    for (const auto& [type, value] : values) {
      if (std::string(takes).find(type) != std::string::npos) continue;
      const ApiError error = Bad(Parse(absl::StrCat("\"", name, "\": ", value)));
      EXPECT_EQ(error.code, "invalid_type") << name << " " << value << " " << error.message;
      EXPECT_EQ(error.param, name) << value;
    }
  }
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

TEST(Api, AliasesMeanTheSameAndMustAgree) {
  EXPECT_EQ(Good(R"("max_completion_tokens": 7)").params.max_tokens, 7);
  EXPECT_EQ(Good(R"("max_new_tokens": 7.0, "max_tokens": 7)").params.max_tokens, 7);
  EXPECT_EQ(Good(R"("num_beams": 4, "beam_width": 4)").params.beam_width, 4);
  EXPECT_EQ(Good(R"("num_return_sequences": 3)").n, 3);
  ExpectRefused({
      {R"("beam_width": 4, "num_beams": 5)", "conflicting_fields", "beam_width"},
      {R"("max_tokens": 4, "max_new_tokens": 5)", "conflicting_fields", "max_tokens"},
      {R"("n": 1, "num_return_sequences": 2)", "conflicting_fields", "n"},
      {R"("use_beam_search": true, "best_of": 3, "num_beams": 4)", "conflicting_fields", "best_of"},
  });
}

TEST(Api, LogprobsAndEcho) {
  EXPECT_FALSE(Good("").logprobs.has_value());
  EXPECT_EQ(Good(R"("logprobs": 0)").logprobs, 0);
  EXPECT_EQ(Good(R"("logprobs": 20.0)").logprobs, 20);
  EXPECT_FALSE(Good(R"("echo": true)").score_prompt());
  EXPECT_TRUE(Good(R"("echo": true, "logprobs": 1)").score_prompt());
  const GenerateRequest scored = Good(R"("echo": true, "max_tokens": 0.0, "n": 3)");
  EXPECT_TRUE(scored.score_only);
  EXPECT_EQ(scored.max_tokens(), 0);
  EXPECT_EQ(scored.samples, 1);
  EXPECT_EQ(scored.n, 3);
}

TEST(Api, WhatWouldGiveAWrongAnswerIsRefused) {
  ExpectRefused({
      {R"("suffix": "x")", "unsupported_field", "suffix"},
      {R"("tools": [1])", "unsupported_field", "tools"},
      {R"("response_format": {"type": "xml"})", "invalid_value", "response_format.type"},
      {R"("num_beam_groups": 2)", "unsupported_field", "num_beam_groups"},
      {R"("typical_p": 0.9)", "unsupported_field", "typical_p"},
      {R"("cache_salt": "s")", "unsupported_field", "cache_salt"},
      {R"("prompt_logprobs": 0)", "unsupported_field", "prompt_logprobs"},
  });
}

TEST(Api, HintsAndUnknownFieldsAreIgnoredAndNamed) {
  api_text::ExpectIgnored({
      {R"("foo": 1)", "unknown_field", "foo"},
      {R"("speculative": {"foo": 1})", "unknown_field", "speculative.foo"},
      {R"("stream": true, "stream_options": {"foo": 1})", "unknown_field", "stream_options.foo"},
      {R"("priority": 1)", "unsupported_field", "priority"},
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

TEST(Api, Prompts) {
  const auto bad = [](const char* prompt) {
    return Bad(ParseText(absl::StrCat("{\"prompt\": ", prompt, "}")));
  };
  EXPECT_EQ(Bad(ParseText("{}")).code, "missing_field");
  EXPECT_EQ(Bad(ParseText("{}")).param, "prompt");
  for (const char* prompt : {"[]", "[[]]", "[[65], []]", "[258]", "[-1]", "[1.5]"}) {
    EXPECT_EQ(bad(prompt).code, "invalid_value") << prompt;
    EXPECT_EQ(bad(prompt).param, "prompt") << prompt;
  }
  for (const char* prompt : {"1", "{}", R"(["a", 1])", R"([[1], "a"])", R"([["a"]])", "true"}) {
    EXPECT_EQ(bad(prompt).code, "invalid_type") << prompt;
  }
  const auto good = [](const char* prompt) {
    return std::get<GenerateRequest>(
               ParseText(absl::StrCat("{\"add_special_tokens\": false, \"prompt\": ", prompt, "}")))
        .prompts;
  };
  EXPECT_EQ(good(R"("AB")"), (std::vector<std::vector<TokenId>>{{65, 66}}));
  EXPECT_EQ(good(R"(["A", "B"])"), (std::vector<std::vector<TokenId>>{{65}, {66}}));
  EXPECT_EQ(good("[65, 66.0]"), (std::vector<std::vector<TokenId>>{{65, 66}}));
  EXPECT_EQ(good("[[65], [66]]"), (std::vector<std::vector<TokenId>>{{65}, {66}}));
  json many = json::array();
  for (int i = 0; i < 65; ++i) many.push_back("a");
  EXPECT_EQ(bad(many.dump().c_str()).code, "invalid_value");
}

TEST(Api, ModelMustBeTheServedOne) {
  Good(R"("model": "demo")");
  const ApiError error = Bad(Parse(R"("model": "other")"));
  EXPECT_EQ(error.status, 404);
  EXPECT_EQ(error.code, "model_not_found");
}

TEST(Api, AModelThatIsNotServedIsAnsweredWithTheNames) {
  const std::vector<std::string> served = {"llama-3-8b", "small"};
  EXPECT_EQ(CheckModelName("small", served), std::nullopt);
  EXPECT_EQ(CheckModelName("gpt", served)->message,
            "The model 'gpt' does not exist; this server has: llama-3-8b, small");
  EXPECT_EQ(CheckModelName("llama-3-7b", served)->message,
            "The model 'llama-3-7b' does not exist; this server has: llama-3-8b, small; did you "
            "mean llama-3-8b?");
  EXPECT_EQ(CheckModelName("\n" + std::string(5000, 'x'), served)->message.substr(0, 30),
            "The model '\\nxxxxxxxxxxxxxxxxx");
  EXPECT_LT(CheckModelName(std::string(5000, 'x'), served)->message.size(), 200);
}

TEST(Api, APathThatIsNoEndpointIsAnsweredWithTheNearest) {
  for (const auto& [path, nearest] : std::vector<std::pair<const char*, const char*>>{
           {"/v1/chat/completion", "/v1/chat/completions"},
           {"/chat/completions", "/v1/chat/completions"},
           {"/v1/chat/completions/", "/v1/chat/completions"},
           {"/completions", "/v1/completions"},
           {"/v1/completion", "/v1/completions"},
           {"/models", "/v1/models"},
           {"/v1/tokenize", "/tokenize"},
           {"/healthz", "/health"},
           {"/metric", "/metrics"}}) {
    EXPECT_EQ(FindEndpoint(path), nullptr) << path;
    EXPECT_EQ(NoEndpointText(path), absl::StrCat(", did you mean ", nearest, "?")) << path;
  }
  EXPECT_EQ(NoEndpointText("/"), "");
  EXPECT_EQ(NoEndpointText("/favicon.ico"), "");
  for (const char* path : {"/v1/embeddings", "/embeddings", "/v1/audio/speech", "/v1/responses"})
    EXPECT_THAT(NoEndpointText(path), HasSubstr("text completions and chats only")) << path;
}

TEST(Api, MessagesQuoteNoText) {
  for (const char* fields :
       {R"("stop": ["secret", ""])", R"("foo": "secret")", R"("prompt_logprobs": "secret")"}) {
    EXPECT_THAT(Bad(Parse(fields)).message, ::testing::Not(HasSubstr("secret"))) << fields;
  }
}

TEST(Api, TheSmallerTimeoutHolds) {
  const auto timeout = [](const char* body, const char* header) {
    return std::get<GenerateRequest>(ParseText(body, header)).timeout_s;
  };
  EXPECT_EQ(timeout(R"({"prompt": "a", "timeout": 5})", "3"), 3);
  EXPECT_EQ(timeout(R"({"prompt": "a", "timeout": 2})", "3"), 2);
  EXPECT_EQ(timeout(R"({"prompt": "a"})", "700.5"), 700.5);
  for (const char* header : {"x", "0", "-1", "nan", "3601"}) {
    EXPECT_EQ(Bad(ParseText(R"({"prompt": "a"})", header)).code, "invalid_header") << header;
  }
}

}  // namespace
}  // namespace coppice::coordinator
