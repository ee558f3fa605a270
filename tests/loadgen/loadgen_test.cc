#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "loadgen/client.h"
#include "loadgen/loadgen_main.h"
#include "tests/loadgen/null_server.h"

namespace coppice::loadgen {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

void NoProgress(const LoadProgress&) {}

class AgainstNullServer : public ::testing::Test {
 protected:
  AgainstNullServer() {
    plan_.url = *ParseBaseUrl(server_.base_url());
    plan_.endpoint = "/v1/completions";
    plan_.timeout_s = 20;
  }
  void Add(const json& fields, int tokens = 5) {
    json body = {{"max_tokens", tokens}};
    body.update(fields);
    plan_.bodies.push_back(body.dump());
  }
  std::vector<RequestRecord> Run() {
    auto records = RunLoad(plan_, NoProgress);
    EXPECT_TRUE(records.ok()) << records.status();
    return records.ok() ? *records : std::vector<RequestRecord>();
  }
  NullServer server_;
  LoadPlan plan_;
};

TEST_F(AgainstNullServer, MeasuresEveryStream) {
  for (int i = 0; i < 20; ++i) Add(json::object());
  plan_.max_concurrency = 4;
  int spread = 0;  // streams whose events arrived one by one; a busy machine may delay the client
  for (const RequestRecord& r : Run()) {
    EXPECT_TRUE(r.ok) << r.error;
    EXPECT_EQ(r.status, 200);
    EXPECT_EQ(r.text_times_s.size(), 5u);
    EXPECT_EQ(r.output_tokens, 5);
    EXPECT_EQ(r.prompt_tokens, 3);
    ASSERT_TRUE(r.speculation.has_value());
    EXPECT_EQ(r.speculation->layers, 10);
    EXPECT_GE(r.text_times_s.front(), r.sent_s);
    spread += r.end_s - r.text_times_s.front() > 0.004;  // four gaps of 1 ms
  }
  EXPECT_GE(spread, 3);
}

TEST_F(AgainstNullServer, ClosedLoopKeepsToItsConcurrency) {
  for (int i = 0; i < 12; ++i) Add({{"null_delay_ms", 5}});
  plan_.max_concurrency = 3;
  const std::vector<RequestRecord> records = Run();
  for (const RequestRecord& a : records) {
    int open = 0;
    for (const RequestRecord& b : records) open += b.sent_s <= a.sent_s && a.sent_s < b.end_s;
    EXPECT_LE(open, 3);
  }
}

// The server stalls its first answer. The later requests are still sent on time.
TEST_F(AgainstNullServer, OpenLoopDoesNotWaitForAnswers) {
  Add({{"null_delay_ms", 1500}});
  for (int i = 0; i < 9; ++i) Add(json::object());
  for (int i = 0; i < 10; ++i) plan_.arrivals_s.push_back(0.01 * i);
  const std::vector<RequestRecord> records = Run();
  ASSERT_EQ(records.size(), 10u);
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(records[i].ok) << records[i].error;
    EXPECT_DOUBLE_EQ(records[i].intended_s, 0.01 * i);
    EXPECT_GE(records[i].sent_s, records[i].intended_s);
    EXPECT_LT(records[i].sent_s, 1.2) << "sent only after the stalled answer";
  }
  EXPECT_GT(records[0].end_s, 1.5);
}

TEST_F(AgainstNullServer, EveryKindOfFailureIsNamed) {
  Add({{"null_error", "status"}});
  Add({{"null_error", "event"}});
  Add({{"null_error", "cut"}});
  Add({{"null_delay_ms", 1500}});
  Add(json::object());
  plan_.timeout_s = 0.5;
  const std::vector<RequestRecord> records = Run();
  ASSERT_EQ(records.size(), 5u);
  EXPECT_EQ(records[0].status, 400);
  EXPECT_EQ(records[0].error, "invalid_value: no");
  EXPECT_EQ(records[1].error, "replica_lost: gone");
  EXPECT_FALSE(records[2].ok);
  EXPECT_FALSE(records[2].timed_out);
  EXPECT_TRUE(records[3].timed_out);
  EXPECT_THAT(records[3].error, HasSubstr("timed out after 0.5 s"));
  EXPECT_TRUE(records[4].ok) << records[4].error;
}

TEST(RunLoad, RefusedConnectionFailsTheRequest) {
  LoadPlan plan;
  {
    NullServer gone;
    plan.url = *ParseBaseUrl(gone.base_url());
  }
  plan.endpoint = "/v1/completions";
  plan.bodies = {"{}"};
  const auto records = RunLoad(plan, NoProgress);
  ASSERT_TRUE(records.ok());
  EXPECT_THAT(records->front().error, HasSubstr("connect: "));
}

class WholeProgram : public ::testing::Test {
 protected:
  WholeProgram() {
    options_.base_url_text = server_.base_url();
    options_.base_url = *ParseBaseUrl(server_.base_url());
    options_.endpoint = "/v1/completions";
    options_.dataset_name = "random";
    options_.num_prompts = 10;
    options_.input_len = 4;
    options_.output_len = 3;
    options_.request_rate = std::numeric_limits<double>::infinity();
    options_.request_timeout_s = 20;
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
  EXPECT_EQ(result["layers_per_pass"], 2.5);
  EXPECT_EQ(result["status_counts"]["200"], 10);
  EXPECT_EQ(result["valid"], true);
  const json body = json::parse(server_.bodies().back());
  EXPECT_EQ(body["prompt"].size(), 4u);
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
  options_.request_rate = 1000;
  options_.burstiness = 1;
  options_.max_send_lag_ms = 1e-6;  // no client is that quick
  EXPECT_EQ(RunLoadgen(options_, "test"), 3);
  EXPECT_EQ(Result()["valid"], false);
}

}  // namespace
}  // namespace coppice::loadgen
