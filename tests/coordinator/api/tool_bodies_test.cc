// Random changes of bodies with tools: for each format of calls the body is parsed, or refused with an
// error that names a field. Nothing throws.
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/api/translation.h"
#include "coordinator/message/tool_format.h"
#include "tests/coordinator/api/api_parse.h"
#include "tokenizer/chat_template/chat_template.h"

namespace coppice::coordinator {
namespace {

using nlohmann::json;

constexpr int kRounds = 2000;
constexpr const char* kBodies[] = {
    R"({"messages": [{"role": "user", "content": "a"},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function",
          "function": {"name": "f", "arguments": "{\"x\": 1}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "b"}]}],
        "tools": [{"type": "function", "function": {"name": "f", "description": "d", "strict": true,
          "parameters": {"type": "object", "properties": {
            "x": {"type": "integer", "minimum": 1, "maximum": 5},
            "s": {"type": "string", "minLength": 1, "maxLength": 4, "pattern": "a+", "format": "date"},
            "m": {"type": ["string", "null", "array"], "minLength": 2, "maxLength": 4},
            "e": {"enum": ["a", "b", 1, null]}, "k": {"const": "z"}, "r": {"$ref": "#/$defs/t"},
            "o": {"type": "object", "properties": {"y": {"type": "boolean"}}, "required": ["y"],
                  "additionalProperties": false}, "any": {"anyOf": [{"type": "string"}, {}]}},
          "required": ["x", "s"], "$defs": {"t": {"type": "string"}}}}},
          {"type": "function", "function": {"name": "g"}}],
        "tool_choice": {"type": "function", "function": {"name": "f"}}, "parallel_tool_calls": false})",
    R"({"messages": [{"role": "user", "content": "a"}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
          "properties": {"s": {"type": "string"}}}}}],
        "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required",
          "tools": [{"type": "function", "function": {"name": "f"}}]}}})",
    R"({"messages": [{"role": "user", "content": "a"}], "tools": [{"type": "function", "function": {"name": "f"}}],
        "tool_choice": "auto", "response_format": {"type": "structural_tag",
          "structures": [{"begin": "<a>", "schema": {"type": "object"}, "end": "</a>"}], "triggers": ["<a"]}})",
    R"({"messages": [{"role": "user", "content": "a"}], "response_format": {"type": "structural_tag",
        "format": {"type": "sequence", "elements": [{"type": "const_string", "value": "a"},
          {"type": "tag", "begin": "b", "content": {"type": "any_text"}, "end": ["c"]},
          {"type": "token", "token": "</s>"}, {"type": "optional", "content": {"type": "regex", "pattern": "x"}}]}}})",
    R"({"input": [{"role": "user", "content": "a"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "b"}]}],
        "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": true}],
        "tool_choice": {"type": "function", "name": "f"}, "text": {"format": {"type": "json_schema",
          "name": "n", "schema": {"type": "object"}}}})",
    R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "t"}, {"type": "tool_use", "id": "c", "name": "f", "input": {"x": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c",
          "content": [{"type": "text", "text": "b"}]}]}],
        "tools": [{"name": "f", "input_schema": {"type": "object"}}], "max_tokens": 3,
        "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": true},
        "thinking": {"type": "enabled"}})"};

class Mutator {
 public:
  std::string Next() {
    json body = json::parse(kBodies[Below(std::size(kBodies))]);
    for (size_t changes = 1 + Below(2); changes > 0; --changes) Change(&body);
    return body.dump();
  }

 private:
  size_t Below(size_t limit) { return random_() % limit; }

  json Value() {
    static const std::vector<json> values = {
        nullptr,
        true,
        false,
        0,
        -1,
        5,
        1e300,
        1.5,
        uint64_t{1} << 63,
        3000000000,
        "",
        "x",
        "\xc3\xa9",
        "string",
        "<tool_call>",
        "{\"a\": [1, {}]}",
        json::array(),
        json::object(),
        json::array({nullptr}),
        json::array({1, "x"}),
        json::array({json::object()}),
        json{{"", 1}},
        json{{"type", 5}},
        json{{"type", json::array()}},
        json{{"x", {{"x", {}}}}},
    };
    return values[Below(values.size())];
  }

  // Every value of the body is as likely.
  void Change(json* body) {
    std::vector<json*> places;
    const std::function<void(json*)> collect = [&](json* value) {
      for (json& inner : *value) {
        places.push_back(&inner);
        if (inner.is_structured()) collect(&inner);
      }
    };
    collect(body);
    *places[Below(places.size())] = Value();
  }

  std::mt19937_64 random_{1};
};

std::variant<GenerateRequest, ApiError> ParseAs(int form, const std::string& body,
                                                const ApiContext& context) {
  if (form == 0) return ParseChatCompletion(body, "", context, 0);
  return form == 1 ? ParseResponse(body, "", context, 0) : ParseMessage(body, "", context, 0);
}

TEST(ToolBodies, NoneThrows) {
  const tokenizer::ChatPrompt with(
      *tokenizer::ChatTemplate::Parse(
          "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}{{ m.role "
          "}}"
          "{{ m.content }}{{ m.tool_calls | tojson if m.tool_calls }}{% endfor %}"),
      "", "</s>", &api_text::Tokens());
  const tokenizer::ChatPrompt without(
      *tokenizer::ChatTemplate::Parse(
          "{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}<think>"),
      "", "</s>", &api_text::Tokens());
  Mutator mutator;
  const auto formats = ToolFormats();
  int good = 0, bad = 0;
  for (int i = 0; i < kRounds; ++i) {
    const std::string body = mutator.Next();
    ApiContext context = api_text::Context();
    context.chat = i % 2 == 0 ? &with : &without;
    context.tool_format = &formats[i / 2 % formats.size()];
    if (i % 3 > 0) context.reasoning = ReasoningMarks{"<think>", "</think>"};
    for (int form = 0; form < 3; ++form) {
      try {
        const auto parsed = ParseAs(form, body, context);
        const auto* error = std::get_if<ApiError>(&parsed);
        ++(error == nullptr ? good : bad);
        if (error != nullptr) {
          EXPECT_FALSE(error->param.empty()) << error->message << "\n" << body;
        }
      } catch (const std::exception& thrown) {
        ADD_FAILURE() << context.tool_format->name << " " << thrown.what() << "\n" << body;
      }
    }
  }
  EXPECT_GT(good, kRounds / 50);
  EXPECT_GT(bad, kRounds / 50);
}

// Texts of JSON inside of a body have no limits of their own: what is too deep or too large for the
// stack or the time is refused or stays text.
TEST(ToolBodies, TextsOfJson) {
  const tokenizer::ChatPrompt chat(
      *tokenizer::ChatTemplate::Parse("{% for t in tools or [] %}{% endfor %}{% for m in messages "
                                      "%}{{ m.content }}{% endfor %}"),
      "", "</s>", &api_text::Tokens());
  ApiContext context = api_text::Context();
  context.chat = &chat;
  context.reasoning = ReasoningMarks{"<think>", "</think>"};
  constexpr int kMany = 200000;
  std::string members = "{";
  for (int i = 0; i < kMany; ++i) absl::StrAppend(&members, i == 0 ? "" : ",", "\"", i, "\":1");
  members += "}";
  const std::string deep = "{\"a\":" + std::string(kMany, '[') + std::string(kMany, ']') + "}";
  const auto body = [](const std::string& arguments, const json& fields) {
    json made = {{"messages", {{{"role", "user"}, {"content", "a"}}}}};
    if (!arguments.empty()) {
      made["messages"].push_back(
          {{"role", "assistant"},
           {"tool_calls", {{{"function", {{"name", "f"}, {"arguments", arguments}}}}}}});
    }
    made.update(fields);
    return made.dump();
  };
  const auto code = [&context](const std::string& text) {
    return api_text::Bad(ParseChatCompletion(text, "", context, 0));
  };
  EXPECT_EQ(code(body(deep, json::object())).code, "accepted");  // as a text
  EXPECT_EQ(code(body(members, json::object())).param,
            "messages[1].tool_calls[0].function.arguments");
  for (const std::string& text : {deep, members}) {
    const json outputs = {{"structured_outputs", {{"structural_tag", text}}}};
    EXPECT_EQ(code(body("", outputs)).param, "structured_outputs.structural_tag");
  }
  EXPECT_EQ(code(body("", {{"guided_json", members}})).param, "guided_json");

  json properties, definitions;
  for (int i = 0; i < 200; ++i) {
    properties[absl::StrCat("p", i)] = {{"$ref", "#/$defs/d"}};
    definitions[absl::StrCat("d", i)] = {{"description", std::string(2000, 'x')}};
  }
  definitions["d"] = {{"type", "integer"}};
  const json tool = {
      {"function",
       {{"name", "f"}, {"parameters", {{"properties", properties}, {"$defs", definitions}}}}}};
  context.tool_format = FindToolFormat("qwen3_coder");
  const ApiError error = code(body("", {{"tools", {tool}}}));
  EXPECT_EQ(error.param, "tools") << error.message;
  EXPECT_THAT(error.message, ::testing::HasSubstr("are copied"));
}

// The format has each schema once, so that many tools are not too large for it.
TEST(ToolBodies, ManyTools) {
  const tokenizer::ChatPrompt chat(
      *tokenizer::ChatTemplate::Parse("{% for t in tools or [] %}{% endfor %}{% for m in messages "
                                      "%}{{ m.content }}{% endfor %}"),
      "", "</s>", &api_text::Tokens());
  ApiContext context = api_text::Context();
  context.chat = &chat;
  context.reasoning = ReasoningMarks{"<think>", "</think>"};
  context.tool_format = FindToolFormat("hermes");
  json tools;
  for (int i = 0; i < 60; ++i) {
    tools.push_back(
        {{"function",
          {{"name", absl::StrCat("f", i)},
           {"parameters",
            {{"type", "object"},
             {"properties",
              {{"x", {{"type", "string"}, {"description", std::string(3000, 'd')}}}}}}}}}});
  }
  const json body = {{"messages", {{{"role", "user"}, {"content", "a"}}}}, {"tools", tools}};
  const ApiError error = api_text::Bad(ParseChatCompletion(body.dump(), "", context, 0));
  EXPECT_EQ(error.code, "accepted") << error.message;
}

}  // namespace
}  // namespace coppice::coordinator
