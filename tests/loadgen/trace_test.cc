#include "loadgen/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace coppice::loadgen {
namespace {

using ::testing::HasSubstr;

class Traces : public ::testing::Test {
 protected:
  ~Traces() override { std::filesystem::remove(path_); }
  absl::StatusOr<Trace> Azure(const std::string& content) {
    std::ofstream(path_) << content;
    return ReadAzureTrace(path_);
  }
  absl::StatusOr<Trace> BurstGpt(const std::string& content) {
    std::ofstream(path_) << content;
    return ReadBurstGptTrace(path_);
  }
  const std::string path_ = (std::filesystem::temp_directory_path() /
                             ("coppice-trace-" + std::to_string(::getpid()) + ".csv"))
                                .string();
};

TEST_F(Traces, AzureRowsAreReadByTime) {
  const auto trace = Azure(
      "\xef\xbb\xbfTIMESTAMP,ContextTokens,GeneratedTokens\r\n"
      "2030-01-01 23:59:59.5000000,11,3\r\n"
      "2030-01-02 00:00:01.7500000,13,5\r\n\r\n"
      "2030-01-02 00:00:00.0000000,12,4\r\n");
  ASSERT_TRUE(trace.ok()) << trace.status();
  ASSERT_EQ(trace->prompts.size(), 3u);
  EXPECT_NEAR(trace->prompts[1].at_s, 0.5, 1e-6);
  EXPECT_NEAR(trace->prompts[2].at_s, 2.25, 1e-6);
  EXPECT_EQ(trace->prompts[0].at_s, 0);
  EXPECT_EQ(trace->prompts[1].input_len, 12);
  EXPECT_EQ(trace->prompts[1].output_tokens, 4);
  EXPECT_TRUE(Azure("ContextTokens,GeneratedTokens,TIMESTAMP\n"
                    "1,2,2030-05-01 00:00:00.25+00:00\n")
                  .ok());
}

TEST_F(Traces, BurstGptHasSecondsAndMoreColumns) {
  const auto trace = BurstGpt(
      "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
      "40,A,7,2,9,\"Conversation log\"\n41.5,B,8,0,8,API log\n");
  ASSERT_TRUE(trace.ok()) << trace.status();
  ASSERT_EQ(trace->prompts.size(), 2u);
  EXPECT_EQ(trace->prompts[1].at_s, 1.5);
  EXPECT_EQ(trace->prompts[0].input_len, 7);
  EXPECT_EQ(trace->prompts[0].output_tokens, 2);
}

TEST_F(Traces, BadRowsAreNamedByLine) {
  const auto error = [&](const std::string& content) {
    return std::string(Azure(content).status().message());
  };
  const std::string head = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
  EXPECT_THAT(error("a,b\n"), HasSubstr(":1: expected the columns TIMESTAMP"));
  EXPECT_THAT(error(head), HasSubstr("no rows"));
  EXPECT_THAT(error(head + "yesterday,1,2\n"), HasSubstr(":2: bad time 'yesterday'"));
  EXPECT_THAT(error(head + "2030-01-01 00:00:00,1\n"), HasSubstr(":2: too few columns"));
  EXPECT_THAT(error(head + "2030-01-01 00:00:00,1,-2\n"), HasSubstr(":2: expected numbers"));
  EXPECT_THAT(std::string(ReadAzureTrace("/nowhere/x.csv").status().message()),
              HasSubstr("/nowhere/x.csv: No such file"));
}

TEST(CutTrace, TakesAWindowAndDropsWhatDoesNotFit) {
  Trace trace;
  for (int i = 0; i < 10; ++i) {
    trace.prompts.emplace_back();
    trace.prompts.back().at_s = i;
    trace.prompts.back().input_len = 10 * i;
    trace.prompts.back().output_tokens = 5;
  }
  const Trace all = CutTrace(trace, 0, 0, 1, 0);
  EXPECT_EQ(all.prompts.size(), 9u);
  EXPECT_EQ(all.empty_rows, 1);
  const Trace window = CutTrace(trace, 3, 4, 2, 55);  // rows 3 to 6; row 6 is too long
  ASSERT_EQ(window.prompts.size(), 3u);
  EXPECT_EQ(window.too_long_rows, 1);
  EXPECT_EQ(window.prompts[0].at_s, 0);
  EXPECT_EQ(window.prompts[2].at_s, 1);  // 2 s of the trace at twice its speed
  EXPECT_EQ(window.prompts[2].input_len, 50);
}

}  // namespace
}  // namespace coppice::loadgen
