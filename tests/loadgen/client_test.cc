#include "loadgen/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "loadgen/endpoint_set.h"
#include "tests/loadgen/null_server.h"

namespace coppice::loadgen {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

void NoProgress(const LoadProgress&) {}

class AgainstNullServer : public ::testing::Test {
 protected:
  AgainstNullServer() {
    plan_.servers.urls = {*ParseBaseUrl(server_.base_url())};
    plan_.endpoint = "/v1/completions";
    plan_.timeout_s = 50;
  }
  void Add(const json& fields, std::vector<std::string> later_turns = {}) {
    prompts_.push_back({.text = "p", .output_tokens = 5, .body = fields});
    prompts_.back().later_turns = std::move(later_turns);
  }
  std::vector<RequestRecord> Run() {
    const RequestSource source(prompts_, {.chat = plan_.endpoint == "/v1/chat/completions"});
    plan_.source = &source;
    if (plan_.conversations == 0) plan_.conversations = source.size();
    auto result = RunLoad(plan_, NoProgress);
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok()) return {};
    result_ = *std::move(result);
    return result_.records;
  }
  NullServer server_;
  std::vector<Prompt> prompts_;
  LoadPlan plan_;
  LoadResult result_;
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

// The server begins its first answer when all requests have arrived.
TEST_F(AgainstNullServer, OpenLoopDoesNotWaitForAnswers) {
  Add({{"null_wait_for", 10}});
  for (int i = 0; i < 9; ++i) Add(json::object());
  for (int i = 0; i < 10; ++i) plan_.arrivals_s.push_back(0.01 * i);
  const std::vector<RequestRecord> records = Run();
  ASSERT_EQ(records.size(), 10u);
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(records[i].ok) << records[i].error;
    EXPECT_DOUBLE_EQ(records[i].intended_s, 0.01 * i);
    EXPECT_GE(records[i].sent_s, records[i].intended_s);
    EXPECT_LT(records[i].sent_s, records[0].text_times_s.front());
  }
}

TEST_F(AgainstNullServer, EveryKindOfFailureIsNamed) {
  Add({{"null_error", "status"}});
  Add({{"null_error", "event"}});
  Add({{"null_error", "cut"}});
  Add(json::object());
  const std::vector<RequestRecord> records = Run();
  ASSERT_EQ(records.size(), 4u);
  EXPECT_EQ(records[0].status, 400);
  EXPECT_EQ(records[0].error, "invalid_value: no");
  EXPECT_EQ(records[1].error, "replica_lost: gone");
  EXPECT_FALSE(records[2].ok);
  EXPECT_FALSE(records[2].timed_out);
  EXPECT_TRUE(records[3].ok) << records[3].error;
}

TEST_F(AgainstNullServer, ARequestHasItsTime) {
  Add({{"null_delay_ms", 60000}});
  plan_.timeout_s = 0.2;
  const std::vector<RequestRecord> records = Run();
  EXPECT_TRUE(records[0].timed_out && records[0].failed());
  EXPECT_EQ(records[0].error, "timed out after 0.2 s");
  EXPECT_GE(records[0].end_s - records[0].sent_s, 0.2);
}

// The server answers when all streams are open, so that they are open at the same time.
TEST_F(AgainstNullServer, HoldsManyStreamsAtATimeAndCountsEveryEvent) {
  constexpr int kStreams = 200;
  for (int i = 0; i < kStreams; ++i) Add({{"null_wait_for", kStreams}});
  plan_.arrivals_s.assign(kStreams, 0.0);
  double first_text = 1e9, last_sent = 0;
  size_t events = 0;
  for (const RequestRecord& r : Run()) {
    EXPECT_TRUE(r.ok) << r.error;
    events += r.text_times_s.size();
    ASSERT_FALSE(r.text_times_s.empty());
    first_text = std::min(first_text, r.text_times_s.front());
    last_sent = std::max(last_sent, r.sent_s);
  }
  EXPECT_EQ(events, 5u * kStreams);
  EXPECT_LT(last_sent, first_text);
  EXPECT_GT(result_.bytes.received, 5 * kStreams * 40);
  EXPECT_GT(result_.bytes.sent, kStreams * 100);
  EXPECT_GT(result_.cpu_s, 0);
}

TEST_F(AgainstNullServer, CancelsAfterItsDelay) {
  for (int i = 0; i < 4; ++i) Add({{"null_delay_ms", 60000}});
  plan_.max_concurrency = 4;
  plan_.cancel_percent = 100;
  plan_.cancel_delay_s = 0.05;
  for (const RequestRecord& r : Run()) {
    EXPECT_TRUE(r.cancelled);
    EXPECT_FALSE(r.ok || r.failed() || r.timed_out);
    EXPECT_GE(r.end_s - r.sent_s, 0.05);
    EXPECT_EQ(r.error, "cancelled after 0.05 s");
  }
}

TEST_F(AgainstNullServer, WhatEndsBeforeItsCancellationIsComplete) {
  Add(json::object());
  plan_.cancel_percent = 100;
  plan_.cancel_delay_s = 40;
  EXPECT_TRUE(Run()[0].ok);
  EXPECT_LT(result_.wall_s, 40);  // no timer is left
}

TEST_F(AgainstNullServer, ADurationEndsTheSending) {
  Add(json::object());
  plan_.conversations = LoadPlan::kEndless;
  plan_.max_concurrency = 2;
  plan_.duration_s = 0.3;
  const std::vector<RequestRecord> records = Run();
  EXPECT_GE(records.size(), 2u);
  EXPECT_GE(result_.wall_s, 0.3);
  for (const RequestRecord& r : records) EXPECT_TRUE(r.ok) << r.error;
}

TEST_F(AgainstNullServer, WhatRunsAfterTheGraceIsCut) {
  Add({{"null_delay_ms", 60000}});
  Add({{"null_delay_ms", 60000}});
  plan_.max_concurrency = 1;
  plan_.arrivals_s = {0, 0.01};
  plan_.duration_s = 0.1;
  plan_.grace_s = 0.1;
  const std::vector<RequestRecord> records = Run();
  EXPECT_TRUE(records[0].unfinished);
  EXPECT_GE(records[0].end_s, 0.2);
  EXPECT_EQ(records[0].endpoint, 0);
  EXPECT_TRUE(records[1].unfinished);  // it waited for room and was never sent
  EXPECT_EQ(records[1].endpoint, -1);
  EXPECT_FALSE(records[0].failed() || records[1].failed());
  EXPECT_LE(server_.bodies().size(), 1u);
}

TEST_F(AgainstNullServer, ALimitMakesArrivalsWaitInTheClient) {
  Add({{"null_delay_ms", 300}});
  Add(json::object());
  plan_.max_concurrency = 1;
  plan_.arrivals_s = {0, 0.01};
  const std::vector<RequestRecord> records = Run();
  EXPECT_EQ(records[1].intended_s, 0.01);
  EXPECT_GE(records[1].sent_s, records[0].end_s);
}

TEST_F(AgainstNullServer, ATurnFollowsTheAnswerToTheOneBefore) {
  plan_.endpoint = "/v1/chat/completions";
  plan_.keep_texts = true;
  Add(json::object(), {"second", "third"});
  const std::vector<RequestRecord> records = Run();
  ASSERT_EQ(records.size(), 3u);
  for (const RequestRecord& r : records) EXPECT_TRUE(r.ok) << r.error;
  EXPECT_EQ(records[0].text, "xxxxx");
  EXPECT_GE(records[1].intended_s, records[0].end_s);
  const json messages = json::parse(server_.bodies()[2])["messages"];
  ASSERT_EQ(messages.size(), 5u);
  EXPECT_EQ(messages[1], json({{"role", "assistant"}, {"content", "xxxxx"}}));
  EXPECT_EQ(messages[4], json({{"role", "user"}, {"content", "third"}}));
}

TEST_F(AgainstNullServer, ATurnAfterAFailureIsNotSent) {
  plan_.endpoint = "/v1/chat/completions";
  Add({{"null_error", "status"}}, {"second"});
  const std::vector<RequestRecord> records = Run();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_TRUE(records[0].failed());
  EXPECT_TRUE(records[1].failed());
  EXPECT_EQ(records[1].endpoint, -1);
  EXPECT_EQ(server_.bodies().size(), 1u);
}

TEST_F(AgainstNullServer, EveryRequestCarriesHeadersAndItsNumber) {
  plan_.servers.headers = {{"Authorization", "Bearer k"}, {"X-Other", "1"}};
  plan_.request_id_prefix = "run-";
  plan_.max_concurrency = 1;
  Add(json::object());
  Add(json::object());
  Run();
  const std::vector<std::string> heads = server_.heads();
  ASSERT_EQ(heads.size(), 2u);
  EXPECT_THAT(heads[0], HasSubstr("\r\nAuthorization: Bearer k\r\n"));
  EXPECT_THAT(heads[1], HasSubstr("\r\nX-Other: 1\r\n"));
  EXPECT_THAT(heads[0], HasSubstr("\r\nX-Request-Id: run-0"));
  EXPECT_THAT(heads[1], HasSubstr("\r\nX-Request-Id: run-1"));
}

TEST_F(AgainstNullServer, ServersTakeTurns) {
  NullServer other;
  plan_.servers.urls.push_back(*ParseBaseUrl(other.base_url()));
  plan_.max_concurrency = 1;
  for (int i = 0; i < 6; ++i) Add(json::object());
  Run();
  EXPECT_EQ(server_.bodies().size(), 3u);
  EXPECT_EQ(other.bodies().size(), 3u);
}

TEST(EndpointSet, LeastInFlightIsChosen) {
  boost::asio::io_context io;
  EndpointSet endpoints(io, EndpointPolicy::kLeastInFlight);
  const BaseUrl url = *ParseBaseUrl("http://127.0.0.1:1");
  ASSERT_TRUE(endpoints.Resolve({.urls = {url, url, url}}).ok());
  EXPECT_EQ(endpoints.Choose(), 0);
  EXPECT_EQ(endpoints.Choose(), 1);
  EXPECT_EQ(endpoints.Choose(), 2);
  endpoints.Done(1);
  EXPECT_EQ(endpoints.Choose(), 1);
  EXPECT_EQ(endpoints.Choose(), 2);  // in turn among equals
  endpoints.Done(0);
  EXPECT_EQ(endpoints.Choose(), 0);
}

TEST(RunLoad, RefusedConnectionFailsTheRequest) {
  LoadPlan plan;
  {
    NullServer gone;
    plan.servers.urls = {*ParseBaseUrl(gone.base_url())};
  }
  plan.endpoint = "/v1/completions";
  const RequestSource source({Prompt{.text = "p"}}, {});
  plan.source = &source;
  plan.conversations = 1;
  const auto result = RunLoad(plan, NoProgress);
  ASSERT_TRUE(result.ok());
  EXPECT_THAT(result->records.front().error, HasSubstr("connect: "));
}

}  // namespace
}  // namespace coppice::loadgen
