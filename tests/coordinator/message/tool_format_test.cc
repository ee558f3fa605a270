#include "coordinator/message/tool_format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "coordinator/message/reasoning_marks.h"

namespace coppice::coordinator {
namespace {

std::string FormatOf(absl::string_view source) {
  const ToolFormat* format =
      DetectToolFormat([&](absl::string_view text) { return absl::StrContains(source, text); });
  return format == nullptr ? "none" : format->name;
}

TEST(ToolFormat, NamesAreUniqueAndFound) {
  std::set<std::string> names;
  for (const ToolFormat& format : ToolFormats()) {
    EXPECT_TRUE(names.insert(format.name).second) << format.name;
    EXPECT_EQ(FindToolFormat(format.name), &format);
    EXPECT_FALSE(format.known_by.empty());
    EXPECT_TRUE(std::any_of(format.sections.begin(), format.sections.end(),
                            [](const CallSection& section) { return section.anywhere; }))
        << format.name;
  }
  EXPECT_EQ(FindToolFormat("Hermes"), nullptr);
}

TEST(ToolFormat, ATemplateWithTheMarksOfARowHasItsFormat) {
  for (const ToolFormat& format : ToolFormats()) {
    for (const std::vector<std::string>& texts : format.known_by) {
      std::string source = "{{ tools }} message.tool_calls ";
      for (const std::string& text : texts) source += text + " ";
      EXPECT_EQ(FormatOf(source), format.name);
    }
  }
}

// The marks that templates of these models mention.
TEST(ToolFormat, TemplatesThatShareMarksAreToldApart) {
  EXPECT_EQ(FormatOf("{{ '\\n</tool_call>' }} <tool_call>\\n{\"name\": "), "hermes");
  EXPECT_EQ(FormatOf("<tool_call>\\n<function=x>\\n<parameter=y> </tool_call>"), "qwen3_coder");
  EXPECT_EQ(FormatOf("<tool_call>{name} <arg_key>k</arg_key>"), "glm");
  EXPECT_EQ(FormatOf("<function=example>{}</function> <|python_tag|>"), "functionary_v3.1");
  EXPECT_EQ(FormatOf("[TOOL_CALLS] name [CALL_ID] id [ARGS]"), "mistral_v11");
  EXPECT_EQ(FormatOf("'<｜tool▁call▁begin｜>' type '<｜tool▁sep｜>' name '\\n```json\\n'"),
            "deepseek_v3");
  EXPECT_EQ(FormatOf("<|tool_call|>[ ]<|/tool_call|>"), "phi4_mini");
}

TEST(ToolFormat, WithoutToolsItIsHermesAndWithOthersNone) {
  EXPECT_EQ(FormatOf("{% for message in messages %}"), "hermes");
  EXPECT_EQ(FormatOf("message.tool_calls <|tool_call>call:f{"), "none");
  EXPECT_EQ(FormatOf("'<tool_call>' '<invoke name=\"'"), "none");
}

std::optional<ReasoningMarks> MarksOf(absl::string_view source) {
  return DetectReasoning([&](absl::string_view text) { return absl::StrContains(source, text); });
}

TEST(ReasoningMarks, AreKnownByEitherOne) {
  EXPECT_FALSE(MarksOf("no thoughts").has_value());
  EXPECT_EQ(MarksOf("content.split('</think>')")->open, "<think>");
  EXPECT_EQ(MarksOf("<think>")->close, "</think>");
  EXPECT_EQ(MarksOf("'[THINK]' + x")->close, "[/THINK]");
}

TEST(ReasoningMarks, APromptThatEndsWithTheOpeningMarkHasBegunIt) {
  const ReasoningMarks marks = {"<think>", "</think>"};
  EXPECT_TRUE(ReasoningBegun(marks, "<|assistant|><think>"));
  EXPECT_TRUE(ReasoningBegun(marks, "<|assistant|>\n<think>\n"));
  EXPECT_FALSE(ReasoningBegun(marks, "<|assistant|><think>\n\n</think>\n\n"));
  EXPECT_FALSE(ReasoningBegun(marks, "<think> is a mark.<|assistant|>"));
  EXPECT_FALSE(ReasoningBegun(ReasoningMarks(), "prompt"));
}

}  // namespace
}  // namespace coppice::coordinator
