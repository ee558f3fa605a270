// POST /v1/messages as a chat completion: the body that each request becomes, and where its errors
// are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "coordinator/api/token_endpoints.h"
#include "coordinator/api/tokenizer_info.h"
#include "coordinator/api/translation.h"
#include "tests/coordinator/api/api_parse.h"

namespace coppice::coordinator::api_text {
namespace {

using Json = nlohmann::ordered_json;

const tokenizer::ChatPrompt& MessagesPrompt() {
  static const tokenizer::ChatPrompt prompt(
      *tokenizer::ChatTemplate::Parse("{% for m in messages %}[{{ m.role[0] }}:{{ m.content }}]"
                                      "{% endfor %}{{ enable_thinking }}"),
      "<s>", "</s>", &Tokens());
  return prompt;
}

ApiContext MessagesContext(bool strict = false) {
  ApiContext context = Context(strict);
  context.chat = &MessagesPrompt();
  return context;
}

Parsed ReadMessage(const std::string& body, bool strict = false) {
  return ParseMessage(body, "", MessagesContext(strict), 0);
}

TEST(MessagesFields, AreThoseOfAChat) {
  const struct {
    const char* body;
    const char* chat;
  } cases[] = {
      {R"({"max_tokens": 9, "system": "s", "messages": [{"role": "user", "content": "hi"}], "top_k": 3,
           "stop_sequences": ["x"], "decoding": "multinomial"})",
       R"({"decoding": "multinomial", "max_tokens": 9, "top_k": 3, "messages": [{"role": "system", "content": "s"},
           {"role": "user", "content": "hi"}], "stop": ["x"]})"},
      {R"({"system": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "b"}],
           "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]})",
       R"({"messages": [{"role": "system", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
           {"role": "user", "content": "hi"}]})"},
      {R"({"messages": [{"role": "user", "content": "q"},
           {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": ""},
            {"type": "text", "text": "ok"}, {"type": "tool_use", "id": "t1", "name": "f", "input": {"z": 1, "a": "é"}},
            {"type": "tool_use", "id": "t2", "name": "g", "input": {}}]},
           {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "one"},
            {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "two"}], "is_error": true},
            {"type": "text", "text": "go on"}]}]})",
       R"({"messages": [{"role": "user", "content": "q"},
           {"role": "assistant", "reasoning_content": "hm", "content": "ok", "tool_calls": [
            {"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{\"z\":1,\"a\":\"é\"}"}},
            {"id": "t2", "type": "function", "function": {"name": "g", "arguments": "{}"}}]},
           {"role": "tool", "tool_call_id": "t1", "content": "one"},
           {"role": "tool", "tool_call_id": "t2", "content": "two"},
           {"role": "user", "content": "go on"}]})"},
      // The text of the assistant at the end is continued.
      {R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "The"}]})",
       R"({"continue_final_message": true, "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "The"}]})"},
      {R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "The"}],
           "add_generation_prompt": true})",
       R"({"add_generation_prompt": true, "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "The"}]})"},
      {R"({"messages": [{"role": "user", "content": "q"}], "tools": [{"name": "f", "description": "d", "input_schema":
           {"type": "object", "properties": {"z": {}, "a": {}}}}], "tool_choice": {"type": "tool", "name": "f",
           "disable_parallel_tool_use": true}})",
       R"({"messages": [{"role": "user", "content": "q"}], "parallel_tool_calls": false,
           "tool_choice": {"type": "function", "function": {"name": "f"}},
           "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters":
           {"type": "object", "properties": {"z": {}, "a": {}}}}}]})"},
      {R"({"messages": [{"role": "user", "content": "q"}], "tool_choice": {"type": "any"}, "thinking": {"type": "enabled",
           "budget_tokens": 1024}, "chat_template_kwargs": {"b": 1}})",
       R"({"chat_template_kwargs": {"b": 1, "enable_thinking": true}, "messages": [{"role": "user", "content": "q"}],
           "tool_choice": "required"})"},
      {R"({"messages": [{"role": "user", "content": "q"}], "thinking": {"type": "disabled"}, "output_config": {"effort": "low",
           "format": {"type": "json_schema", "schema": {"type": "object", "properties": {"z": {}, "a": {}}}}}})",
       R"({"chat_template_kwargs": {"enable_thinking": false}, "messages": [{"role": "user", "content": "q"}],
           "reasoning_effort": "low", "response_format": {"type": "json_schema", "json_schema":
           {"schema": {"type": "object", "properties": {"z": {}, "a": {}}}}}})"},
  };
  for (const auto& one : cases) {
    const auto translated = TranslateMessage(one.body, Context().limits);
    const ChatTranslation* chat = std::get_if<ChatTranslation>(&translated);
    ASSERT_NE(chat, nullptr) << one.body << std::get<ApiError>(translated).message;
    EXPECT_EQ(Json::parse(chat->body, nullptr, false).dump(), Json::parse(one.chat).dump())
        << one.body;
  }
}

TEST(MessagesFields, OfACallAreRefusedByTheirOwnNames) {
  const std::string user = R"("messages": [{"role": "user", "content": "q"}])";
  const struct {
    std::string fields;
    const char* error;
  } cases[] = {
      {R"("max_tokens": 5)", "missing_field messages"},
      {R"("messages": [])", "invalid_value messages"},
      {R"("messages": "q")", "invalid_type messages"},
      {R"("messages": [1])", "invalid_type messages[0]"},
      {R"("messages": [{"content": "q"}])", "missing_field messages[0].role"},
      {R"("messages": [{"role": "system", "content": "q"}])", "invalid_value messages[0].role"},
      {R"("messages": [{"role": "user"}])", "missing_field messages[0].content"},
      {R"("messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}])",
       "unsupported_field messages[0].content[0].type"},
      {R"("messages": [{"role": "user", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}])",
       "unsupported_field messages[0].content[0].type"},
      {R"("messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": "x"}]}])",
       "invalid_type messages[0].content[0].input"},
      {R"("messages": [{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}])",
       "missing_field messages[0].content[0].tool_use_id"},
      {R"("messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a",
          "content": [{"type": "image", "source": {}}]}]}])",
       "unsupported_field messages[0].content[0].content[0].type"},
      {user + R"(, "system": [{"type": "image"}])", "unsupported_field system[0].type"},
      {user + R"(, "tools": [{"type": "web_search_20250305", "name": "web_search"}])",
       "unsupported_field tools[0].type"},
      {user + R"(, "tool_choice": {"type": "all"})", "invalid_value tool_choice.type"},
      {user + R"(, "tool_choice": {"type": "tool"})", "missing_field tool_choice.name"},
      {user + R"(, "thinking": {"type": "deep"})", "invalid_value thinking.type"},
      {user +
           R"(, "thinking": {"type": "enabled"}, "chat_template_kwargs": {"enable_thinking": false})",
       "conflicting_fields thinking"},
      {user + R"(, "mcp_servers": [{"url": "x"}])", "unsupported_field mcp_servers"},
      {user + R"(, "logprobs": true)", "unsupported_field logprobs"},
      {user + R"(, "n": 2)", "unsupported_field n"},
      // Found by the rules of chats.
      {user + R"(, "stop_sequences": [""])", "invalid_value stop_sequences"},
      {user + R"(, "max_tokens": -5)", "invalid_value max_tokens"},
      {user + R"(, "output_config": {"format": {"type": "json_schema", "schema": {"type": "no"}}})",
       "invalid_value output_config.format.schema"},
      {user + R"(, "model": "claude-sonnet-4-5")", "model_not_found model"},
  };
  for (const auto& one : cases) {
    const ApiError error = Bad(ReadMessage(absl::StrCat("{", one.fields, "}")));
    EXPECT_EQ(absl::StrCat(error.code, " ", error.param), one.error)
        << one.fields << ": " << error.message;
  }
}

TEST(MessagesFields, HintsAreNamed) {
  const char* body = R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "x",
      "cache_control": {"type": "ephemeral"}}]}], "metadata": {"user_id": "u"}, "service_tier": "auto",
      "thinking": {"type": "enabled", "budget_tokens": 1024}, "speed": "fast"})";
  const Parsed parsed = ReadMessage(body);
  const GenerateRequest* request = std::get_if<GenerateRequest>(&parsed);
  ASSERT_NE(request, nullptr) << Bad(parsed).message;
  EXPECT_THAT(request->ignored.names(),
              testing::UnorderedElementsAre("messages[].content[].cache_control",
                                            "thinking.budget_tokens", "speed"));
  EXPECT_EQ(request->form, AnswerForm::kMessage);
  EXPECT_EQ(request->prompts[0], Bytes("[u:x]True"));
}

TEST(MessagesFields, AreCounted) {
  const auto counted = CountTokens(
      R"({"model": "demo", "system": "s", "max_tokens": 3, "messages": [{"role": "user", "content": "hi"}]})",
      MessagesContext(/*strict=*/true), 0);
  ASSERT_TRUE(std::holds_alternative<TokenAnswer>(counted)) << std::get<ApiError>(counted).message;
  EXPECT_EQ(std::get<TokenAnswer>(counted).json, R"({"input_tokens":11})");
  const auto refused = CountTokens(R"({"messages": [{"role": "user"}]})", MessagesContext(), 0);
  EXPECT_EQ(std::get<ApiError>(refused).param, "messages[0].content");
}

TEST(TokenizerInfo, HasTheFileAndTheTemplateThatIsUsed) {
  EXPECT_EQ(TokenizerInfoJson("", "", 5),
            R"({"tokenizer_class":null,"chat_template":null,"vocab_size":5})");
  EXPECT_EQ(
      TokenizerInfoJson(
          R"({ "bos_token": {"content": "<s>"}, "chat_template": "old", "tokenizer_class": "T",
                                   "model_max_length": 1000000000000000019884624838656 })",
          "new", 5),
      R"({"bos_token":{"content":"<s>"},"model_max_length":1000000000000000019884624838656,)"
      R"("tokenizer_class":"T","chat_template":"new","vocab_size":5})");
  EXPECT_EQ(TokenizerInfoJson("{broken", "", 5), TokenizerInfoJson("", "", 5));
}

}  // namespace
}  // namespace coppice::coordinator::api_text
