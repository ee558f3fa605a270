// Keys, rate limits, tokenize, cancel, timelines and traces, through a whole coordinator with fake replicas.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ringbuffer_sink.h>
#include <spdlog/spdlog.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/coordinator/admin_fixture.h"

namespace coppice::coordinator {
namespace {

using nlohmann::json;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

TEST_F(AdminTest, TokenizeAndDetokenize) {
  chat_template_ = "{% for m in messages %}<{{ m.content }}>{% endfor %}";
  StartCluster();
  json answer = json::parse(Ask(Call("POST", "/tokenize", R"({"prompt": "hé"})")).body);
  EXPECT_EQ(answer["tokens"], json({257, 'h', 0xc3, 0xa9}));
  EXPECT_EQ(answer["count"], 4);
  EXPECT_TRUE(answer["max_model_len"].is_null());
  answer = json::parse(Ask(Call("POST", "/tokenize",
                                R"({"prompt": "ab", "add_special_tokens": false,
                                    "return_token_strs": true, "model": "demo"})"))
                           .body);
  EXPECT_EQ(answer["tokens"], json({'a', 'b'}));
  EXPECT_EQ(answer["token_strs"], json({"a", "b"}));
  answer = json::parse(
      Ask(Call("POST", "/tokenize", R"({"messages": [{"role": "user", "content": "u"}]})")).body);
  EXPECT_EQ(answer["tokens"], json({'<', 'u', '>'}));
  answer = json::parse(Ask(Call("POST", "/detokenize", R"({"tokens": [104, 195, 169]})")).body);
  EXPECT_EQ(answer["prompt"], "h\xc3\xa9");
}

TEST_F(AdminTest, IgnoredFieldsAreNamedAndCounted) {
  chat_template_ = "{{ messages[0].content }}";
  StartCluster();
  const auto named = [&](const char* path, const char* body) {
    const RawAnswer answer = Ask(Call("POST", path, body));
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.head;
  };
  EXPECT_THAT(named("/tokenize", R"({"prompt": "a", "foo": 1, "model": ""})"),
              HasSubstr("\r\nX-Coppice-Ignored: foo\r\n"));
  EXPECT_THAT(named("/tokenize", R"({"messages": [{"role": "user", "content": "a", "x": 1}]})"),
              HasSubstr("\r\nX-Coppice-Ignored: messages[].x\r\n"));
  EXPECT_THAT(named("/detokenize", R"({"tokens": [65], "bar": 1})"),
              HasSubstr("\r\nX-Coppice-Ignored: bar\r\n"));
  EXPECT_THAT(named("/detokenize", R"({"tokens": [65], "bar": null})"),
              ::testing::Not(HasSubstr("X-Coppice-Ignored")));
  EXPECT_THAT(Ask(Get("/metrics")).body,
              HasSubstr("request_fields_ignored_total{field=\"other\",model_name=\"demo\"} 3"));
}

TEST_F(AdminTest, BadTokenizeRequestsNameTheField) {
  StartCluster();
  const auto refused = [&](const char* path, const char* body) {
    const RawAnswer answer = Ask(Call("POST", path, body));
    EXPECT_GE(answer.status, 400) << body;
    const json error = json::parse(answer.body)["error"];
    return absl::StrCat(error["code"].get<std::string>(), " ",
                        error["param"].is_null() ? "" : error["param"].get<std::string>());
  };
  EXPECT_EQ(refused("/tokenize", "{}"), "missing_field prompt");
  EXPECT_EQ(refused("/tokenize", R"({"prompt": ["a"]})"), "invalid_type prompt");
  EXPECT_EQ(refused("/tokenize", R"({"prompt": "a", "messages": [1]})"),
            "unsupported_combination prompt");
  EXPECT_EQ(refused("/tokenize", R"({"messages": [{"role": "user", "content": "a"}]})"),
            "no_chat_template messages");
  EXPECT_EQ(refused("/tokenize", R"({"prompt": "a", "model": "b"})"), "model_not_found model");
  EXPECT_EQ(refused("/detokenize", "{}"), "missing_field tokens");
  EXPECT_EQ(refused("/detokenize", R"({"tokens": [258]})"), "invalid_value tokens");
  EXPECT_EQ(refused("/detokenize", R"({"tokens": "a"})"), "invalid_type tokens");
}

TEST_F(AdminTest, KeysAreAskedForAndReloaded) {
  const std::string users = folder_.path() + "/users", admins = folder_.path() + "/admins";
  std::ofstream(users) << "first-key-0123456789 alice\n";
  std::ofstream(admins) << "admin-key-0123456789\n";
  options_.api_keys_file = users;
  options_.admin_keys_file = admins;
  StartCluster();
  const auto with = [](const std::string& key) { return "Authorization: Bearer " + key + "\r\n"; };
  const RawAnswer missing = Ask(Get("/v1/models"));
  EXPECT_EQ(Code(missing, 401), "missing_api_key");
  EXPECT_THAT(missing.head, HasSubstr("WWW-Authenticate: Bearer"));
  EXPECT_EQ(Code(Ask(Get("/v1/models", with("first-key-012345678"))), 401), "invalid_api_key");
  EXPECT_EQ(Ask(Get("/v1/models", with("first-key-0123456789"))).status, 200);
  EXPECT_EQ(Ask(Get("/health")).status, 200);
  EXPECT_EQ(Code(Ask(Get("/cluster", with("first-key-0123456789"))), 403), "admin_only");
  EXPECT_EQ(Ask(Get("/cluster", with("admin-key-0123456789"))).status, 200);

  std::ofstream(users) << "other-key-0123456789\n";
  coordinator_->Reload();
  EXPECT_TRUE(Eventually(
      [&] { return Ask(Get("/v1/models", with("other-key-0123456789"))).status == 200; }));
  EXPECT_EQ(Code(Ask(Get("/v1/models", with("first-key-0123456789"))), 401), "invalid_api_key");
  std::ofstream(users) << "short\n";
  coordinator_->Reload();  // keeps what it has
  EXPECT_EQ(Ask(Get("/v1/models", with("other-key-0123456789"))).status, 200);
}

TEST_F(AdminTest, MetricsMayNeedAKey) {
  options_.api_keys_file = folder_.path() + "/users";
  std::ofstream(options_.api_keys_file) << "first-key-0123456789\n";
  options_.metrics_require_key = true;
  StartCluster();
  EXPECT_EQ(Code(Ask(Get("/metrics")), 401), "missing_api_key");
  EXPECT_EQ(Ask(Get("/metrics", "Authorization: Bearer first-key-0123456789\r\n")).status, 200);
}

TEST_F(AdminTest, RequestsBeyondTheRateAreRefused) {
  options_.max_requests_per_minute = 2;
  StartCluster();
  const auto worker = Join("replica-0", Short);
  WaitReady();
  EXPECT_EQ(Ask(Post(R"({"prompt": "a"})")).status, 200);
  EXPECT_EQ(Ask(Post(R"({"prompt": "a"})")).status, 200);
  const RawAnswer refused = Ask(Post(R"({"prompt": "a"})"));
  EXPECT_EQ(Code(refused, 429), "rate_limited");
  EXPECT_THAT(refused.head, HasSubstr("Retry-After: "));
  EXPECT_EQ(Ask(Call("POST", "/tokenize", R"({"prompt": "a"})")).status, 200);
}

TEST_F(AdminTest, RefusedRequestsAreLoggedWithoutTheirContent) {
  const auto lines = std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(64);
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", lines));
  options_.dispatcher.log_requests = true;
  options_.dispatcher.limits.refuse_unknown_fields = true;
  options_.max_requests_per_minute = 1;
  StartCluster();
  Ask(Post(R"({"prompt": "secret", "odd field": 1})", "X-Request-Id: first\r\n"));
  Ask(Post(R"({"prompt": "secret"})", "X-Request-Id: second\r\n"));
  StopCluster();
  spdlog::set_default_logger(before);
  std::string log;
  for (const std::string& line : lines->last_formatted()) log += line;
  EXPECT_THAT(log, ContainsRegex("request id=first trace_id=[0-9a-f]{32} key=- "
                                 "route=/v1/completions status=400 code=unknown_field "
                                 "param=\"odd field\""));
  EXPECT_THAT(log, ContainsRegex("request id=second trace_id=[0-9a-f]{32} key=- "
                                 "route=/v1/completions status=429 code=rate_limited param=-"));
  EXPECT_THAT(log, ::testing::Not(HasSubstr("secret")));
}

TEST_F(AdminTest, ARequestIsCancelledByItsId) {
  StartCluster();
  const auto worker = Join("replica-0", Long, /*step_s=*/0.05);
  WaitReady();
  const auto running = Begin(*worker, "X-Request-Id: mine:1\r\n");
  EXPECT_EQ(Code(Ask(Call("DELETE", "/admin/requests/other", "")), 404), "unknown_request");
  const RawAnswer answer = Ask(Call("DELETE", "/admin/requests/mine%3A1", ""));
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(json::parse(answer.body)["cancelled"], 1);
  const std::string body = running->ReadAnswer().body;
  EXPECT_THAT(body, HasSubstr("\"code\":\"cancelled\""));
  EXPECT_EQ(body.find("[DONE]"), std::string::npos);
  EXPECT_TRUE(Eventually([&] { return worker->cancelled() == 1; }));
}

std::vector<proto::SequenceUpdate> Timed(const proto::StartSequence& start) {
  std::vector<proto::SequenceUpdate> updates = SayText("ab");
  if (!start.timeline()) return updates;
  proto::RoundTimes* times = updates[1].add_rounds();
  times->set_round(3);
  times->set_end_s(0.010);
  times->set_round_s(0.008);
  times->set_forward_s(0.004);
  times->set_commit_s(0.001);
  times->set_draft_wait_s(0.003);
  times->set_draft_s(0.002);
  times->set_depth(2);
  times->set_draft_source(proto::NODE_DRAFT);
  return updates;
}

TEST_F(AdminTest, ATimelineHasThePartsOfEachRound) {
  StartCluster();
  const auto worker = Join("replica-0", Timed);
  WaitReady();
  EXPECT_EQ(Ask(Post(R"({"prompt": "a"})", "X-Request-Id: timed\r\n")).status, 200);
  const json trace = json::parse(Ask(Get("/admin/timelines/timed")).body);
  std::map<std::string, json> spans;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") spans[event["name"]] = event;
  }
  for (const char* name :
       {"request", "queue", "prefill", "round", "wait", "draft", "verify", "commit"})
    EXPECT_EQ(spans.count(name), 1) << name;
  const auto end = [&](const char* name) {
    return spans[name]["ts"].get<double>() + spans[name]["dur"].get<double>();
  };
  EXPECT_NEAR(spans["round"]["dur"], 8000, 0.01);
  EXPECT_NEAR(end("round"), end("commit"), 0.01);
  EXPECT_NEAR(end("verify"), spans["commit"]["ts"], 0.01);
  EXPECT_NEAR(spans["wait"]["ts"], spans["round"]["ts"], 0.01);
  EXPECT_NE(spans["draft"]["tid"], spans["round"]["tid"]);
  EXPECT_EQ(spans["round"]["args"]["draft"], "node");
  EXPECT_EQ(spans["request"]["args"]["id"], "timed");
  EXPECT_EQ(Code(Ask(Get("/admin/timelines/other")), 404), "unknown_request");
}

TEST_F(AdminTest, ATraceHasTheSpansOfAllReplicasAndTheRequestsMeanwhile) {
  StartCluster();
  const auto first = Join("replica-\"0", Short), second = Join("replica-1", Short);
  WaitReplicas(2);
  RawClient traces(port());
  traces.Send(Get("/debug/trace?a=1&seconds=0.3"));
  EXPECT_TRUE(Eventually(
      [this] { return Code(Ask(Get("/debug/trace?seconds=0.01")), 503) == "trace_under_way"; }));
  EXPECT_EQ(Ask(Post(R"({"prompt": "a"})", "X-Request-Id: asked\r\n")).status, 200);
  const RawAnswer answer = traces.ReadAnswer();
  EXPECT_EQ(answer.status, 200);
  const json trace = json::parse(answer.body);
  std::map<int, std::string> processes;
  std::map<std::string, int> events;
  for (const json& event : trace["traceEvents"]) {
    if (event["name"] == "process_name") processes[event["pid"]] = event["args"]["name"];
    const std::string phase = event["ph"];
    ++events[absl::StrCat(event["name"].get<std::string>(), " ", phase)];
    if (event["name"] == "verdict") {
      EXPECT_NEAR(event["ts"], 250000, 0.01);
      EXPECT_NEAR(event["dur"], 500000, 0.01);
      EXPECT_EQ(event["args"]["sequence"], "1152921504606846977");
      EXPECT_EQ(event["args"]["rows"], 3);
    }
  }
  EXPECT_EQ(processes,
            (std::map<int, std::string>{{1, "coordinator"}, {2, "replica-\"0"}, {3, "replica-1"}}));
  EXPECT_EQ(events["step X"], 2);
  EXPECT_EQ(events["round b"], 2);
  EXPECT_EQ(events["round e"], 2);
  EXPECT_EQ(events["request b"], 1);
  EXPECT_EQ(events["queue e"], 1);
  EXPECT_EQ(trace["otherData"]["dropped_spans"], 14);
  EXPECT_EQ(trace["otherData"]["missing_replicas"], json::array());
}

TEST_F(AdminTest, ATraceDoesWithoutAReplicaThatIsSilent) {
  StartCluster();
  const auto worker = Join("replica-0", Short);
  WaitReady();
  worker->set_traces(false);
  const json trace = json::parse(Ask(Get("/debug/trace?seconds=0.01")).body);
  EXPECT_EQ(trace["otherData"]["missing_replicas"], json({"replica-0"}));
  for (const char* bad : {"0", "-1", "61", "nan", "x", ""})
    EXPECT_EQ(Code(Ask(Get(absl::StrCat("/debug/trace?seconds=", bad))), 400), "invalid_value");
}

TEST_F(AdminTest, OnlyTheLastTimelinesAreKept) {
  options_.dispatcher.timelines = 2;
  StartCluster();
  const auto worker = Join("replica-0", Timed);
  WaitReady();
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(Ask(Post(R"({"prompt": "a"})", absl::StrCat("X-Request-Id: t", i, "\r\n"))).status,
              200);
  EXPECT_EQ(Ask(Get("/admin/timelines/t0")).status, 404);
  EXPECT_EQ(Ask(Get("/admin/timelines/t1")).status, 200);
  EXPECT_EQ(Ask(Get("/admin/timelines/t2")).status, 200);
}

}  // namespace
}  // namespace coppice::coordinator
