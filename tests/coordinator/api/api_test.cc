// Every field of POST /v1/completions: range, type, null, aliases, combinations
// (docs/api.md 2, 2.1).
#include "coordinator/api/api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "coordinator/api/endpoints.h"
#include "coordinator/api/served_models.h"
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
  EXPECT_EQ(request.priority, 0);
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
      {R"("n": 513)", "invalid_value", "n"},
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
      {R"("priority": 3000000000)", "invalid_value", "priority"},
      {R"("priority": "high")", "invalid_type", "priority"},
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
      {R"("speculative": {"draft_width": 513})", "invalid_value", "speculative.draft_width"},
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
      {R"("speculative": {"draft_beams": 513})", "invalid_value", "speculative.draft_beams"},
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
  EXPECT_EQ(NoEndpointText("/robots.txt"), "");
  for (const char* path :
       {"/v1/embeddings", "/embeddings", "/v1/audio/speech", "/v1/messages/batches"})
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
