// The fields of POST /v1/chat/completions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/coordinator/api/api_parse.h"
#include "tokenizer/chat_template/chat_template.h"

namespace coppice::coordinator {
namespace {

using api_text::Bad;
using api_text::Parsed;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kTemplate[] =
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('system comes first') }}{% endif %}"
    "<{{ m.role }}{{ ' ' ~ m.name if m.name }}>{{ m.reasoning_content }}{{ m.content }}{{ "
    "eos_token }}{% endfor %}"
    "{{ documents | tojson if documents }}{{ colour }}{{ reasoning_effort }}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

const tokenizer::ChatPrompt& Chat() {
  static const tokenizer::ChatPrompt chat(*tokenizer::ChatTemplate::Parse(kTemplate), "<s>", "</s>",
                                          &api_text::Tokens());
  return chat;
}

Parsed ParseChat(const std::string& body, bool with_template = true, bool strict = false) {
  ApiContext context = api_text::Context(strict);
  context.chat = with_template ? &Chat() : nullptr;
  return ParseChatCompletion(body, "", context, /*now_unix=*/0);
}

// A request of these fields and one message.
Parsed ParseWith(const std::string& fields) {
  return ParseChat(absl::StrCat(R"({"messages": [{"role": "user", "content": "hi"}])",
                                fields.empty() ? "" : ", ", fields, "}"));
}

std::string Shown(const GenerateRequest& request) {
  return api_text::Tokens().Decode(request.prompts.at(0), /*skip_special=*/false);
}

// The prompt of these messages.
std::string PromptOf(const std::string& messages, const std::string& fields = "") {
  const Parsed parsed = ParseChat(absl::StrCat("{\"messages\": ", messages, fields, "}"));
  if (const ApiError* error = std::get_if<ApiError>(&parsed)) return error->message;
  return Shown(std::get<GenerateRequest>(parsed));
}

TEST(ChatFields, MessagesBecomeThePromptOfTheTemplate) {
  EXPECT_EQ(PromptOf(R"([{"role": "user", "content": "hi"}])"), "<user>hi</s><assistant>");
  EXPECT_EQ(PromptOf(R"([{"role": "developer", "content": "a"}, {"role": "user", "content": "b"},
                         {"role": "assistant", "content": "c"}, {"role": "user", "name": "N", "content": "d"}])"),
            "<system>a</s><user>b</s><assistant>c</s><user N>d</s><assistant>");
  EXPECT_EQ(
      PromptOf(
          R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])"),
      "<user>a\nb</s><assistant>");
  EXPECT_EQ(
      PromptOf(R"([{"role": "user", "content": "hi"}])", R"(, "add_generation_prompt": false)"),
      "<user>hi</s>");
  EXPECT_EQ(PromptOf(R"([{"role": "user", "content": "hi"}])", R"(, "add_special_tokens": true)"),
            "<s><user>hi</s><assistant>");
  EXPECT_EQ(
      PromptOf(R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "so "}])",
               R"(, "continue_final_message": true)"),
      "<user>q</s><assistant>so ");
}

TEST(ChatFields, SpecialTokensOfAMessageStayText) {
  const Parsed parsed = ParseChat(R"({"messages": [{"role": "user", "content": "a</s>b<s>"}]})");
  const std::vector<TokenId>& ids = std::get<GenerateRequest>(parsed).prompts[0];
  EXPECT_EQ(std::count(ids.begin(), ids.end(), ByteTokenizer::kEos), 1);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), ByteTokenizer::kBos), 0);
  EXPECT_EQ(Shown(std::get<GenerateRequest>(parsed)), "<user>a</s>b<s></s><assistant>");
}

TEST(ChatFields, DecodingFieldsAreThoseOfCompletions) {
  const Parsed parsed = ParseWith(
      R"("n": 3, "use_beam_search": true, "max_completion_tokens": 7, "seed": 4, "stream": true,
         "stream_options": {"include_usage": true}, "logit_bias": {"5": 2}, "stop_token_ids": [3],
         "speculative": {"draft_width": 3})");
  ASSERT_TRUE(std::holds_alternative<GenerateRequest>(parsed)) << Bad(parsed).message;
  const GenerateRequest& request = std::get<GenerateRequest>(parsed);
  EXPECT_EQ(request.form, AnswerForm::kChat);
  EXPECT_EQ(request.n, 3);
  EXPECT_EQ(request.params.beam_width, 3);
  EXPECT_EQ(request.params.max_tokens, 7);
  EXPECT_EQ(request.params.seed, 4u);
  EXPECT_TRUE(request.stream && request.include_usage);
  EXPECT_EQ(request.params.sampling.logit_bias.size(), 1u);
  EXPECT_EQ(request.own_stop_ids, std::vector<TokenId>{3});
}

TEST(ChatFields, TurnsEndAtTheTokenizersEndAsWell) {
  Parsed parsed = ParseWith("");
  GenerateRequest& request = std::get<GenerateRequest>(parsed);
  ModelLimits model;
  model.max_model_len = 512;
  model.vocab_size = 258;
  model.eos_ids = {9};
  ASSERT_FALSE(FitToModel(model, {}, &request).has_value());
  EXPECT_EQ(request.eos_ids, (std::vector<TokenId>{9, ByteTokenizer::kEos}));
  EXPECT_EQ(request.params.stop_ids, (std::vector<TokenId>{9, ByteTokenizer::kEos}));
}

TEST(ChatFields, Logprobs) {
  EXPECT_EQ(std::get<GenerateRequest>(ParseWith(R"("logprobs": true)")).logprobs, 0);
  EXPECT_EQ(std::get<GenerateRequest>(ParseWith(R"("logprobs": true, "top_logprobs": 5)")).logprobs,
            5);
  EXPECT_FALSE(std::get<GenerateRequest>(ParseWith(R"("logprobs": false)")).logprobs.has_value());
}

TEST(ChatFields, BadFieldsAreNamed) {
  const struct {
    const char* fields;
    const char* code;
    const char* param;
  } cases[] = {
      {R"("temperature": 5)", "invalid_value", "temperature"},
      {R"("tool_choice": "required")", "unsupported_combination", "tool_choice"},
      {R"("functions": [1])", "unsupported_field", "functions"},
      {R"("response_format": {"type": "xml"})", "invalid_value", "response_format.type"},
      {R"("logprobs": 2)", "invalid_type", "logprobs"},
      {R"("top_logprobs": 2)", "unsupported_combination", "top_logprobs"},
      {R"("logprobs": false, "top_logprobs": 2)", "unsupported_combination", "top_logprobs"},
      {R"("logprobs": true, "top_logprobs": 21)", "invalid_value", "top_logprobs"},
      {R"("logprobs": true, "top_logprobs": -1)", "invalid_value", "top_logprobs"},
      {R"("echo": true)", "unsupported_field", "echo"},
      {R"("max_tokens": 0)", "unsupported_combination", "max_tokens"},
      {R"("modalities": ["text", "audio"])", "unsupported_field", "modalities"},
      {R"("chat_template": "x")", "unsupported_field", "chat_template"},
      {R"("chat_template_kwargs": [1])", "invalid_type", "chat_template_kwargs"},
      {R"("chat_template_kwargs": {"messages": []})", "invalid_value", "chat_template_kwargs"},
      {R"("documents": ["a"])", "invalid_type", "documents"},
      {R"("reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "high"})",
       "conflicting_fields", "reasoning_effort"},
      {R"("presence_penalty": 3)", "invalid_value", "presence_penalty"},
      {R"("add_generation_prompt": 1)", "invalid_type", "add_generation_prompt"},
      {R"("continue_final_message": true)", "unsupported_combination", "continue_final_message"},
      {R"("continue_final_message": true, "add_generation_prompt": true)",
       "unsupported_combination", "continue_final_message"},
  };
  for (const auto& refusal : cases) {
    const ApiError error = Bad(ParseWith(refusal.fields));
    EXPECT_EQ(error.status, 400) << refusal.fields;
    EXPECT_EQ(error.code, refusal.code) << refusal.fields << ": " << error.message;
    EXPECT_EQ(error.param, refusal.param) << refusal.fields;
  }
  EXPECT_EQ(
      Bad(ParseWith(
              R"("tools": [], "tool_choice": "none", "logprobs": false, "modalities": ["text"],
      "response_format": {"type": "text"}, "functions": null, "parallel_tool_calls": true, "store": false,
      "user": "u", "reasoning_effort": null, "top_logprobs": 0)"))
          .code,
      "accepted");
}

TEST(ChatFields, BadMessagesAreNamed) {
  const struct {
    const char* messages;
    const char* code;
    const char* param;
  } cases[] = {
      {"null", "missing_field", "messages"},
      {"[]", "invalid_value", "messages"},
      {"\"hi\"", "invalid_type", "messages"},
      {"[1]", "invalid_type", "messages[0]"},
      {R"([{"content": "a"}])", "missing_field", "messages[0].role"},
      {R"([{"role": "critic", "content": "a"}])", "invalid_value", "messages[0].role"},
      {R"([{"role": 1, "content": "a"}])", "invalid_type", "messages[0].role"},
      {R"([{"role": "user", "content": "a"}, {"role": "user"}])", "missing_field",
       "messages[1].content"},
      {R"([{"role": "user", "content": {}}])", "invalid_type", "messages[0].content"},
      {R"([{"role": "user", "content": [3]}])", "invalid_type", "messages[0].content[0]"},
      {R"([{"role": "user", "content": 3}])", "invalid_type", "messages[0].content"},
      {R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}]}])",
       "unsupported_field", "messages[0].content[1].type"},
      {R"([{"role": "user", "content": [{"type": "text"}]}])", "missing_field",
       "messages[0].content[0].text"},
      {R"([{"role": "user", "content": [{"type": "text", "text": 1}]}])", "invalid_type",
       "messages[0].content[0].text"},
      {R"([{"role": "assistant", "content": "a", "tool_calls": [1]}])", "invalid_type",
       "messages[0].tool_calls[0]"},
      {R"([{"role": "user", "content": "a"}, {"role": "system", "content": "a"}])", "invalid_value",
       "messages"},
  };
  for (const auto& refusal : cases) {
    const ApiError error = Bad(ParseChat(absl::StrCat("{\"messages\": ", refusal.messages, "}")));
    EXPECT_EQ(error.status, 400) << refusal.messages;
    EXPECT_EQ(error.code, refusal.code) << refusal.messages << ": " << error.message;
    EXPECT_EQ(error.param, refusal.param) << refusal.messages;
    EXPECT_THAT(error.message, Not(HasSubstr("\xff")));
  }
  json many;
  for (int i = 0; i < 5000; ++i) many["messages"].push_back({{"role", "user"}, {"content", ""}});
  EXPECT_EQ(Bad(ParseChat(many.dump())).param, "messages");
}

// What clients leave in the messages that they send back.
TEST(ChatFields, HintsInMessagesAreIgnoredAndNamedOnce) {
  const std::string body = R"({"store": true, "messages": [
      {"role": "user", "colour": 1, "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, "b"]},
      {"role": "assistant", "content": "c", "refusal": null, "annotations": [{"type": "x"}], "audio": null,
       "function_call": null, "tool_calls": null, "reasoning_content": "r"},
      {"role": "assistant", "content": "d", "annotations": [1], "tool_calls": []},
      {"role": "assistant", "content": null}, {"role": "user", "content": []}]})";
  const Parsed parsed = ParseChat(body);
  ASSERT_TRUE(std::holds_alternative<GenerateRequest>(parsed)) << Bad(parsed).message;
  const GenerateRequest& request = std::get<GenerateRequest>(parsed);
  EXPECT_THAT(request.ignored.names(),
              ::testing::ElementsAre("store", "messages[].content[].cache_control",
                                     "messages[].colour", "messages[].annotations"));
  EXPECT_EQ(Shown(request),
            "<user>a\nb</s><assistant>rc</s><assistant>d</s><assistant></s><user></s><assistant>");
  EXPECT_EQ(Bad(ParseChat(body, true, /*strict=*/true)).param, "store");
  EXPECT_EQ(Bad(ParseChat(R"({"messages": [{"role": "user", "content": "a", "colour": 1}]})", true,
                          /*strict=*/true))
                .param,
            "messages[0].colour");
}

TEST(ChatFields, TheTemplateSeesItsVariablesAndDocumentsInTheirOrder) {
  EXPECT_EQ(
      PromptOf(R"([{"role": "user", "content": "hi"}])",
               R"(, "chat_template_kwargs": {"colour": "red"}, "documents": [{"b": 1, "a": 2}])"),
      R"(<user>hi</s>[{"b": 1, "a": 2}]red<assistant>)");
}

TEST(ChatFields, WhatTheTemplateDoesNotReadIsNamedOrRefused) {
  const tokenizer::ChatPrompt chat(*tokenizer::ChatTemplate::Parse("{{ messages[0].content }}"), "",
                                   "", &api_text::Tokens());
  ApiContext context = api_text::Context();
  context.chat = &chat;
  const auto parse = [&](const char* fields) {
    return ParseChatCompletion(
        absl::StrCat(R"({"messages": [{"role": "user", "content": "a"}], )", fields, "}"), "",
        context, /*now_unix=*/0);
  };
  const Parsed parsed =
      parse(R"("reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": false})");
  EXPECT_THAT(std::get<GenerateRequest>(parsed).ignored.names(),
              ::testing::ElementsAre("chat_template_kwargs.enable_thinking", "reasoning_effort"));
  EXPECT_EQ(Bad(parse(R"("documents": [{"text": "t"}])")).code, "unsupported_field");
  context.limits.refuse_unknown_fields = true;
  EXPECT_EQ(Bad(parse(R"("reasoning_effort": "low")")).param, "reasoning_effort");
}

// Their order is kept, which takes the square of the members.
TEST(ChatFields, ObjectsForTheTemplateHaveAtMost256Members) {
  json variables = json::object();
  for (int i = 0; i < 257; ++i) variables["a" + std::to_string(i)] = i;
  const auto param = [&] {
    json inner;
    inner["colour"]["x"] = json::array({variables});
    return Bad(ParseWith(absl::StrCat("\"chat_template_kwargs\": ", inner.dump()))).param;
  };
  EXPECT_EQ(param(), "chat_template_kwargs");
  variables.erase("a0");
  EXPECT_EQ(param(), "");
}

TEST(ChatFields, TheTemplatesOwnRefusalIsShown) {
  EXPECT_EQ(PromptOf(R"([{"role": "user", "content": "a"}, {"role": "system", "content": "a"}])"),
            "messages are refused by the chat template: system comes first");
}

TEST(ChatFields, WithoutATemplateTheErrorSaysHowToGiveOne) {
  const ApiError error =
      Bad(ParseChat(R"({"messages": [{"role": "user", "content": "a"}]})", false));
  EXPECT_EQ(error.status, 400);
  EXPECT_EQ(error.code, "no_chat_template");
  EXPECT_EQ(error.param, "messages");
  EXPECT_THAT(error.message, HasSubstr("--chat_template"));
}

}  // namespace
}  // namespace coppice::coordinator
