// Random texts of the structures that bind answers: every one is read back as calls of the tools, whose
// arguments fulfil the schemas by a validator of its own. 500 random schemas, every format.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "coordinator/message/answer_structure.h"
#include "coordinator/message/message_parser.h"
#include "coordinator/message/tool_format.h"
#include "grammar/compile.h"
#include "tests/grammar/json_validator.h"
#include "tests/grammar/texts.h"

namespace coppice::coordinator {
namespace {

using nlohmann::json;

constexpr int kSchemas = 500;
constexpr int kTexts = 4;  // of each schema

// Schemas of values, with references into the definitions of RandomSchema.
constexpr const char* kValues[] = {
    R"({"type":"string","maxLength":8})",
    R"({"type":["string","null"],"maxLength":3})",
    R"({"type":"integer","minimum":-5,"maximum":400})",
    R"({"type":"number","exclusiveMinimum":0,"maximum":2.5})",
    R"({"type":"number","multipleOf":0.25,"maximum":9,"minimum":0})",
    R"({"type":"boolean"})",
    R"({"enum":["red","gr\"een",3,null,true]})",
    R"({"const":{"a":[1,{"b":"]}"}]}})",
    R"({"type":"string","pattern":"^[a-c<>{}()\\[\\]]{0,6}$"})",
    R"({"type":"string","format":"date"})",
    R"({"type":"array","items":{"$ref":"#/$defs/leaf"},"maxItems":3})",
    R"({"type":"object","properties":{"x":{"type":"integer","maximum":9,"minimum":0}},"required":["x"],"additionalProperties":false})",
    R"({"anyOf":[{"$ref":"#/$defs/leaf"},{"type":"array","items":{"type":"boolean"},"maxItems":2}]})",
};

std::string RandomSchema(std::mt19937* random) {
  json schema = {{"type", "object"},
                 {"additionalProperties", false},
                 {"properties", json::object()},
                 {"required", json::array()},
                 {"$defs", {{"leaf", {{"enum", {"l", 1, false}}}}}}};
  const size_t properties = (*random)() % 5;
  for (size_t i = 0; i < properties; ++i) {
    const std::string name = absl::StrCat(i % 2 == 0 ? "value_" : "p", i);
    schema["properties"][name] = json::parse(kValues[(*random)() % std::size(kValues)]);
    if ((*random)() % 2 == 0) schema["required"].push_back(name);
  }
  return schema.dump();
}

// Gives the text to the parser as a model's tokens would come: special tokens by themselves.
MessageParts Parse(const std::string& text, const std::shared_ptr<const MessageSyntax>& syntax) {
  MessageParser parser(syntax);
  for (size_t at = 0; at < text.size();) {
    if (text[at] != grammar::kSpecialMark) {
      const size_t end = std::min(text.find(grammar::kSpecialMark, at), text.size());
      parser.AppendText(absl::string_view(text).substr(at, end - at));
      at = end;
      continue;
    }
    ++at;
    std::string name;
    for (const std::string& special : syntax->tool_format->specials) {
      if (absl::StartsWith(absl::string_view(text).substr(at), special) &&
          special.size() > name.size())
        name = special;
    }
    if (name.empty()) {
      ADD_FAILURE() << "no special token there: " << text;
      break;
    }
    parser.AppendSpecial(name);
    at += name.size();
  }
  parser.Finish();
  return parser.parts();
}

TEST(BoundCallsTest, EveryTextIsReadBackAsCallsOfTheSchemas) {
  std::mt19937 random(20);
  int calls = 0, several = 0;
  for (int i = 0; i < kSchemas; ++i) {
    const ToolFormat& format = ToolFormats()[i % ToolFormats().size()];
    auto syntax = std::make_shared<MessageSyntax>();
    syntax->tool_format = &format;
    syntax->tools = {{"find", RandomSchema(&random)}, {"find_all", RandomSchema(&random)}};
    syntax->choice = ToolChoice::kRequired;
    syntax->parallel = i % 3 != 0;
    syntax->id_seed = "x";
    const bool specials = i / static_cast<int>(ToolFormats().size()) % 2 == 0;
    const auto structure = AnswerStructure(*syntax, [&](absl::string_view text) {
      return specials && absl::c_linear_search(format.specials, text);
    });
    ASSERT_TRUE(structure.ok()) << format.name << structure.status();
    auto automaton = grammar::CompileFormat({FormatSpec::Kind::kStructuralTag, *structure});
    ASSERT_TRUE(automaton.ok()) << format.name << automaton.status() << *structure;
    for (int t = 0; t < kTexts; ++t) {
      const std::string text = grammar::RandomText(&*automaton, &random, random() % 80);
      const MessageParts parts = Parse(text, syntax);
      ASSERT_FALSE(parts.calls.empty()) << format.name << ": " << text;
      ASSERT_EQ(parts.content, "") << format.name << ": " << text;
      if (!syntax->parallel) ASSERT_EQ(parts.calls.size(), 1u) << format.name << ": " << text;
      several += parts.calls.size() > 1 ? 1 : 0;
      for (const ToolCall& call : parts.calls) {
        const auto tool = absl::c_find_if(
            syntax->tools, [&call](const Tool& other) { return other.name == call.name; });
        ASSERT_NE(tool, syntax->tools.end()) << format.name << ": " << text;
        const json value = json::parse(call.arguments, nullptr, /*allow_exceptions=*/false);
        ASSERT_FALSE(value.is_discarded()) << format.name << ": " << call.arguments;
        const json schema = json::parse(tool->parameters);
        ASSERT_TRUE(grammar::JsonValidator(schema).Fulfils(value))
            << format.name << ": " << call.arguments << " of " << tool->parameters;
        ++calls;
      }
    }
  }
  EXPECT_GT(calls, kSchemas * kTexts);
  EXPECT_GT(several, 100);
}

}  // namespace
}  // namespace coppice::coordinator
