#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "loadgen/loadgen_main.h"
#include "tests/loadgen/null_server.h"

namespace coppice::loadgen {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class WholeProgram : public ::testing::Test {
 protected:
  WholeProgram() {
    options_.servers.urls = {*ParseBaseUrl(server_.base_url())};
    options_.endpoint = "/v1/completions";
    options_.dataset_name = "random";
    options_.num_prompts = 10;
    options_.input_len = 4;
    options_.output_len = 3;
    options_.request_timeout_s = 50;
    options_.max_failed_percent = 1;
    options_.max_send_lag_ms = 10;
    options_.result_dir = dir_;
    options_.result_filename = "result.json";
    options_.save_result = true;
  }
  ~WholeProgram() override { std::filesystem::remove_all(dir_); }
  json Result() {
    std::ifstream file(dir_ + "/result.json");
    return json::parse(file);
  }
  NullServer server_;
  LoadgenOptions options_;
  const std::string dir_ =
      (std::filesystem::temp_directory_path() / ("coppice-loadgen-" + std::to_string(::getpid())))
          .string();
};

TEST_F(WholeProgram, WritesTheResult) {
  options_.max_concurrency = 2;
  options_.num_warmups = 3;
  EXPECT_EQ(RunLoadgen(options_, "test"), 0);
  const json result = Result();
  EXPECT_EQ(result["model_id"], "null-model");
  EXPECT_EQ(result["completed"], 10);  // warm-ups are not counted
  EXPECT_EQ(server_.bodies().size(), 13u);
  EXPECT_EQ(result["total_output_tokens"], 30);
  EXPECT_EQ(result["block_efficiency"], 2.5);
  EXPECT_EQ(result["status_counts"]["200"], 10);
  EXPECT_EQ(result["valid"], true);
  const json body = json::parse(server_.bodies().back());
  EXPECT_EQ(body["prompt"].size(), 4u);
  EXPECT_EQ(result["server_version"], "null-1");
  EXPECT_EQ(result["endpoints"][0]["completed"], 10);
  EXPECT_EQ(result["request_rate"], "inf");
}

TEST_F(WholeProgram, WarmUpsAreNotTheRunsPrompts) {
  options_.num_warmups = 1;
  options_.num_prompts = 1;
  EXPECT_EQ(RunLoadgen(options_, "test"), 0);
  ASSERT_EQ(server_.bodies().size(), 2u);
  EXPECT_NE(json::parse(server_.bodies()[0])["prompt"], json::parse(server_.bodies()[1])["prompt"]);
}

TEST_F(WholeProgram, AWarmUpMayLastATime) {
  options_.warmup_s = 0.2;
  options_.num_prompts = 1;
  EXPECT_EQ(RunLoadgen(options_, "test"), 0);
  EXPECT_EQ(Result()["completed"], 1);
  EXPECT_GT(server_.bodies().size(), 2u);
}

TEST_F(WholeProgram, ATraceIsSentAtItsTimesAndLengths) {
  std::filesystem::create_directories(dir_);
  options_.dataset_name = "azure";
  options_.dataset_path = dir_ + "/trace.csv";
  options_.num_prompts = 0;
  std::ofstream(options_.dataset_path) << "TIMESTAMP,ContextTokens,GeneratedTokens\n"
                                          "2030-01-01 00:00:00.0,7,2\n"
                                          "2030-01-01 00:00:00.1,99,2\n"  // longer than the model
                                          "2030-01-01 00:00:00.4,8,3\n";
  options_.save_detailed = true;
  options_.max_send_lag_ms = 10000;
  EXPECT_EQ(RunLoadgen(options_, "test"), 0);
  const json result = Result();
  EXPECT_EQ(result["dropped_rows"], 1);
  EXPECT_EQ(result["completed"], 2);
  EXPECT_EQ(result["output_lens"], json({2, 3}));
  EXPECT_TRUE(result["request_rate"].is_null());
  EXPECT_GE(result["start_times"][1].get<double>(), 0.4);
  EXPECT_TRUE(result["send_lag_ms"].is_object());
  for (const std::string& text : server_.bodies()) {
    const json body = json::parse(text);
    EXPECT_EQ(body["prompt"].size(), body["max_tokens"] == 2 ? 7u : 8u);
  }
}

TEST_F(WholeProgram, TextOfTheLengthIsFittedForChats) {
  options_.endpoint = "/v1/chat/completions";
  options_.text_form = true;
  options_.input_len = 9;
  options_.num_prompts = 2;
  EXPECT_EQ(RunLoadgen(options_, "test"), 0);
  for (const std::string& body : server_.bodies()) {
    const std::string text = json::parse(body)["messages"][0]["content"];
    EXPECT_EQ(std::count(text.begin(), text.end(), ' '), 7) << text;  // 8 words and one token more
  }
}

TEST_F(WholeProgram, GoodputAndCancellationsAreInTheResult) {
  options_.objectives = {.e2el_ms = 1e9};
  options_.cancel_percent = 50;
  options_.cancel_delay_s = 0;
  options_.max_concurrency = 1;
  options_.num_prompts = 20;
  options_.save_detailed = options_.save_texts = true;
  EXPECT_EQ(RunLoadgen(options_, "test"), 0);
  const json result = Result();
  EXPECT_GT(result["cancelled"], 2);
  EXPECT_GT(result["completed"], 2);
  EXPECT_EQ(result["failed"], 0);
  EXPECT_EQ(result["good_share"], 1.0);
  EXPECT_GT(result["request_goodput"], 0);
  EXPECT_EQ(result["generated_texts"].size(), 20u);
}

TEST_F(WholeProgram, TooManyFailuresAreStatusOne) {
  options_.body_fields["null_error"] = "status";
  EXPECT_EQ(RunLoadgen(options_, "test"), 1);
  EXPECT_EQ(Result()["failed"], 10);
  options_.max_failed_percent = 100;
  EXPECT_EQ(RunLoadgen(options_, "test"), 0);
}

TEST_F(WholeProgram, BadDatasetIsStatusTwo) {
  options_.dataset_name = "custom";
  options_.dataset_path = dir_ + "/none.jsonl";
  EXPECT_EQ(RunLoadgen(options_, "test"), 2);
}

TEST_F(WholeProgram, MetadataNeverReplacesAResult) {
  options_.metadata = {"host=here"};
  EXPECT_EQ(RunLoadgen(options_, "test"), 0);
  EXPECT_EQ(Result()["host"], "here");
  options_.metadata = {"completed=1"};
  EXPECT_EQ(RunLoadgen(options_, "test"), 2);
}

TEST_F(WholeProgram, LateClientIsStatusThree) {
  options_.arrivals.rate = 1000;
  options_.max_send_lag_ms = 1e-6;  // no client is that quick
  EXPECT_EQ(RunLoadgen(options_, "test"), 3);
  EXPECT_EQ(Result()["valid"], false);
}

}  // namespace
}  // namespace coppice::loadgen
