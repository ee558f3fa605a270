#include "loadgen/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace coppice::loadgen {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class CustomDataset : public ::testing::Test {
 protected:
  ~CustomDataset() override { std::filesystem::remove(path_); }
  absl::StatusOr<std::vector<Prompt>> Read(const std::string& content) {
    std::ofstream(path_) << content;
    return ReadCustomDataset(path_);
  }
  const std::string path_ = (std::filesystem::temp_directory_path() /
                             ("coppice-dataset-" + std::to_string(::getpid()) + ".jsonl"))
                                .string();
};

TEST_F(CustomDataset, ReadsRowsAndSkipsBlankLines) {
  const auto prompts = Read(
      "{\"prompt\": \"a\", \"completion\": \"unused\"}\n\n"
      "{\"prompt\": [1, 2], \"output_tokens\": 9, \"seed\": 4, \"body\": {\"n\": 2}}\n");
  ASSERT_TRUE(prompts.ok()) << prompts.status();
  ASSERT_EQ(prompts->size(), 2u);
  EXPECT_EQ((*prompts)[0].text, "a");
  EXPECT_EQ((*prompts)[1].text, json({1, 2}));
  EXPECT_EQ((*prompts)[1].output_tokens, 9);
  EXPECT_EQ((*prompts)[1].body, json({{"n", 2}}));
}

TEST_F(CustomDataset, BadRowsAreNamedByLine) {
  const auto error = [&](const std::string& content) {
    return std::string(Read(content).status().message());
  };
  EXPECT_THAT(error("{\"prompt\": \"a\"}\nnot json\n"), HasSubstr(":2: expected a JSON object"));
  EXPECT_THAT(error("{\"text\": \"a\"}\n"), HasSubstr(":1: prompt"));
  EXPECT_THAT(error("{\"messages\": []}\n"), HasSubstr(":1: messages"));
  EXPECT_THAT(error("{\"messages\": [1], \"prompt\": \"a\"}\n"), HasSubstr(":1: messages"));
  EXPECT_THAT(error("{\"prompt\": \"a\", \"output_tokens\": 0}\n"), HasSubstr("output_tokens"));
  EXPECT_THAT(error("{\"prompt\": \"a\", \"seed\": \"x\"}\n"), HasSubstr("seed"));
  EXPECT_THAT(error("{\"prompt\": \"a\", \"body\": []}\n"), HasSubstr("body"));
  EXPECT_THAT(error(""), HasSubstr("no prompts"));
  EXPECT_THAT(std::string(ReadCustomDataset("/nowhere/x.jsonl").status().message()),
              AllOf(HasSubstr("/nowhere/x.jsonl"), HasSubstr("No such file")));
}

TEST_F(CustomDataset, RowsMayHaveTheMessagesOfAChat) {
  const auto prompts = Read("{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}]}\n");
  ASSERT_TRUE(prompts.ok()) << prompts.status();
  EXPECT_EQ((*prompts)[0].messages, json({{{"role", "system"}, {"content", "s"}}}));
  EXPECT_TRUE((*prompts)[0].text.is_null());
}

class SpecBench : public CustomDataset {
 protected:
  absl::StatusOr<std::vector<Prompt>> Read(const std::string& content, bool all_turns) {
    std::ofstream(path_) << content;
    return ReadSpecBench(path_, all_turns);
  }
};

TEST_F(SpecBench, HasFirstOrAllTurns) {
  const std::string rows =
      "{\"question_id\": 1, \"category\": \"c\", \"turns\": [\"one\", \"two\", \"three\"]}\n"
      "{\"question_id\": 2, \"category\": \"c\", \"turns\": [\"alone\"]}\n";
  const auto first = Read(rows, false), all = Read(rows, true);
  ASSERT_TRUE(first.ok() && all.ok()) << first.status() << all.status();
  EXPECT_EQ((*first)[0].text, "one");
  EXPECT_TRUE((*first)[0].later_turns.empty());
  EXPECT_THAT((*all)[0].later_turns, ElementsAre("two", "three"));
  EXPECT_EQ((*all)[1].text, "alone");
  EXPECT_TRUE((*all)[1].later_turns.empty());
  EXPECT_THAT(std::string(Read("{\"turns\": []}\n", true).status().message()),
              HasSubstr(":1: turns"));
  EXPECT_THAT(std::string(Read("{\"turns\": [1]}\n", false).status().message()),
              HasSubstr(":1: turns"));
}

TEST(TakePrompts, FewerAreSpreadAndMoreAreRepeated) {
  std::vector<Prompt> rows(10);
  for (int i = 0; i < 10; ++i) rows[i].text = std::to_string(i);
  const auto texts = [](const std::vector<Prompt>& prompts) {
    std::string all;
    for (const Prompt& prompt : prompts) all += prompt.text.get<std::string>();
    return all;
  };
  EXPECT_EQ(texts(TakePrompts(rows, 0)), "0123456789");
  EXPECT_EQ(texts(TakePrompts(rows, 5)), "02468");
  EXPECT_EQ(texts(TakePrompts(rows, 13)), "0123456789012");
}

}  // namespace
}  // namespace coppice::loadgen
