#include "coordinator/message/message_parser.h"

#include <gtest/gtest.h>

#include "tests/coordinator/message/parse_message.h"

namespace coppice::coordinator {
namespace {

struct Row {
  const char* format;
  std::string text;
  const char* shown;  // see Shown
};

// However it is cut, and with special tokens as such or as text, the answer has these parts.
void ExpectParts(const MessageSyntax& syntax, const std::string& text, const std::string& shown) {
  SCOPED_TRACE(text);
  EXPECT_EQ(ParseInPieces(syntax, text, {}), shown);
  std::vector<size_t> places;
  for (size_t at = 0; at <= text.size(); ++at) {
    if (BeginsCharacter(text, at)) places.push_back(at);
  }
  EXPECT_EQ(ParseInPieces(syntax, text, places), shown);
  for (size_t i = 0; i < places.size(); ++i) {
    const size_t last = text.size() <= 160 ? places.size() : i + 1;
    for (size_t j = i; j < last; ++j)
      ASSERT_EQ(ParseInPieces(syntax, text, {places[i], places[j]}), shown) << i << " " << j;
  }
  if (syntax.tool_format == nullptr) return;
  EXPECT_EQ(ParseWithSpecials(syntax, syntax.tool_format->specials, text), shown);
}

void ExpectRows(const std::vector<Row>& rows) {
  for (const Row& row : rows) ExpectParts(SyntaxOf(row.format), row.text, row.shown);
}

TEST(MessageParser, ReadsTheCallsOfEveryFormat) {
  ExpectRows({
      {"hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>",
       "|f{\"a\": 1};"},
      {"hermes",
       "Wait.\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n"
       "{\"name\": \"g\", \"arguments\": {\"b\": [\"}\\\"\"]}}\n</tool_call>",
       "Wait.|f{};g{\"b\": [\"}\\\"\"]};"},
      {"hermes",
       "<tool_call>[{\"name\": \"f\", \"arguments\": {}}, {\"name\":\"g\",\"arguments\":{}}]"
       "</tool_call>",
       "|f{};g{};"},
      {"smollm2",
       "<tool_call>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", \"arguments\": "
       "{}}]</tool_call>",
       "|f{\"a\": 1};g{};"},
      {"llama3_json", "{\"name\": \"f\", \"parameters\": {\"a\": \"x\"}}", "|f{\"a\": \"x\"};"},
      {"llama3_json",
       "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}",
       "|f{};g{};"},
      {"llama3_json", "{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}", "|f{};"},
      {"pythonic", "[f(a=1, b=\"x\"), g()]", "|f{\"a\": 1, \"b\": \"x\"};g{};"},
      {"pythonic", "<|python_start|>[f(a=[1, 2.5])]<|python_end|>", "|f{\"a\": [1, 2.5]};"},
      {"lfm2", "Yes.<|tool_call_start|>[f(a='x')]<|tool_call_end|>", "Yes.|f{\"a\": \"x\"};"},
      {"minicpm3", "<|tool_call_start|>\n```python\nf(a=\"x\",b=3)\ng()\n```\n<|tool_call_end|>",
       "|f{\"a\": \"x\", \"b\": 3};g{};"},
      {"olmo3", "<function_calls>f(a=1)\ng(b=None)</function_calls>",
       "|f{\"a\": 1};g{\"b\": null};"},
      {"mistral",
       "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", "
       "\"arguments\": {}}]",
       "|f{\"a\": 1};g{};"},
      {"mistral_v11", "[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[CALL_ID]123456789[ARGS]{}",
       "|f{\"a\": 1};g{};"},
      {"functionary_v3.1", "<function=f>{\"a\": 1}</function><function=g>{}</function>",
       "|f{\"a\": 1};g{};"},
      {"functionary_v3.2", "f\n{\"a\": 1}", "|f{\"a\": 1};"},
      {"functionary_v3.2", "all\nLet me see.>>>f\n{\"a\": 1}>>>g\n{}",
       "Let me see.|f{\"a\": 1};g{};"},
      {"deepseek_v3",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 1}\n"
       "```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n"
       "```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "|f{\"a\": 1};g{};"},
      {"deepseek_v31",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜>"
       "<｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "|f{\"a\": 1};g{};"},
      {"kimi_k2",
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
       "{\"a\": 1}<|tool_call_end|><|tool_calls_section_end|>",
       "|f{\"a\": 1};"},
      {"granite", "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]", "|f{\"a\": 1};"},
      {"granite", "<tool_call>[{\"name\": \"f\", \"arguments\": {}}]", "|f{};"},
      {"phi4_mini", "<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]<|/tool_call|>", "|f{};"},
      {"functools", "functools[{\"name\": \"f\", \"arguments\": {}}]", "|f{};"},
      {"nemotron", "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {}}]</TOOLCALL>", "|f{};"},
      {"tool_calls", "<tool_calls>[{\"name\": \"f\", \"arguments\": {}}]</tool_calls>", "|f{};"},
      {"qwen3_coder",
       "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\nx\n\ny\n"
       "</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=g>\n</function>\n"
       "</tool_call>",
       "|f{\"a\": 1, \"b\": \"x\\n\\ny\"};g{};"},
      {"glm",
       "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>[1]</arg_value>\n</tool_call>\n"
       "<tool_call>g<arg_key>b</arg_key><arg_value>x y</arg_value></tool_call>",
       "|f{\"a\": [1]};g{\"b\": \"x y\"};"},
      {"seed_oss",
       "<seed:tool_call>\n<function=f>\n<parameter=a>1</parameter>\n</function>\n"
       "</seed:tool_call>",
       "|f{\"a\": 1};"},
      {"minimax_m2",
       "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">1</parameter>\n</invoke>\n"
       "<invoke name=\"g\">\n</invoke>\n</minimax:tool_call>",
       "|f{\"a\": 1};g{};"},
  });
}

TEST(MessageParser, AnUnknownNameOrABrokenHeadIsContentAsWritten) {
  for (const std::string text :
       {"<tool_call>\n{\"name\": \"h\", \"arguments\": {}}\n</tool_call>", "<tool_call>",
        "a <tool_call> b </tool_call>", "<tool_call>\n{\"name\": \"ff\", \"arguments\": {}}",
        "<tool_call>\n{\"name\": 1}", "{\"name\": \"f\", \"arguments\": {}}", "x\n\n", " \n x  y ",
        "<tool_call>{\"name\": \"f", "<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"h\"}",
        "<tool_call>{\"arguments\": {\"a\": 1}, \"na"})
    ExpectParts(SyntaxOf("hermes"), text, text);
  for (const std::string text : {"{\"name\": \"h\"}", "{\"a\": 1}", "x {\"name\": \"f\"}", "{",
                                 "Sure: {\"name\": \"f\", \"parameters\": {}}"})
    ExpectParts(SyntaxOf("llama3_json"), text, text);
  for (const std::string text : {"[h(a=1)]", "[1, 2]", "x [f()]", "[f", "f(a=1)", "[f]"})
    ExpectParts(SyntaxOf("pythonic"), text, text);
  for (const std::string text : {"[TOOL_CALLS]h[ARGS]{}", "[TOOL_CALLS]f[ARGS]1", "[TOOL_CALLS]f"})
    ExpectParts(SyntaxOf("mistral_v11"), text, text);
}

TEST(MessageParser, ACallBehindABrokenOneIsFound) {
  ExpectRows({
      {"hermes",
       "<tool_call>\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call> after",
       "<tool_call> after|f{};"},
      {"hermes",
       "<tool_call>{\"arguments\": {\"x\": \"<tool_call>{\\\"name\"}, \"name\": \"h\"}"
       "<tool_call>{\"name\": \"f\"}</tool_call>",
       "<tool_call>{\"arguments\": {\"x\": \"<tool_call>{\\\"name\"}, \"name\": \"h\"}|f{};"},
  });
}

TEST(MessageParser, ArgumentsMayComeBeforeTheName) {
  ExpectRows({{"hermes", "<tool_call>\n{\"arguments\": {\"a\": {}}, \"name\": \"f\"}\n</tool_call>",
               "|f{\"a\": {}};"}});
}

TEST(MessageParser, ACallThatBreaksOffKeepsWhatCame) {
  ExpectRows({
      {"hermes", "<tool_call>\n{\"name\": \"f\"", "|f;"},
      {"hermes", "<tool_call>\n{\"name\": \"f\", \"argu", "|f;"},
      {"hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"x", "|f{\"a\": \"x;"},
      {"hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool", "|f{};"},
      {"hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}} x", "} x|f{};"},
      {"pythonic", "[f(a=12", "|f{\"a\": 12;"},
      {"pythonic", "[f(a=Tru", "|f{\"a\": ;"},
      {"pythonic", "[f(a=\"x", "|f{\"a\": \"x;"},
      {"pythonic", "[f(a=x + 1)]", "x + 1)]|f{\"a\": ;"},
      {"pythonic", "[f(12)]", "12)]|f;"},
      {"qwen3_coder", "<tool_call>\n<function=f>\n<parameter=a>\nx", "|f{\"a\": x;"},
      {"qwen3_coder", "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>",
       "|f{\"a\": 1};"},
      {"deepseek_v31", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\"",
       "|f{\"a\";"},
  });
}

TEST(MessageParser, WhiteSpaceBesideCallsIsDropped) {
  ExpectRows({
      {"hermes", "a \n <tool_call>{\"name\":\"f\"}</tool_call> \n", "a|f{};"},
      {"hermes", "a\n<tool_call>{\"name\":\"f\"}</tool_call>\n b", "a\n b|f{};"},
      {"hermes", "\n<tool_call>{\"name\":\"f\"}</tool_call>\n b", "b|f{};"},
  });
}

TEST(MessageParser, ReadsTheReasoningFirst) {
  MessageSyntax syntax = SyntaxOf("hermes");
  syntax.reasoning = {"<think>", "</think>"};
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
  ExpectParts(syntax, "<think>\na\n\nb\n</think>\n\nc", "(a\n\nb)c");
  ExpectParts(syntax, "\n<think>a</think>c", "(a)c");
  ExpectParts(syntax, "<think>\n\n</think>\n\nc\n", "c\n");
  ExpectParts(syntax, "<think>" + call + "</think>" + call, "(" + call + ")|f{};");
  ExpectParts(syntax, "<think>\na </thin\n", "(a </thin\n)");
  ExpectParts(syntax, "c<think>a</think>", "c<think>a</think>");
  ExpectParts(syntax, "<thin", "<thin");
  ExpectParts(syntax, " c", " c");
  syntax.reasoning_begun = true;
  ExpectParts(syntax, "\na\n</think>\n\n" + call, "(a)|f{};");
  ExpectParts(syntax, "<think>\na\n</think>c", "(a)c");
  ExpectParts(syntax, "a", "(a)");
  ExpectParts(syntax, "</think>c", "c");
  syntax.tool_format = FindToolFormat("llama3_json");
  ExpectParts(syntax, "a</think>\n\n{\"name\": \"f\", \"parameters\": {}}", "(a)|f{};");
  syntax.tool_format = nullptr;
  ExpectParts(syntax, "a</think>\n\n c \n", "(a)c \n");
}

TEST(MessageParser, SpecialTokensThatAreNoMarksAreIgnored) {
  MessageParser parser(std::make_shared<const MessageSyntax>(SyntaxOf("hermes")));
  parser.AppendText("a");
  parser.AppendSpecial("<|im_end|>");
  parser.AppendSpecial("</think>");
  parser.AppendText("b");
  parser.Finish();
  EXPECT_EQ(parser.parts().content, "ab");
}

TEST(MessageParser, ANameShowsAsSoonAsItIsWhole) {
  MessageParser parser(std::make_shared<const MessageSyntax>(SyntaxOf("hermes")));
  parser.AppendText("<tool_call>\n{\"name\": \"f");
  EXPECT_TRUE(parser.parts().calls.empty());
  parser.AppendText("\"");
  ASSERT_EQ(parser.parts().calls.size(), 1u);
  EXPECT_EQ(parser.parts().calls[0].name, "f");
  parser.AppendText(", \"arguments\": {\"a\"");
  EXPECT_EQ(parser.parts().calls[0].arguments, "{\"a\"");
}

std::string Times(size_t n, absl::string_view text) {
  std::string all;
  for (size_t i = 0; i < n; ++i) absl::StrAppend(&all, text);
  return all;
}

// Steps that grow with the square of a text would not end in the time that a test has.
TEST(MessageParser, TimeIsLinearInHostileText) {
  constexpr size_t kTimes = 40'000;
  const std::vector<Row> rows = {
      {"hermes", Times(kTimes, "<tool_call>{\"arguments\": {\""), ""},
      {"hermes", Times(kTimes, "<tool_call>{\"name\": \"f\"}<tool_call>{\"arguments\": {"), ""},
      {"hermes", Times(kTimes, "                    "), ""},
      {"hermes", "<tool_call>" + Times(kTimes, "                    "), ""},
      {"hermes", "<tool_call>{\"name\": \"f\"}" + Times(kTimes, "                    "), ""},
      {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": " + Times(kTimes, "{\"a\":["), ""},
      {"hermes", Times(kTimes, "<tool_call>{\"id\": \"0123456789\", "), ""},
      {"pythonic", "[f(a=" + Times(kTimes, "[{'a': "), ""},
      {"pythonic", "[f(" + Times(kTimes, "aaaaaaaaaaaaaaaa"), ""},
      {"qwen3_coder", Times(kTimes, "<tool_call><function=f><parameter="), ""},
      {"qwen3_coder", "<tool_call><function=f><parameter=a>" + Times(kTimes, "</parameter"), ""},
      {"mistral_v11", Times(kTimes, "[TOOL_CALLS]f[CALL_ID]"), ""},
  };
  for (const Row& row : rows) {
    MessageParser parser(std::make_shared<const MessageSyntax>(SyntaxOf(row.format)));
    for (size_t at = 0; at < row.text.size(); at += 3)
      parser.AppendText(absl::string_view(row.text).substr(at, 3));
    parser.Finish();
    const MessageParts& parts = parser.parts();
    EXPECT_LE(parts.content.size(), row.text.size());
  }
}

std::vector<std::string> Ids(MessageSyntax syntax, absl::string_view text) {
  MessageParser parser(std::make_shared<const MessageSyntax>(syntax));
  parser.AppendText(text);
  std::vector<std::string> ids;
  for (const ToolCall& call : parser.parts().calls) ids.push_back(call.id);
  return ids;
}

TEST(MessageParser, IdsFollowFromTheSeedAndTheIndex) {
  MessageSyntax syntax = SyntaxOf("pythonic");
  const std::vector<std::string> ids = Ids(syntax, "[f(), f()]");
  ASSERT_EQ(ids.size(), 2u);
  EXPECT_NE(ids[0], ids[1]);
  EXPECT_EQ(ids[0].size(), 5u + 24u);
  EXPECT_TRUE(absl::StartsWith(ids[0], "call_"));
  EXPECT_EQ(Ids(syntax, "[g(a=1), f()]"), ids);
  syntax.id_seed = "other";
  EXPECT_NE(Ids(syntax, "[f(), f()]"), ids);
  const std::string id = Ids(SyntaxOf("mistral_v11"), "[TOOL_CALLS]f[ARGS]{}").at(0);
  EXPECT_EQ(id.size(), 9u);
  EXPECT_TRUE(std::all_of(id.begin(), id.end(), absl::ascii_isalnum)) << id;
  EXPECT_EQ(Ids(SyntaxOf("kimi_k2"),
                "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:7"
                "<|tool_call_argument_begin|>{}"),
            std::vector<std::string>{"functions.f:0"});
}

}  // namespace
}  // namespace coppice::coordinator
