// POST /v1/responses as a chat completion: the body that each request becomes, and where its errors
// are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "coordinator/api/translation.h"
#include "tests/coordinator/api/api_parse.h"

namespace coppice::coordinator::api_text {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const tokenizer::ChatPrompt& Prompt() {
  static const tokenizer::ChatPrompt prompt(
      *tokenizer::ChatTemplate::Parse("{% for m in messages %}[{{ m.role[0] }}:{{ m.content }}]"
                                      "{% endfor %}{{ reasoning_effort }}"),
      "<s>", "</s>", &Tokens());
  return prompt;
}

// The body of the chat completion, or "code param".
std::string Chat(const std::string& body, bool strict = false) {
  const auto translated = TranslateResponse(body, Context(strict).limits);
  if (const ApiError* error = std::get_if<ApiError>(&translated))
    return absl::StrCat(error->code, " ", error->param);
  return std::get<ChatTranslation>(translated).body;
}

Parsed Read(const std::string& body, bool strict = false) {
  ApiContext context = Context(strict);
  context.chat = &Prompt();
  return ParseResponse(body, "", context, 0);
}

TEST(ResponsesFields, AreThoseOfAChat) {
  const struct {
    const char* body;
    const char* chat;
  } cases[] = {
      {R"({"input": "hi"})", R"({"messages": [{"role": "user", "content": "hi"}]})"},
      {R"({"input": "h\"\u00e9\n", "instructions": "be brief", "max_output_tokens": 5, "seed": 3,
           "beam_width": 2, "model": null})",
       R"({"beam_width": 2, "seed": 3, "max_tokens": 5, "messages": [{"role": "system", "content": "be brief"},
           {"role": "user", "content": "h\"\u00e9\n"}]})"},
      {R"({"input": [{"role": "user", "content": "a"}, {"type": "message", "role": "developer",
           "content": [{"type": "input_text", "text": "b"}]},
           {"role": "user", "content": [{"type": "input_text", "text": "c"}, {"type": "input_text", "text": "d"}]}]})",
       R"({"messages": [{"role": "user", "content": "a"}, {"role": "developer", "content": "b"},
           {"role": "user", "content": [{"type": "text", "text": "c"}, {"type": "text", "text": "d"}]}]})"},
      // What an answer has is input again. Items of the assistant are one message.
      {R"({"input": [{"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
           {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": "ok", "annotations": [], "logprobs": []}]},
           {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{\"a\": 1}", "status": "completed"},
           {"type": "function_call", "call_id": "call_2", "name": "g", "arguments": "{}"},
           {"type": "function_call_output", "call_id": "call_1", "output": "one"},
           {"type": "function_call_output", "call_id": "call_2", "output": [{"type": "input_text", "text": "two"}]}]})",
       R"({"messages": [{"role": "assistant", "reasoning_content": "hm", "content": "ok", "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}},
            {"id": "call_2", "type": "function", "function": {"name": "g", "arguments": "{}"}}]},
           {"role": "tool", "tool_call_id": "call_1", "content": "one"},
           {"role": "tool", "tool_call_id": "call_2", "content": "two"}]})"},
      {R"({"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": ""},
           {"type": "message", "role": "assistant", "content": "after"}]})",
       R"({"messages": [{"role": "assistant", "content": null, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}]},
           {"role": "assistant", "content": "after"}]})"},
      {R"({"input": "x", "tools": [{"type": "function", "name": "f", "description": "d", "parameters":
           {"type": "object", "properties": {"z": {}, "a": {}}}, "strict": true}],
           "tool_choice": {"type": "function", "name": "f"}, "parallel_tool_calls": false})",
       R"({"parallel_tool_calls": false, "messages": [{"role": "user", "content": "x"}],
           "tool_choice": {"type": "function", "function": {"name": "f"}},
           "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters":
           {"type": "object", "properties": {"z": {}, "a": {}}}, "strict": true}}]})"},
      {R"({"input": "x", "tool_choice": "required", "text": {"format": {"type": "json_schema", "name": "n",
           "schema": {"type": "object", "properties": {"z": {"type": "null"}, "a": {"type": "null"}}}, "strict": true}}})",
       R"({"messages": [{"role": "user", "content": "x"}], "response_format": {"type": "json_schema", "json_schema":
           {"name": "n", "schema": {"type": "object", "properties": {"z": {"type": "null"}, "a": {"type": "null"}}},
            "strict": true}}, "tool_choice": "required"})"},
      {R"({"input": "x", "text": {"format": {"type": "json_object"}}, "reasoning": {"effort": "low"},
           "include": ["message.output_text.logprobs"], "top_logprobs": 2})",
       R"({"logprobs": true, "messages": [{"role": "user", "content": "x"}], "reasoning_effort": "low",
           "response_format": {"type": "json_object"}, "top_logprobs": 2})"},
  };
  for (const auto& one : cases) {
    const std::string chat = Chat(one.body);
    // As texts: the order of the members of schemas counts.
    EXPECT_EQ(Json::parse(chat, nullptr, false).dump(), Json::parse(one.chat).dump()) << one.body;
  }
}

TEST(ResponsesFields, OfACallAreRefusedByTheirOwnNames) {
  const struct {
    const char* fields;
    const char* error;
  } cases[] = {
      {R"("input": 5)", "invalid_type input"},
      {R"("input": [])", "invalid_value input"},
      {R"("max_tokens": 5)", "missing_field input"},
      {R"("input": [3])", "invalid_type input[0]"},
      {R"("input": [{"role": "user"}])", "missing_field input[0].content"},
      {R"("input": [{"role": "user", "content": 3}])", "invalid_type input[0].content"},
      {R"("input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}])",
       "unsupported_field input[0].content[0].type"},
      {R"("input": [{"role": "user", "content": [{"type": "input_text"}]}])",
       "missing_field input[0].content[0].text"},
      {R"("input": [{"type": "web_search_call"}])", "unsupported_field input[0].type"},
      {R"("input": [{"type": "item_reference", "id": "x"}])", "unsupported_field input[0].type"},
      {R"("input": [{"type": "function_call", "name": "f", "arguments": "{}"}])",
       "missing_field input[0].call_id"},
      {R"("input": [{"type": "function_call_output", "output": "x"}])",
       "missing_field input[0].call_id"},
      {R"("input": "x", "instructions": ["a"])", "invalid_type instructions"},
      {R"("input": "x", "tools": [{"type": "web_search"}])", "unsupported_field tools[0].type"},
      {R"("input": "x", "tool_choice": {"type": "file_search"})",
       "unsupported_field tool_choice.type"},
      {R"("input": "x", "text": {"format": {"type": "grammar"}})",
       "invalid_value text.format.type"},
      {R"("input": "x", "previous_response_id": "resp_1")",
       "unsupported_field previous_response_id"},
      {R"("input": "x", "conversation": "conv_1")", "unsupported_field conversation"},
      {R"("input": "x", "prompt": {"id": "p"})", "unsupported_field prompt"},
      {R"("input": "x", "background": true)", "unsupported_field background"},
      {R"("input": "x", "n": 2)", "unsupported_field n"},
      {R"("input": "x", "return_token_ids": true)", "unsupported_field return_token_ids"},
      {R"("input": "x", "max_output_tokens": 5, "max_tokens": 6)",
       "conflicting_fields max_output_tokens"},
      // Found by the rules of chats.
      {R"("input": [{"role": "critic", "content": "x"}])", "invalid_value input[0].role"},
      {R"("input": "x", "instructions": "y", "max_output_tokens": 1.5)",
       "invalid_value max_output_tokens"},
      {R"("input": "x", "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "no"}}})",
       "invalid_value text.format.schema"},
      {R"("input": "x", "temperature": 9)", "invalid_value temperature"},
      {R"("input": "x", "top_logprobs": 99)", "invalid_value top_logprobs"},
      {R"("input": "x", "model": "gpt-5")", "model_not_found model"},
  };
  for (const auto& one : cases) {
    const ApiError error = Bad(Read(absl::StrCat("{", one.fields, "}")));
    EXPECT_EQ(absl::StrCat(error.code, " ", error.param), one.error)
        << one.fields << ": " << error.message;
    if (error.code == "model_not_found") continue;
    EXPECT_THAT(error.message, ::testing::StartsWith(error.param + " ")) << one.fields;
  }
}

TEST(ResponsesFields, HintsAreNamed) {
  const char* body = R"({"input": [{"role": "user", "content": "x", "flag": 1}], "store": true,
      "truncation": "auto", "metadata": {"a": "b"}, "user": "me", "include": ["reasoning.encrypted_content"],
      "prompt_cache_key": "k", "reasoning": {"summary": "auto"}, "text": {"verbosity": "low"},
      "messages": [], "other": 1, "stream_options": {"include_obfuscation": false, "continuous_usage_stats": true}})";
  const Parsed parsed = Read(body);
  const GenerateRequest* request = std::get_if<GenerateRequest>(&parsed);
  ASSERT_NE(request, nullptr) << Bad(parsed).message;
  EXPECT_THAT(
      request->ignored.names(),
      testing::UnorderedElementsAre("input[].flag", "store", "truncation", "include[]",
                                    "prompt_cache_key", "reasoning.summary", "text.verbosity",
                                    "messages", "other", "stream_options.continuous_usage_stats"));
  EXPECT_EQ(Bad(Read(body, /*strict=*/true)).code, "unknown_field");
}

TEST(ResponsesFields, MakeTheRequestOfAChat) {
  const Parsed parsed = Read(R"({"input": [{"role": "user", "content": "hi"}], "instructions": "s",
      "max_output_tokens": 7, "stream": true, "seed": 4, "reasoning": {"effort": "low"}, "text": null,
      "store": false, "background": false, "previous_response_id": null, "tools": []})",
                             /*strict=*/true);
  const GenerateRequest* request = std::get_if<GenerateRequest>(&parsed);
  ASSERT_NE(request, nullptr) << Bad(parsed).message;
  EXPECT_EQ(request->form, AnswerForm::kResponse);
  EXPECT_EQ(request->prompts[0], Bytes("[s:s][u:hi]low"));
  EXPECT_EQ(request->params.max_tokens, 7);
  EXPECT_EQ(request->params.seed, 4u);
  EXPECT_TRUE(request->stream);
  const Json repeated = Json::parse("{" + request->repeated_fields + "}");
  EXPECT_EQ(repeated["instructions"], "s");
  EXPECT_EQ(repeated["max_output_tokens"], 7);
  EXPECT_EQ(repeated["tools"], Json::array());
  EXPECT_EQ(repeated["tool_choice"], "auto");
  EXPECT_EQ(repeated["text"]["format"]["type"], "text");
  EXPECT_EQ(repeated["reasoning"]["effort"], "low");
}

TEST(ResponsesFields, ThatAreRepeatedAreOneLine) {
  const Parsed parsed = Read("{\"input\": \"x\", \"metadata\": {\n \"a b\": \"c\\\" d\"\n}}");
  const GenerateRequest* request = std::get_if<GenerateRequest>(&parsed);
  ASSERT_NE(request, nullptr);
  EXPECT_THAT(request->repeated_fields, HasSubstr(R"("metadata":{"a b":"c\" d"})"));
}

TEST(JsonText, IsTakenApart) {
  EXPECT_EQ(MemberText(R"( { "a" : [1, "]}\"" , {"b": 2}] , "c":tru , "a" : 7e2 } )", "a"), "7e2");
  EXPECT_EQ(MemberText(R"({"\u0061": {"x": "\\"}, "b": null})", "a"), R"({"x": "\\"})");
  EXPECT_EQ(MemberText("[1]", "a"), "");
  EXPECT_THAT(EntryTexts(R"([ 1 ,"a,b", [2, [3]], {} ])"),
              ElementsAre("1", R"("a,b")", "[2, [3]]", "{}"));
  EXPECT_THAT(EntryTexts("[ ]"), ElementsAre());
  EXPECT_THAT(EntryTexts("{}"), ElementsAre());
  EXPECT_EQ(CompactText("{ \"a b\" : [ 1 , \"\\\" \" ] }"), R"({"a b":[1,"\" "]})");
}

}  // namespace
}  // namespace coppice::coordinator::api_text
