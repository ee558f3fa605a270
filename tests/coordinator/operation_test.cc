// What operators see of a request, through a whole coordinator with fake replicas: its log line, its
// trace, and the names of the model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "absl/strings/str_split.h"
#include "base/log.h"
#include "base/trace_context.h"
#include "tests/coordinator/cluster_fixture.h"

namespace coppice::coordinator {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class OperationTest : public ClusterTest {};

std::vector<proto::SequenceUpdate> SayYes(const proto::StartSequence&) { return SayText("yes"); }

// The line that a request leaves in the JSON form of the log.
TEST_F(OperationTest, ARequestIsOneJsonObjectOfTheLog) {
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(InitLog("test", "info", "json").ok());
  options_.dispatcher.log_requests = true;
  StartCluster();
  const auto worker = Join("replica-0", SayYes);
  WaitReady();
  Ask(Post(R"({"prompt": "secret", "max_tokens": 7})",
           "X-Request-Id: first\r\ntraceparent: "
           "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n"));
  Ask(Post(R"({"prompt": "secret", "max_tokens": -7})", "X-Request-Id: second\r\n"));
  StopCluster();
  ASSERT_TRUE(InitLog("test", "info", "text").ok());
  std::map<std::string, json> requests;
  for (const absl::string_view line :
       absl::StrSplit(::testing::internal::GetCapturedStderr(), '\n', absl::SkipEmpty())) {
    const json entry = json::parse(line, nullptr, false);
    ASSERT_TRUE(entry.is_object()) << line;
    for (const char* member : {"time", "level", "message"})
      EXPECT_TRUE(entry[member].is_string()) << line;
    if (entry["message"] == "request") requests[entry["id"]] = entry;
    EXPECT_THAT(std::string(line), ::testing::Not(HasSubstr("secret")));
  }
  ASSERT_EQ(requests.size(), 2);
  const json& answered = requests["first"];
  EXPECT_EQ(answered["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_TRUE(answered["key"].is_null());
  EXPECT_EQ(answered["route"], "/v1/completions");
  EXPECT_EQ(answered["status"], 200);
  EXPECT_TRUE(answered["code"].is_null() && answered["param"].is_null());
  EXPECT_EQ(answered["model"], "demo");
  EXPECT_EQ(answered["decoding"], "multinomial");
  EXPECT_EQ(answered["n"], 1);
  EXPECT_EQ(answered["prompt_tokens"], 7);
  EXPECT_EQ(answered["completion_tokens"], 4);
  EXPECT_EQ(answered["finish"], json({"stop"}));
  EXPECT_EQ(answered["replica"], json({"replica-0"}));
  for (const char* time : {"queue_ms", "first_token_ms", "total_ms", "block_efficiency"})
    EXPECT_TRUE(answered[time].is_number()) << time;
  const json& refused = requests["second"];
  EXPECT_EQ(refused["status"], 400);
  EXPECT_EQ(refused["code"], "invalid_value");
  EXPECT_EQ(refused["param"], "max_tokens");
}

TEST_F(OperationTest, TheTraceOfARequestReachesItsReplicaAndItsTimeline) {
  StartCluster();
  std::vector<proto::StartSequence> starts;
  std::mutex mutex;
  const auto worker = Join("replica-0", [&](const proto::StartSequence& start) {
    const std::lock_guard<std::mutex> lock(mutex);
    starts.push_back(start);
    return SayYes(start);
  });
  WaitReady();
  const std::string id = "4bf92f3577b34da6a3ce929d0e0e4736";
  Ask(Post(R"({"prompt": "a"})", "X-Request-Id: traced\r\ntraceparent: 00-" + id +
                                     "-00f067aa0ba902b7-01\r\ntracestate: a=1\r\n"
                                     "Tracestate: b=2\r\n"));
  Ask(Post(R"({"prompt": "a"})", "traceparent: 00-" + id + "-rubbish\r\ntracestate: a=1\r\n"));
  Ask(Post(R"({"prompt": "a"})"));
  ASSERT_EQ(starts.size(), 3);
  EXPECT_THAT(starts[0].trace().parent(), ::testing::MatchesRegex("00-" + id + "-[0-9a-f]{16}-01"));
  EXPECT_THAT(starts[0].trace().parent(), ::testing::Not(HasSubstr("00f067aa0ba902b7")));
  EXPECT_EQ(starts[0].trace().state(), "a=1,b=2");
  for (int i : {1, 2}) {
    EXPECT_TRUE(ParseTraceParent(starts[i].trace().parent()).has_value());
    EXPECT_THAT(starts[i].trace().parent(), ::testing::Not(HasSubstr(id)));
    EXPECT_EQ(starts[i].trace().state(), "");
  }
  EXPECT_NE(starts[1].trace().parent(), starts[2].trace().parent());
  const json timeline = json::parse(Ask(Get("/admin/timelines/traced")).body);
  for (const json& event : timeline["traceEvents"]) {
    if (event["name"] != "request" || event["ph"] != "X") continue;
    EXPECT_EQ(event["args"]["trace_id"], id);
    EXPECT_EQ(event["args"]["tracestate"], "a=1,b=2");
    EXPECT_EQ(starts[0].trace().parent(),
              absl::StrCat("00-", id, "-", event["args"]["span_id"].get<std::string>(), "-01"));
  }
}

TEST_F(OperationTest, AModelMayHaveSeveralNames) {
  options_.model_names = {"large", "small", "org/third"};
  StartCluster();
  const auto worker = Join("replica-0", SayYes);
  WaitReady();
  const auto answered = [&](const std::string& fields) {
    return json::parse(Ask(Post(absl::StrCat("{\"prompt\": \"a\"", fields, "}"))).body)["model"];
  };
  EXPECT_EQ(answered(""), "large");
  EXPECT_EQ(answered(R"(, "model": "small")"), "small");
  EXPECT_EQ(answered(R"(, "model": "org/third")"), "org/third");
  EXPECT_THAT(Ask(Post(R"({"prompt": "a", "model": "small", "stream": true})")).body,
              HasSubstr("\"model\":\"small\""));
  const std::string body = R"({"prompt": "a", "model": "small"})";
  EXPECT_EQ(Ask(absl::StrCat("POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: ", body.size(),
                             "\r\n\r\n", body))
                .status,
            200);
  const RawAnswer wrong = Ask(Post(R"({"prompt": "a", "model": "smal"})"));
  EXPECT_EQ(wrong.status, 404);
  EXPECT_THAT(wrong.body, HasSubstr("The model 'smal' does not exist; this server has: large, "
                                    "small, org/third; did you mean small?"));
  const json list = json::parse(Ask(Get("/v1/models")).body)["data"];
  ASSERT_EQ(list.size(), 3);
  for (size_t i = 0; i < list.size(); ++i) {
    EXPECT_EQ(list[i]["id"], options_.model_names[i]);
    EXPECT_EQ(json::parse(Ask(Get("/v1/models/" + options_.model_names[i])).body), list[i]);
  }
  EXPECT_EQ(Ask(Get("/v1/models/none")).status, 404);
  EXPECT_EQ(Metric("coppice_request_success_total{finished_reason=\"stop\",model_name=\"large\"}"),
            4);
}

}  // namespace
}  // namespace coppice::coordinator
