// The fields of tools and reasoning of POST /v1/chat/completions: what the template sees, and the
// format that the answer gets.
#include "coordinator/api/tool_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "coordinator/message/tool_format.h"
#include "grammar/compile.h"
#include "tests/coordinator/api/api_parse.h"
#include "tests/grammar/texts.h"
#include "tokenizer/chat_template/chat_template.h"

namespace coppice::coordinator {
namespace {

using api_text::Bad;
using api_text::Parsed;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kWithTools[] =
    "{% for t in tools or [] %}[{{ t.function | tojson }}]{% endfor %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
    "{% for c in m.tool_calls %}({{ c.id }} {{ c.function.name }} {{ c.function.arguments.x }}){% "
    "endfor %}{% if m.tool_call_id %}for {{ m.tool_call_id }}{% endif %}{% endfor %}"
    "<assistant>{% if enable_thinking %}<think>\n{% endif %}";
constexpr char kWithoutTools[] =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>";

constexpr char kF[] =
    R"({"type": "function", "function": {"name": "f", "description": "d", "parameters":
        {"type": "object", "properties": {"x": {"type": "integer"}, "a": {}}, "required": ["x"]}}})";
constexpr char kG[] = R"({"type": "function", "function": {"name": "g"}})";

struct Server {
  const char* chat_template = kWithTools;
  bool reasons = false;
  bool writes_all = true;
};

Parsed ParseTools(const std::string& fields, const Server& server = {},
                  const std::string& messages = R"([{"role": "user", "content": "hi"}])") {
  const tokenizer::ChatPrompt chat(*tokenizer::ChatTemplate::Parse(server.chat_template), "",
                                   "</s>", &api_text::Tokens());
  ApiContext context = api_text::Context();
  context.chat = &chat;
  context.tool_format = FindToolFormat("hermes");
  if (server.reasons) context.reasoning = ReasoningMarks{"<think>", "</think>"};
  if (!server.writes_all) context.own_bytes.reset('{');
  return ParseChatCompletion(
      absl::StrCat("{\"messages\": ", messages, fields.empty() ? "" : ", ", fields, "}"), "",
      context, /*now_unix=*/0);
}

GenerateRequest GoodTools(const std::string& fields, const Server& server = {},
                          const std::string& messages = R"([{"role": "user", "content": "hi"}])") {
  const Parsed parsed = ParseTools(fields, server, messages);
  if (std::holds_alternative<GenerateRequest>(parsed)) return std::get<GenerateRequest>(parsed);
  ADD_FAILURE() << fields << ": " << Bad(parsed).message;
  return {};
}

std::string PromptText(const GenerateRequest& request) {
  return request.prompts.empty() ? "" : api_text::Tokens().Decode(request.prompts[0], false);
}

bool Allows(const GenerateRequest& request, const std::string& text) {
  auto automaton = grammar::CompileFormat(request.params.format_spec);
  if (!automaton.ok()) ADD_FAILURE() << automaton.status();
  return automaton.ok() && grammar::HasText(&*automaton, text);
}

std::string Call(const std::string& name, const std::string& arguments) {
  return absl::StrCat("<tool_call>\n{\"name\": \"", name, "\", \"arguments\": ", arguments,
                      "}\n</tool_call>");
}

TEST(ToolFields, TheTemplateSeesToolsCallsAndResults) {
  const GenerateRequest request = GoodTools(absl::StrCat("\"tools\": [", kF, "]"), {},
                                            R"([{"role": "user", "content": "q"},
          {"role": "assistant", "content": null, "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 5}"}}]},
          {"role": "tool", "tool_call_id": "call_1", "content": "r"}])");
  EXPECT_EQ(PromptText(request),
            R"([{"name": "f", "description": "d", "parameters": {"type": "object", )"
            R"("properties": {"x": {"type": "integer"}, "a": {}}, "required": ["x"]}}])"
            "<user>q<assistant>(call_1 f 5)<tool>rfor call_1<assistant>");
  EXPECT_TRUE(request.ignored.empty()) << request.ignored.Text();
}

TEST(ToolFields, ATemplateWithoutToolsGetsThemAsText) {
  const GenerateRequest request =
      GoodTools(absl::StrCat("\"tools\": [", kG, "]"), {kWithoutTools},
                R"([{"role": "system", "content": "s"}, {"role": "user", "content": "q"},
          {"role": "assistant", "content": "c", "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "g", "arguments": "{\"x\": 5}"}}]},
          {"role": "tool", "tool_call_id": "1", "content": "r"}, {"role": "tool", "content": "r2"}])");
  const std::string prompt = PromptText(request);
  EXPECT_THAT(prompt, HasSubstr("<system>s\n\nYou can call functions"));
  EXPECT_THAT(prompt, HasSubstr(R"({"type":"function","function":{"name":"g"}})"));
  EXPECT_THAT(prompt, HasSubstr("<assistant>c\n<tool_call>\n{\"name\": \"g\", \"arguments\": "
                                "{\"x\":5}}\n</tool_call><user><tool_response>\nr\n</tool_response>"
                                "\n<tool_response>\nr2\n</tool_response><assistant>"));
}

TEST(ToolFields, ChoiceBindsTheAnswer) {
  const std::string tools = absl::StrCat("\"tools\": [", kF, ", ", kG, "]");
  const std::string f = Call("f", R"({"x": 1})"), g = Call("g", "{}"), bad = Call("f", "{}");
  const struct {
    std::string choice;
    std::vector<std::string> has, has_not;
  } cases[] = {
      {"", {"text", f, "text " + g, f + "\n" + g}, {bad, Call("h", "{}"), "<tool_call>"}},
      {R"(, "tool_choice": "auto", "parallel_tool_calls": false)",
       {"text", f},
       {f + "\n" + g, bad}},
      {R"(, "tool_choice": "required")", {f, g, f + "\n" + g}, {"text", bad, ""}},
      {R"(, "tool_choice": "any", "parallel_tool_calls": false)", {f, g}, {f + "\n" + g, ""}},
      {R"(, "tool_choice": {"type": "function", "function": {"name": "g"}})",
       {g},
       {f, "text", "", g + "\n" + g}},
      {R"(, "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools":
           [{"type": "function", "function": {"name": "f"}}]}})",
       {f},
       {g, "text"}},
  };
  for (const auto& one : cases) {
    const GenerateRequest request = GoodTools(tools + one.choice);
    for (const std::string& text : one.has)
      EXPECT_TRUE(Allows(request, text)) << one.choice << text;
    for (const std::string& text : one.has_not)
      EXPECT_FALSE(Allows(request, text)) << one.choice << text;
    EXPECT_THAT(PromptText(request), HasSubstr("\"g\"")) << "the template sees all tools";
  }
}

TEST(ToolFields, NoneHidesTheTools) {
  const GenerateRequest request =
      GoodTools(absl::StrCat("\"tools\": [", kF, "], \"tool_choice\": \"none\""));
  EXPECT_EQ(PromptText(request), "<user>hi<assistant>");
  EXPECT_EQ(request.syntax, nullptr);
  EXPECT_TRUE(request.format_field.empty());
}

TEST(ToolFields, AFormatIsThatOfAnswersWithoutCalls) {
  const std::string format = R"(, "response_format": {"type": "json_schema", "json_schema":
      {"name": "n", "schema": {"enum": [7]}}})";
  const std::string tools = absl::StrCat("\"tools\": [", kF, "]", format);
  const GenerateRequest request = GoodTools(tools);
  EXPECT_TRUE(Allows(request, "7"));
  EXPECT_TRUE(Allows(request, Call("f", R"({"x": 1})")));
  EXPECT_FALSE(Allows(request, "8"));
  EXPECT_FALSE(Allows(request, "7" + Call("f", R"({"x": 1})")));
  const GenerateRequest demanded = GoodTools(tools + R"(, "tool_choice": "required")");
  EXPECT_FALSE(Allows(demanded, "7"));
  EXPECT_THAT(demanded.ignored.Text(), HasSubstr("response_format"));
}

TEST(ToolFields, ReasoningStandsBeforeWhatIsBound) {
  Server server;
  server.reasons = true;
  const std::string format = R"("structured_outputs": {"choice": ["yes", "no"]})";
  const GenerateRequest open = GoodTools(format + R"(, "enable_thinking": true)", server);
  EXPECT_TRUE(open.syntax->reasoning_begun);
  EXPECT_TRUE(Allows(open, "so\n</think>\n\nyes"));
  EXPECT_FALSE(Allows(open, "yes"));
  const GenerateRequest closed = GoodTools(format, server);
  EXPECT_FALSE(closed.syntax->reasoning_begun);
  EXPECT_TRUE(Allows(closed, "yes"));
  EXPECT_TRUE(Allows(closed, "<think>\nso\n</think>\n\nno"));
  EXPECT_FALSE(Allows(closed, "<think>yes"));
  const GenerateRequest whole = GoodTools(format + R"(, "separate_reasoning": false)", server);
  EXPECT_EQ(whole.syntax, nullptr);
  EXPECT_FALSE(GoodTools(R"("include_reasoning": false)", server).shows_reasoning);
  for (const char* broken : {R"("guided_json": "{")", R"("guided_regex": "[")"}) {
    const ApiError error = Bad(ParseTools(broken, server));
    EXPECT_EQ(error.code, "invalid_value") << broken;
    EXPECT_THAT(error.param, HasSubstr("guided_")) << error.message;
  }
  EXPECT_EQ(Bad(ParseTools(R"("structured_outputs": {"structural_tag": "{"})", server)).param,
            "structured_outputs.structural_tag");
  // Free text is not bound.
  EXPECT_TRUE(GoodTools(R"("temperature": 0)", server).format_field.empty());
}

TEST(ToolFields, BadFieldsAreNamed) {
  const std::string tools = absl::StrCat("\"tools\": [", kF, "]");
  const struct {
    std::string fields, code, param;
  } cases[] = {
      {R"("tools": 5)", "invalid_type", "tools"},
      {R"("tools": [5])", "invalid_type", "tools[0]"},
      {R"("tools": [{"type": "function"}])", "missing_field", "tools[0].function"},
      {R"("tools": [{"type": "web_search"}])", "unsupported_field", "tools[0].type"},
      {R"("tools": [{"type": "function", "function": {}}])", "missing_field",
       "tools[0].function.name"},
      {R"("tools": [{"type": "function", "function": {"name": "a b"}}])", "invalid_value",
       "tools[0].function.name"},
      {absl::StrCat("\"tools\": [", kF, ",", kF, "]"), "invalid_value", "tools[1].function.name"},
      {R"("tools": [{"type": "function", "function": {"name": "f", "parameters": [1]}}])",
       "invalid_type", "tools[0].function.parameters"},
      {R"("tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
          "properties": {"x": {"type": "string", "contentSchema": 1, "not": {}}}}}}])",
       "invalid_value", "tools"},
      {tools + R"(, "tool_choice": "always")", "invalid_value", "tool_choice"},
      {tools + R"(, "tool_choice": {"type": "function", "function": {"name": "h"}})",
       "invalid_value", "tool_choice"},
      {tools + R"(, "tool_choice": {"type": "function"})", "missing_field", "tool_choice.function"},
      {tools + R"(, "parallel_tool_calls": 1)", "invalid_type", "parallel_tool_calls"},
      {R"("enable_thinking": 1)", "invalid_type", "enable_thinking"},
  };
  for (const auto& refusal : cases) {
    const ApiError error = Bad(ParseTools(refusal.fields));
    EXPECT_EQ(error.status, 400) << refusal.fields;
    EXPECT_EQ(error.code, refusal.code) << refusal.fields << ": " << error.message;
    EXPECT_EQ(error.param, refusal.param) << refusal.fields;
  }
  const ApiError schema = Bad(ParseTools(cases[8].fields));
  EXPECT_THAT(
      schema.message,
      HasSubstr("the schema of the arguments of f is refused: JSON schema, #/properties/x"));
  const ApiError format = Bad(ParseTools(tools + R"(, "guided_regex": "[")"));
  EXPECT_EQ(format.param, "guided_regex") << format.message;
}

TEST(ToolFields, BadCallsAreNamed) {
  const auto with = [](const std::string& call) {
    return Bad(
        ParseTools("", {}, absl::StrCat(R"([{"role": "assistant", "tool_calls": [)", call, "]}]")));
  };
  EXPECT_EQ(with("1").param, "messages[0].tool_calls[0]");
  EXPECT_EQ(with(R"({"id": "a", "type": "function"})").param, "messages[0].tool_calls[0].function");
  EXPECT_EQ(with(R"({"function": {"arguments": "{}"}})").param,
            "messages[0].tool_calls[0].function.name");
  EXPECT_EQ(with(R"({"function": {"name": "f", "arguments": 5}})").param,
            "messages[0].tool_calls[0].function.arguments");
  EXPECT_EQ(with(R"({"function": {"name": "f", "arguments": "{\"x\": "}})").code, "accepted")
      << "a call that broke off";
}

TEST(ToolFields, AVocabularyThatCannotWriteEveryTextBindsNothing) {
  Server server;
  server.writes_all = false;
  const std::string tools = absl::StrCat("\"tools\": [", kF, "]");
  const GenerateRequest request = GoodTools(tools, server);
  EXPECT_TRUE(request.format_field.empty());
  EXPECT_EQ(request.syntax->tools.size(), 1u);
  EXPECT_EQ(Bad(ParseTools(tools + R"(, "tool_choice": "required")", server)).param, "tool_choice");
}

}  // namespace
}  // namespace coppice::coordinator
