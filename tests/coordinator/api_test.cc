// Every field of POST /v1/completions: range, type, null, aliases, combinations
// (docs/api.md 2, 2.1).
#include "coordinator/api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "decoding/method.h"
#include "tests/coordinator/byte_tokenizer.h"

namespace coppice {
namespace {

using nlohmann::json;
using testing::ByteTokenizer;
using ::testing::HasSubstr;

const ByteTokenizer& Tokens() {
  static const ByteTokenizer tokenizer;
  return tokenizer;
}

ApiContext Context() {
  ApiContext context;
  context.limits.max_beam_width = 8;
  context.model_name = "demo";
  context.tokenizer = &Tokens();
  return context;
}

using Parsed = std::variant<GenerateRequest, ApiError>;

Parsed ParseText(const std::string& body, const std::string& timeout = "") {
  const ApiContext context = Context();
  return ParseCompletion(body, timeout, context);
}

// The fields, with a prompt.
Parsed Parse(const std::string& fields) {
  return ParseText(absl::StrCat(R"({"prompt": "hi")", fields.empty() ? "" : ", ", fields, "}"));
}

GenerateRequest Good(const std::string& fields) {
  const Parsed parsed = Parse(fields);
  if (const ApiError* error = std::get_if<ApiError>(&parsed)) {
    ADD_FAILURE() << fields << ": " << error->message;
    return {};
  }
  return std::get<GenerateRequest>(parsed);
}

ApiError Bad(const Parsed& parsed) {
  const ApiError* error = std::get_if<ApiError>(&parsed);
  return error == nullptr ? ApiError{200, "accepted", "", ""} : *error;
}

struct Refusal {
  const char* fields;
  const char* code;
  const char* param;
};

void ExpectRefused(const std::vector<Refusal>& cases) {
  for (const Refusal& refusal : cases) {
    const ApiError error = Bad(Parse(refusal.fields));
    EXPECT_EQ(error.code, refusal.code) << refusal.fields << ": " << error.message;
    EXPECT_EQ(error.param, refusal.param) << refusal.fields;
    EXPECT_THAT(error.message, HasSubstr(refusal.param)) << refusal.fields;
  }
}

TEST(Api, DefaultsAreOneMultinomialSample) {
  const GenerateRequest request = Good("");
  EXPECT_EQ(request.params.kind, DecodingKind::kMultinomial);
  EXPECT_EQ(request.n, 1);
  EXPECT_EQ(request.samples, 1);
  EXPECT_EQ(request.params.max_tokens, 256);
  EXPECT_EQ(MethodName(request.params), "pf_gumbel");
  EXPECT_EQ(request.params.draft_support, 64);
  EXPECT_EQ(request.timeout_s, 600);
  EXPECT_EQ(request.prompts[0], (std::vector<TokenId>{ByteTokenizer::kBos, 'h', 'i'}));
  EXPECT_LT(request.params.seed, uint64_t{1} << 53);
  EXPECT_NE(request.params.seed, Good("").params.seed);
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
      {R"("max_tokens": -1)", "invalid_value", "max_tokens"},
      {R"("max_tokens": 0)", "invalid_value", "max_tokens"},
      {R"("max_new_tokens": 0)", "invalid_value", "max_new_tokens"},
      {R"("min_tokens": 9, "max_tokens": 8)", "invalid_value", "min_tokens"},
      {R"("beam_width": 9)", "invalid_value", "beam_width"},
      {R"("num_beams": 0)", "invalid_value", "num_beams"},
      {R"("use_beam_search": true, "n": 9)", "invalid_value", "n"},
      {R"("seed": 9223372036854775808)", "invalid_value", "seed"},
      {R"("timeout": 0)", "invalid_value", "timeout"},
      {R"("timeout": 3601)", "invalid_value", "timeout"},
      {R"("length_penalty": 10.5)", "invalid_value", "length_penalty"},
      {R"("stop": "")", "invalid_value", "stop"},
      {R"("stop": [])", "invalid_value", "stop"},
      {R"("stop_token_ids": [258])", "invalid_value", "stop_token_ids"},
      {R"("logit_bias": {"5": 101})", "invalid_value", "logit_bias"},
      {R"("logit_bias": {"x": 1})", "invalid_value", "logit_bias"},
      {R"("logit_bias": {"258": 1})", "invalid_value", "logit_bias"},
      {R"("decoding": "best")", "invalid_value", "decoding"},
      {R"("warp_mode": "col")", "invalid_value", "warp_mode"},
      {R"("early_stopping": "always")", "invalid_value", "early_stopping"},
      {R"("speculative": "maybe")", "invalid_value", "speculative"},
      {R"("speculative": {"method": "magic"})", "invalid_value", "speculative.method"},
      {R"("speculative": {"draft_width": 0})", "invalid_value", "speculative.draft_width"},
      {R"("speculative": {"draft_width": 65})", "invalid_value", "speculative.draft_width"},
      {R"("speculative": {"draft_depth": 17})", "invalid_value", "speculative.draft_depth"},
      {R"("speculative": {"draft_depth": "deep"})", "invalid_value", "speculative.draft_depth"},
      {R"("speculative": {"draft_support": 1025})", "invalid_value", "speculative.draft_support"},
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
  EXPECT_EQ(Good(absl::StrCat(R"("stop": )", stops.dump())).stop.size(), 16);
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
      {"warp_mode", "s"},
      {"seed", "n"},
      {"stop", "sa"},
      {"include_stop_str_in_output", "b"},
      {"stop_token_ids", "a"},
      {"ignore_eos", "b"},
      {"min_tokens", "n"},
      {"logit_bias", "o"},
      {"stream", "b"},
      {"return_token_ids", "b"},
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

TEST(Api, NullIsAbsent) {
  const GenerateRequest plain = Good(R"("seed": 3)");
  for (const char* name : {"model",
                           "max_tokens",
                           "max_completion_tokens",
                           "n",
                           "num_return_sequences",
                           "best_of",
                           "decoding",
                           "use_beam_search",
                           "do_sample",
                           "beam_width",
                           "num_beams",
                           "length_penalty",
                           "early_stopping",
                           "refill",
                           "temperature",
                           "top_k",
                           "top_p",
                           "min_p",
                           "warp_mode",
                           "stop",
                           "include_stop_str_in_output",
                           "stop_token_ids",
                           "ignore_eos",
                           "min_tokens",
                           "logprobs",
                           "echo",
                           "logit_bias",
                           "stream",
                           "stream_options",
                           "return_token_ids",
                           "skip_special_tokens",
                           "add_special_tokens",
                           "timeout",
                           "speculative",
                           "user",
                           "suffix",
                           "tools"}) {
    const GenerateRequest request = Good(absl::StrCat(R"("seed": 3, ")", name, "\": null"));
    EXPECT_EQ(request.params.max_tokens, plain.params.max_tokens) << name;
    EXPECT_EQ(request.params.method, plain.params.method) << name;
    EXPECT_EQ(request.prompts, plain.prompts) << name;
    EXPECT_EQ(request.stream, plain.stream) << name;
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

TEST(Api, UnknownUnsupportedAndNeutral) {
  ExpectRefused({
      {R"("foo": 1)", "unknown_field", "foo"},
      {R"("speculative": {"foo": 1})", "unknown_field", "speculative.foo"},
      {R"("stream": true, "stream_options": {"foo": 1})", "unknown_field", "stream_options.foo"},
      {R"("presence_penalty": 0.5)", "unsupported_field", "presence_penalty"},
      {R"("frequency_penalty": 1)", "unsupported_field", "frequency_penalty"},
      {R"("repetition_penalty": 1.1)", "unsupported_field", "repetition_penalty"},
      {R"("logprobs": 3)", "unsupported_field", "logprobs"},
      {R"("echo": true)", "unsupported_field", "echo"},
      {R"("suffix": "x")", "unsupported_field", "suffix"},
      {R"("tools": [1])", "unsupported_field", "tools"},
      {R"("response_format": {"type": "json_object"})", "unsupported_field", "response_format"},
      {R"("priority": 1)", "unsupported_field", "priority"},
      {R"("num_beam_groups": 2)", "unsupported_field", "num_beam_groups"},
      {R"("store": true)", "unsupported_field", "store"},
      {R"("service_tier": "gold")", "unsupported_field", "service_tier"},
      {R"("stream": true, "stream_options": {"continuous_usage_stats": true})", "unsupported_field",
       "stream_options.continuous_usage_stats"},
  });
  Good(
      R"("presence_penalty": 0, "frequency_penalty": 0.0, "repetition_penalty": 1.0, "echo": false, "tools": [],
          "response_format": {"type": "text"}, "priority": 0, "num_beam_groups": 1, "diversity_penalty": 0,
          "spaces_between_special_tokens": true, "store": false, "service_tier": "auto", "user": "u", "metadata": {"a": 1},
          "safety_identifier": "s", "parallel_tool_calls": true)");
}

TEST(Api, UnknownFieldsCanBeIgnored) {
  ApiContext context = Context();
  context.limits.ignore_unknown_fields = true;
  const Parsed parsed =
      ParseCompletion(R"({"prompt": "a", "foo": 1, "speculative": {"bar": 1}})", "", context);
  ASSERT_TRUE(std::holds_alternative<GenerateRequest>(parsed));
  EXPECT_THAT(std::get<GenerateRequest>(parsed).ignored_fields,
              ::testing::UnorderedElementsAre("foo", "speculative.bar"));
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

TEST(Api, DerivesTheDecoding) {
  struct Case {
    const char* fields;
    DecodingKind kind;
    int width, n;
  };
  for (const Case& c : std::vector<Case>{
           {R"("use_beam_search": true)", DecodingKind::kBeamSearch, 4, 1},
           {R"("use_beam_search": true, "n": 3)", DecodingKind::kBeamSearch, 3, 3},
           {R"("use_beam_search": true, "best_of": 3, "n": 3)", DecodingKind::kBeamSearch, 3, 3},
           {R"("use_beam_search": true, "best_of": 5, "n": 2)", DecodingKind::kBeamSearch, 5, 2},
           {R"("num_beams": 3, "n": 3)", DecodingKind::kBeamSearch, 3, 3},
           {R"("num_beams": 3, "do_sample": true)", DecodingKind::kBeamSampling, 3, 1},
           {R"("num_beams": 1)", DecodingKind::kMultinomial, 1, 1},
           {R"("decoding": "beam_search", "beam_width": 1)", DecodingKind::kBeamSearch, 1, 1},
           {R"("decoding": "beam_sampling")", DecodingKind::kBeamSampling, 4, 1},
           {R"("decoding": "beam_sampling_without_replacement", "n": 2)",
            DecodingKind::kBeamSamplingWithoutReplacement, 2, 2},
           {R"("decoding": "multinomial", "n": 2)", DecodingKind::kMultinomial, 1, 2},
       }) {
    const GenerateRequest request = Good(c.fields);
    EXPECT_EQ(request.params.kind, c.kind) << c.fields;
    EXPECT_EQ(request.params.beam_width, c.width) << c.fields;
    EXPECT_EQ(request.n, c.n) << c.fields;
    if (c.kind != DecodingKind::kMultinomial) {
      EXPECT_EQ(request.params.num_hypotheses, c.n) << c.fields;
    }
  }
  EXPECT_EQ(Good(R"("do_sample": false)").params.warp.temperature, 0);
  EXPECT_EQ(Good(R"("n": 2, "best_of": 4)").samples, 4);
}

TEST(Api, UnsupportedCombinationsNameBothFields) {
  struct Case {
    const char* fields;
    const char* param;
    const char* other;
  };
  for (
      const Case& c : std::vector<Case>{
          {R"("decoding": "beam_search", "temperature": 0.7)", "temperature", "beam_search"},
          {R"("decoding": "beam_search", "top_k": 5)", "top_k", "beam_search"},
          {R"("decoding": "beam_search", "top_p": 0.5)", "top_p", "beam_search"},
          {R"("decoding": "beam_search", "min_p": 0.5)", "min_p", "beam_search"},
          {R"("decoding": "beam_search", "warp_mode": "row_raw")", "warp_mode", "beam_search"},
          {R"("decoding": "beam_search", "n": 5, "beam_width": 4)", "n", "beam_width"},
          {R"("decoding": "beam_search", "refill": false)", "refill", "beam_search"},
          {R"("decoding": "beam_search", "stop": "x")", "stop", "beam_search"},
          {R"("decoding": "beam_search", "do_sample": true)", "do_sample", "beam_search"},
          {R"("decoding": "beam_sampling", "temperature": 0)", "temperature", "beam_sampling"},
          {R"("decoding": "beam_sampling", "do_sample": false)", "do_sample", "beam_sampling"},
          {R"("decoding": "beam_sampling", "use_beam_search": true)", "use_beam_search",
           "beam_sampling"},
          {R"("decoding": "multinomial", "use_beam_search": true)", "use_beam_search",
           "multinomial"},
          {R"("decoding": "multinomial", "beam_width": 2)", "beam_width", "multinomial"},
          {R"("length_penalty": 2)", "length_penalty", "multinomial"},
          {R"("early_stopping": false)", "early_stopping", "multinomial"},
          {R"("early_stopping": "never")", "early_stopping", "multinomial"},
          {R"("refill": false)", "refill", "multinomial"},
          {R"("best_of": 2, "stream": true)", "best_of", "stream"},
          {R"("best_of": 2, "stop": "x")", "stop", "best_of"},
          {R"("do_sample": true, "temperature": 0)", "do_sample", "temperature"},
          {R"("stream_options": {"include_usage": true})", "stream_options", "stream"},
          {R"("include_stop_str_in_output": true)", "include_stop_str_in_output", "stop"},
          {R"("decoding": "beam_search", "speculative": {"method": "hg_wor"})",
           "speculative.method", "beam_search"},
          {R"("speculative": {"method": "certified"})", "speculative.method", "multinomial"},
          {R"("decoding": "beam_sampling", "speculative": {"method": "dsbd", "width_threshold": 0.5})",
           "speculative.width_threshold", "allow_lossy"},
          {R"("warp_mode": "joint")", "warp_mode", "multinomial"},
          {R"("decoding": "beam_sampling", "speculative": {"width_threshold": 0.5, "allow_lossy": true})",
           "speculative.width_threshold", "pf_gumbel"},
          {R"("decoding": "beam_sampling", "speculative": {"method": "dsbd", "min_width": 2})",
           "speculative.min_width", "width_threshold"},
          {R"("beam_duplicates": "once")", "beam_duplicates", "multinomial"},
          {R"("speculative": {"draft_tree": "2-2"})", "speculative.draft_tree", "pf_gumbel"},
          {R"("speculative": {"draft_beams": 2})", "speculative.draft_beams", "pf_gumbel"},
          {R"("speculative": {"mjsd_threshold": 0.2})", "speculative.mjsd_threshold", "pf_gumbel"},
          {R"("speculative": {"fallback_threshold": 0.2})", "speculative.fallback_threshold",
           "pf_gumbel"},
          {R"("speculative": {"rollback_threshold": 3})", "speculative.rollback_threshold",
           "pf_gumbel"},
          {R"("speculative": {"joint_tokens": 2})", "speculative.joint_tokens", "pf_gumbel"},
      }) {
    const ApiError error = Bad(Parse(c.fields));
    EXPECT_EQ(error.code, "unsupported_combination") << c.fields << ": " << error.message;
    EXPECT_EQ(error.param, c.param) << c.fields;
    EXPECT_THAT(error.message, HasSubstr(c.param)) << c.fields;
    EXPECT_THAT(error.message, HasSubstr(c.other)) << c.fields;
  }
}

TEST(Api, Speculative) {
  EXPECT_EQ(MethodName(Good(R"("speculative": false)").params), "none");
  EXPECT_EQ(MethodName(Good(R"("speculative": true)").params), "pf_gumbel");
  EXPECT_EQ(MethodName(Good(R"("speculative": "auto")").params), "pf_gumbel");
  EXPECT_EQ(MethodName(Good(R"("speculative": {"method": "auto"})").params), "pf_gumbel");
  EXPECT_EQ(MethodName(Good(R"("decoding": "beam_search", "speculative": false)").params), "none");
  EXPECT_EQ(MethodName(Good(R"("decoding": "beam_search")").params), "certified");
  EXPECT_EQ(MethodName(Good(R"("decoding": "beam_sampling", "warp_mode": "joint")").params),
            "gumbel_slots");
  const GenerateRequest request = Good(
      R"("decoding": "beam_sampling", "speculative": {"method": "dsbd", "draft_width": 6, "draft_depth": "auto",
         "draft_support": 8, "width_threshold": 0.5, "min_width": 2, "allow_lossy": true})");
  EXPECT_EQ(MethodName(request.params), "dsbd");
  EXPECT_EQ(request.params.draft_width, 6);
  EXPECT_EQ(request.params.draft_depth, 0);
  EXPECT_EQ(request.params.draft_support, 8);
  EXPECT_EQ(request.params.width_threshold, 0.5);
  EXPECT_EQ(request.params.min_width, 2);
}

// Whatever rows the table has: each is served as it says, and nothing else of it.
TEST(Api, TheMethodTableDecides) {
  const auto body = [](const MethodRow& row, DecodingKind kind, const std::string& fields,
                       bool allow_lossy = true) {
    return absl::StrCat(R"("decoding": ")", DecodingKindName(kind),
                        kind == DecodingKind::kMultinomial ? R"(", "temperature": 0)" : "\"",
                        R"(, "speculative": {"method": ")", row.name, "\"", fields,
                        allow_lossy ? R"(, "allow_lossy": true})" : "}");
  };
  const auto refused = [](const std::string& fields, const std::string& param) {
    const ApiError error = Bad(Parse(fields));
    EXPECT_EQ(error.code, "unsupported_combination") << fields << ": " << error.message;
    EXPECT_EQ(error.param, param) << fields << ": " << error.message;
  };
  for (const MethodRow& row : Methods()) {
    const DecodingKind served = row.serves[0];
    for (const DecodingKind kind :
         {DecodingKind::kMultinomial, DecodingKind::kBeamSampling,
          DecodingKind::kBeamSamplingWithoutReplacement, DecodingKind::kBeamSearch}) {
      if (std::find(row.serves.begin(), row.serves.end(), kind) == row.serves.end()) {
        refused(body(row, kind, ""), "speculative.method");
      } else {
        EXPECT_EQ(Good(body(row, kind, "")).params.method, &row);
      }
    }
    if (!row.lossless) refused(body(row, served, "", false), "speculative.method");
    if (row.form == DraftForm::kPath) {
      Good(body(row, served, R"(, "draft_width": 1, "draft_depth": 3)"));
      refused(body(row, served, R"(, "draft_width": 2)"), "speculative.draft_width");
    }
    if (row.form == DraftForm::kNone) {
      for (const char* name : {"draft_width", "draft_depth", "draft_support"}) {
        refused(body(row, served, absl::StrCat(", \"", name, "\": 3")),
                absl::StrCat("speculative.", name));
      }
    }
    if (row.reads("draft_tree")) {
      EXPECT_EQ(Good(body(row, served, R"(, "draft_tree": "2-1")")).params.draft_tree, "2-1");
      refused(body(row, served, R"(, "draft_tree": "2-1", "draft_width": 2)"),
              "speculative.draft_width");
      refused(body(row, served, R"(, "draft_tree": "2-1", "draft_depth": 2)"),
              "speculative.draft_depth");
    }
    if (row.most_children > 0) {
      const int more = row.most_children + 1;
      refused(body(row, served, absl::StrCat(R"(, "draft_width": )", more)),
              "speculative.draft_width");
      refused(body(row, served, absl::StrCat(R"(, "draft_tree": "1-)", more, "\"")),
              "speculative.draft_tree");
    }
    for (const char* name : {"draft_beams", "rollback_threshold", "joint_tokens"}) {
      const std::string field = absl::StrCat(", \"", name, "\": 3");
      if (row.reads(name)) {
        Good(body(row, served, field));
      } else {
        refused(body(row, served, field), absl::StrCat("speculative.", name));
      }
    }
    // A field at its default is accepted everywhere.
    Good(body(row, served, R"(, "draft_beams": 4, "mjsd_threshold": 0.1, "fallback_threshold": 0.5,
                              "rollback_threshold": 2, "joint_tokens": 4, "draft_tree": null)"));
  }
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

ModelLimits Limits() {
  ModelLimits limits;
  limits.max_model_len = 100;
  limits.vocab_size = 258;
  limits.eos_ids = {256};
  limits.kv_blocks_total = 1000;
  return limits;
}

TEST(FitToModel, DefaultsToWhatTheContextLeaves) {
  GenerateRequest request = Good("");
  ASSERT_FALSE(FitToModel(Limits(), ApiLimits(), &request));
  EXPECT_EQ(request.params.max_tokens, 97);
  EXPECT_EQ(request.params.stop_ids, std::vector<TokenId>{256});
}

TEST(FitToModel, RefusesWhatExceedsTheContext) {
  GenerateRequest request = Good(R"("max_tokens": 98)");
  EXPECT_EQ(FitToModel(Limits(), ApiLimits(), &request)->code, "context_length_exceeded");
  GenerateRequest fits = Good(R"("max_tokens": 97)");
  EXPECT_FALSE(FitToModel(Limits(), ApiLimits(), &fits));
  GenerateRequest full = std::get<GenerateRequest>(
      ParseText(absl::StrCat("{\"prompt\": \"", std::string(99, 'a'), "\"}")));
  EXPECT_EQ(FitToModel(Limits(), ApiLimits(), &full)->param, "prompt");
}

TEST(FitToModel, RefusesWhatNoReplicaCanHold) {
  ModelLimits limits = Limits();
  limits.kv_blocks_total = 10;
  GenerateRequest request = Good(R"("max_tokens": 97)");
  const std::optional<ApiError> error = FitToModel(limits, ApiLimits(), &request);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, "kv_capacity_exceeded");
  EXPECT_THAT(error->message, HasSubstr("15 KV blocks"));
  EXPECT_THAT(error->message, HasSubstr("has 10"));
}

// 8 beams and 2^24 tokens: 2^30 values of noise a layer where every output is a draw over all.
TEST(FitToModel, RefusesDecisionsThatWouldHoldUpEveryOtherSequence) {
  ModelLimits limits = Limits();
  limits.vocab_size = 1 << 24;
  const auto fit = [&](const std::string& fields) {
    GenerateRequest request = Good(
        absl::StrCat(R"("max_tokens": 8, "decoding": "beam_sampling", "beam_width": 8)", fields));
    return FitToModel(limits, ApiLimits(), &request);
  };
  for (const char* wide : {R"(, "speculative": {"method": "dsbd"})", R"(, "warp_mode": "joint")",
                           R"(, "warp_mode": "rowcut", "speculative": false)"}) {
    const std::optional<ApiError> error = fit(wide);
    ASSERT_TRUE(error) << wide;
    EXPECT_EQ(error->code, "unsupported_combination");
    EXPECT_EQ(error->param, "beam_width");
    EXPECT_THAT(error->message, HasSubstr("at most 536870912"));
    EXPECT_THAT(error->message, HasSubstr("pf_gumbel"));
  }
  EXPECT_FALSE(fit(""));
  EXPECT_FALSE(fit(R"(, "top_k": 50, "speculative": {"method": "dsbd"})"));
  limits.vocab_size = 1 << 23;
  EXPECT_FALSE(fit(R"(, "speculative": {"method": "dsbd"})"));
}

TEST(FitToModel, BeamsMayNeedAChainEach) {
  const GenerateRequest plain = Good(R"("max_tokens": 32, "speculative": false)");
  EXPECT_EQ(KvBlocksBound(plain.params, 16, 16), 3 + 1 + 1 + 5);
  const GenerateRequest beams = Good(R"("max_tokens": 32, "num_beams": 4)");
  EXPECT_EQ(KvBlocksBound(beams.params, 16, 16), 3 + 4 * 2 + (8 * 6 + 8) / 16 + 1 + 4 + 5);
}

// A path of 16 layers has 16 nodes, other forms have 4 x 16, a tree has its own number; what drafts
// nothing keeps the target's own beams instead.
TEST(FitToModel, TheForestThatIsReservedHasTheFormOfTheMethod) {
  for (const MethodRow& row : Methods()) {
    if (row.serves != std::vector<DecodingKind>{DecodingKind::kMultinomial}) continue;
    DecodingParams params;
    params.method = &row;
    params.max_tokens = 32;
    const auto forest = [&] { return KvBlocksBound(params, 16, 16) - (3 + 1 + 5); };
    if (row.form == DraftForm::kNone) {
      params.draft_beams = 1;
      EXPECT_EQ(forest(), 1) << row.name;
      params.draft_beams = 4;
      params.joint_tokens = 3;  // a block for each branch, one for all rows, and 4 - 1 more to fill
      EXPECT_EQ(forest(), row.reads("draft_beams") ? 4 * 1 + 1 + 3 : 1) << row.name;
      continue;
    }
    const int width = row.form == DraftForm::kPath ? 1 : row.most_children > 0 ? 2 : 4;
    params.draft_depth = 16;
    EXPECT_EQ(forest(), width + 1) << row.name;
    if (!row.reads("draft_tree")) continue;
    params.draft_depth = 0;
    params.draft_tree = "2-2-2-2";  // 30 nodes
    EXPECT_EQ(forest(), 2) << row.name;
  }
}

TEST(FitToModel, StopIdsAreTheModelsAndTheRequests) {
  GenerateRequest both = Good(R"("stop_token_ids": [65, 256])");
  ASSERT_FALSE(FitToModel(Limits(), ApiLimits(), &both));
  EXPECT_EQ(both.params.stop_ids, (std::vector<TokenId>{65, 256}));
  GenerateRequest own = Good(R"("stop_token_ids": [65], "ignore_eos": true)");
  ASSERT_FALSE(FitToModel(Limits(), ApiLimits(), &own));
  EXPECT_EQ(own.params.stop_ids, std::vector<TokenId>{65});
  EXPECT_EQ(own.vocab_size, 258);
}

}  // namespace
}  // namespace coppice
