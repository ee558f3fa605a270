// What answers that need not have a call may say, in every format: free text, whole calls, and no
// broken ones.
#include "coordinator/message/answer_structure.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "coordinator/message/tool_format.h"
#include "grammar/compile.h"
#include "tests/grammar/texts.h"

namespace coppice::coordinator {
namespace {

MessageSyntax WithTools(const char* format) {
  MessageSyntax syntax;
  syntax.tool_format = FindToolFormat(format);
  syntax.tools = {{"f", R"({"type":"object","properties":{"a":{"enum":[1]}},"required":["a"]})"},
                  {"g", R"({"type":"object","properties":{}})"}};
  return syntax;
}

void ExpectAnswers(const MessageSyntax& syntax, const std::vector<std::string>& has,
                   const std::vector<std::string>& has_not, bool specials = false) {
  const auto structure = AnswerStructure(syntax, [&](absl::string_view text) {
    return specials && absl::c_linear_search(syntax.tool_format->specials, text);
  });
  ASSERT_TRUE(structure.ok()) << structure.status();
  grammar::ExpectTexts(grammar::ReadFormat({FormatSpec::Kind::kStructuralTag, *structure}), has,
                       has_not);
}

TEST(AnswerStructure, FreeTextAndWholeCalls) {
  ExpectAnswers(
      WithTools("hermes"),
      {"", "Hi <tool> {\"name\"", "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>",
       "\nSo.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>\n"
       "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>"},
      {"<tool_call>", "<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>",
       "a<tool_call>\n{\"name\": \"h\", \"arguments\": {}}\n</tool_call>",
       "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
       "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call> and text"});
  ExpectAnswers(
      WithTools("llama3_json"),
      {"Hi", "{\"nam", "see {\"name\": 1}", "{\"name\": \"g\", \"parameters\": {}}",
       "\n{\"name\": \"f\", \"parameters\": {\"a\": 1}}; {\"name\": \"g\", \"parameters\": {}}",
       "[{\"name\"]"},
      {"{\"name\": \"h\", \"parameters\": {}}", "\n\n{\"name\"", "<|python_tag|>import x",
       "{\"name\": \"f\", \"parameters\": {}}"});
  ExpectAnswers(WithTools("pythonic"), {"Hi", "[1]", "[h()]", "[g()]", "[f(a=1), g()]", "a [g("},
                {"[f()]", "[f(a=2)]", "[g(", "  [g(b=1)]", "[g()] and text"});
  ExpectAnswers(WithTools("functionary_v3.2"),
                {"all\nHi", "f\n{\"a\": 1}", "all\nHi>>>g\n{}", "g\n{}>>>f\n{\"a\": 1}"},
                {"f\n{}", "all\nHi>>>h\n{}", "all\nHi>>>"});
  ExpectAnswers(WithTools("mistral_v11"), {"Hi", "Hi[TOOL_CALLS]g[ARGS]{}"},
                {"[TOOL_CALLS]", "[TOOL_CALLS]f[ARGS]{}", "[TOOL_CALLS]g{}"});
  ExpectAnswers(WithTools("mistral_v11"),
                {"Hi", "\xff[TOOL_CALLS]g\xff[ARGS]{}\xff[TOOL_CALLS]f\xff[ARGS]{\"a\": 1}"},
                {"[TOOL_CALLS]g[ARGS]{}", "\xff[TOOL_CALLS]g[ARGS]{}"}, /*specials=*/true);
  ExpectAnswers(
      WithTools("qwen3_coder"),
      {"Hi",
       "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>"},
      {"<tool_call>\n<function=f>\n</function>\n</tool_call>"});
}

TEST(AnswerStructure, ReasoningMayBeTheWholeAnswerIfNothingIsDemanded) {
  MessageSyntax syntax = WithTools("hermes");
  syntax.reasoning = {"<think>", "</think>"};
  const std::string call = "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>";
  ExpectAnswers(syntax,
                {"Hi", call, "<think>\n<tool_call>", "<think>\nso\n</think>\n\n" + call,
                 "\n<think></think>Hi"},
                {"<think></think><tool_call>", "<think></think>" + call + "Hi"});
  syntax.reasoning_begun = true;
  ExpectAnswers(syntax, {"so", "so<tool_call>", "so</think>\n\n" + call, "so</think>"},
                {"so</think><tool_call>"});
  syntax.choice = ToolChoice::kRequired;
  ExpectAnswers(syntax, {"so</think>" + call}, {"so", call, "so</think>Hi"});
}

TEST(AnswerStructure, FaultsAreErrors) {
  const auto none = [](absl::string_view) { return false; };
  MessageSyntax syntax = WithTools("hermes");
  syntax.tools[0].parameters = "{";
  EXPECT_FALSE(AnswerStructure(syntax, none).ok());
  syntax.tools.clear();
  EXPECT_FALSE(AnswerStructure(syntax, none).ok());
  syntax = WithTools("hermes");
  syntax.tool_format = nullptr;
  EXPECT_FALSE(AnswerStructure(syntax, none).ok());
  EXPECT_FALSE(BehindReasoning(syntax, "{", none).ok());
}

}  // namespace
}  // namespace coppice::coordinator
