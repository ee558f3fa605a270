#include "coordinator/message/answer_structure.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/coordinator/message/parse_message.h"

namespace coppice::coordinator {
namespace {

using StructureJson = nlohmann::ordered_json;

constexpr char kSchemaOfF[] =
    R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},)"
    R"( "required": ["a"]})";
constexpr char kSchemaOfG[] =
    R"({"type": "object", "properties": {"c": {"type": "array"}}, "required": ["c"]})";

MessageSyntax SyntaxWithSchemas(absl::string_view format) {
  MessageSyntax syntax = SyntaxOf(format);
  syntax.tools = {{"f", kSchemaOfF}, {"g", kSchemaOfG}};
  return syntax;
}

bool NoSpecial(absl::string_view) { return false; }
bool AllSpecial(absl::string_view text) {
  for (const ToolFormat& format : ToolFormats()) {
    if (std::find(format.specials.begin(), format.specials.end(), text) != format.specials.end())
      return true;
  }
  return text == "<think>" || text == "</think>";
}

// Writes a text of a structural tag at random, and remembers what it has put into it.
class Sampler {
 public:
  Sampler(const ToolFormat& format, uint32_t seed) : format_(format), random_(seed) {}

  std::string text, reasoning, content;
  std::vector<StructureJson> values;  // of all arguments

  void Write(const StructureJson& tag) {
    const std::string type = tag["type"];
    if (type == "const_string") {
      text += tag["value"];
    } else if (type == "token") {
      text += tag["token"];
    } else if (type == "sequence") {
      for (const StructureJson& element : tag["elements"]) Write(element);
    } else if (type == "or") {
      Write(tag["elements"][Below(tag["elements"].size())]);
    } else if (type == "optional") {
      if (Below(2) == 0) Write(tag["content"]);
    } else if (type == "regex") {
      const bool lines = tag["pattern"] == "\\n?\\n?";
      text += lines ? std::string(Below(3), '\n') : std::to_string(Below(20));
    } else if (type == "any_text") {
      WriteText(tag);
    } else if (type == "json_schema" || type == "python_arguments") {
      WriteValue(tag["json_schema"], type == "python_arguments");
    } else if (type == "tags_with_separator") {
      for (size_t n = tag["stop_after_first"] ? 1 : 1 + Below(3), i = 0; i < n; ++i) {
        if (i > 0) text += tag["separator"];
        const StructureJson& call = tag["tags"][Below(tag["tags"].size())];
        WriteEdge(call["begin"]);
        Write(call["content"]);
        WriteEdge(call["end"]);
      }
    } else {
      ADD_FAILURE() << "a tag of an unknown type: " << tag;
    }
  }

 private:
  size_t Below(size_t n) { return random_() % n; }

  void WriteEdge(const StructureJson& edge) {
    text += (edge.is_string() ? edge : edge["token"]).get<std::string>();
  }

  void WriteText(const StructureJson& tag) {
    const char* words[] = {"so", " it", "\nis", " <", "{", "[", "é", "\\", "\"", "f"};
    std::string written = "A";
    for (size_t n = Below(6); n > 0; --n) written += words[Below(10)];
    text += written;
    const std::string excluded = tag.value("excludes", StructureJson::array()).dump();
    if (absl::StrContains(excluded, "</think>"))
      reasoning = written;
    else if (!format_.argument_close.empty() &&
             absl::StrContains(format_.argument_close, FirstExcluded(tag)))
      values.push_back(written);
    else
      content = written;
  }

  static std::string FirstExcluded(const StructureJson& tag) {
    const StructureJson first = tag["excludes"][0];
    return first.is_string() ? first : first["token"];
  }

  void WriteValue(const StructureJson& schema, bool python) {
    StructureJson value;
    if (schema["type"] == "integer")
      value = Below(100);
    else if (schema["type"] == "array")
      value = {1, "]}\"", nullptr};
    else if (schema["properties"].contains("c"))
      value = {{"c", {1, "]}\"", nullptr}}};
    else
      value = {{"a", Below(100)}, {"b", "x\n\"é}"}};
    if (!value.is_object()) {
      values.push_back(value);
      text += value.dump();
      return;
    }
    for (const auto& [key, member] : value.items()) {
      values.push_back(member);
      // Readers of Python's notation take null, too.
      if (python) absl::StrAppend(&text, key == "b" ? ", " : "", key, "=", member.dump());
    }
    if (!python) text += value.dump();
  }

  const ToolFormat& format_;
  std::minstd_rand random_;
};

void ExpectReadBack(const MessageSyntax& syntax, absl::FunctionRef<bool(absl::string_view)> special,
                    uint32_t seed) {
  const auto structure = AnswerStructure(syntax, special);
  ASSERT_TRUE(structure.ok()) << structure.status();
  const StructureJson tag = StructureJson::parse(*structure);
  Sampler sampler(*syntax.tool_format, seed);
  sampler.Write(tag["format"]);
  SCOPED_TRACE(absl::StrCat(*structure, "\n", sampler.text));

  PartsGrow grow(syntax);
  grow.Text(sampler.text);
  const MessageParts parts = grow.Finish();
  EXPECT_EQ(parts.reasoning, sampler.reasoning);
  EXPECT_EQ(parts.content, sampler.content);
  EXPECT_GE(parts.calls.size(), syntax.choice == ToolChoice::kAuto ? 0u : 1u);
  EXPECT_LE(parts.calls.size(), syntax.parallel ? 100u : 1u);
  std::vector<StructureJson> values;
  for (const ToolCall& call : parts.calls) {
    const StructureJson arguments = StructureJson::parse(call.arguments, nullptr, false);
    ASSERT_TRUE(arguments.is_object()) << call.arguments;
    for (const auto& [key, value] : arguments.items()) {
      EXPECT_EQ(call.name == "f", key != "c");
      values.push_back(value);
    }
  }
  EXPECT_EQ(StructureJson(values), StructureJson(sampler.values));
}

TEST(AnswerStructure, WhatItAllowsIsReadBack) {
  for (const ToolFormat& format : ToolFormats()) {
    SCOPED_TRACE(format.name);
    for (uint32_t seed = 1; seed <= 96; ++seed) {
      MessageSyntax syntax = SyntaxWithSchemas(format.name);
      syntax.choice = seed % 2 == 0 ? ToolChoice::kAuto : ToolChoice::kRequired;
      syntax.parallel = seed % 3 != 0;
      if (seed % 8 < 4) syntax.reasoning = {"<think>", "</think>"};
      syntax.reasoning_begun = seed % 8 < 2;
      ExpectReadBack(syntax, seed % 16 < 8 ? NoSpecial : AllSpecial, seed * 7919);
      if (testing::Test::HasFailure()) return;
    }
  }
}

std::string StructureOf(const MessageSyntax& syntax, bool special) {
  return AnswerStructure(syntax, special ? AllSpecial : NoSpecial).value_or("failed");
}

TEST(AnswerStructure, HermesAsItIsWritten) {
  MessageSyntax syntax = SyntaxOf("hermes");
  syntax.tools = {{"f", R"({"type":"object","required":["b"]})"}};
  syntax.parallel = false;
  const std::string calls =
      R"({"type":"tags_with_separator","tags":[{"type":"tag","begin":"<tool_call>","content":)"
      R"({"type":"sequence","elements":[{"type":"optional","content":)"
      R"({"type":"const_string","value":"\n"}},)"
      R"({"type":"const_string","value":"{\"name\": \"f\", \"arguments\": "},)"
      R"({"type":"json_schema","json_schema":{"type":"object","required":["b"]}},)"
      R"({"type":"const_string","value":"}"},)"
      R"({"type":"optional","content":{"type":"const_string","value":"\n"}}]},)"
      R"("end":"</tool_call>"}],"separator":"\n","at_least_one":true,"stop_after_first":true})";
  syntax.choice = ToolChoice::kRequired;
  EXPECT_EQ(StructureOf(syntax, false), absl::StrCat(R"({"format":)", calls, "}"));
  syntax.choice = ToolChoice::kAuto;
  EXPECT_EQ(
      StructureOf(syntax, false),
      absl::StrCat(
          R"({"format":{"type":"sequence","elements":[{"type":"any_text","excludes":["<tool_call>"]},)",
          R"({"type":"optional","content":)", calls, "}]}}"));
}

TEST(AnswerStructure, MarksThatAreSpecialTokensAreTokens) {
  MessageSyntax syntax = SyntaxOf("mistral_v11");
  syntax.tools = {{"f", ""}};
  syntax.choice = ToolChoice::kNamed;
  EXPECT_EQ(
      StructureOf(syntax, true),
      R"({"format":{"type":"tags_with_separator","tags":[{"type":"tag",)"
      R"("begin":{"type":"token","token":"[TOOL_CALLS]"},"content":{"type":"sequence","elements":[)"
      R"({"type":"const_string","value":"f"},{"type":"token","token":"[ARGS]"},)"
      R"({"type":"json_schema","json_schema":{"type":"object"}}]},"end":""}],"separator":"",)"
      R"("at_least_one":true,"stop_after_first":false}})");
}

TEST(AnswerStructure, AFormatMayStandBehindReasoning) {
  MessageSyntax syntax;
  const std::string format = R"({"type":"regex","pattern":"a"})";
  EXPECT_EQ(BehindReasoning(syntax, format, NoSpecial).value(),
            absl::StrCat(R"({"format":)", format, "}"));
  syntax.reasoning = {"<think>", "</think>"};
  syntax.reasoning_begun = true;
  EXPECT_EQ(BehindReasoning(syntax, format, AllSpecial).value(),
            absl::StrCat(
                R"({"format":{"type":"sequence","elements":[{"type":"sequence","elements":[)",
                R"({"type":"any_text","excludes":[{"type":"token","token":"</think>"}]},)",
                R"({"type":"token","token":"</think>"},{"type":"regex","pattern":"\\n?\\n?"}]},)",
                format, "]}}"));
}

TEST(AnswerStructure, RefusesWhatItCannotWrite) {
  EXPECT_FALSE(AnswerStructure(MessageSyntax(), NoSpecial).ok());
  MessageSyntax syntax = SyntaxOf("hermes");
  syntax.tools = {{"f", "{"}};
  EXPECT_EQ(AnswerStructure(syntax, NoSpecial).status().message(),
            "the parameters of the tool f are not JSON");
  EXPECT_FALSE(BehindReasoning(syntax, "[]", NoSpecial).ok());
}

}  // namespace
}  // namespace coppice::coordinator
