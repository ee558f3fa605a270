// Keys, rate limits, tokenize, drain and cancel, through a whole coordinator with fake replicas.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ringbuffer_sink.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/coordinator/cluster_fixture.h"
#include "tests/testing/temp_dir.h"

namespace coppice::coordinator {
namespace {

using nlohmann::json;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

std::vector<proto::SequenceUpdate> Short(const proto::StartSequence&) { return SayText("yes"); }
std::vector<proto::SequenceUpdate> Long(const proto::StartSequence&) {
  return SayText(std::string(200, 'x'));
}

std::string Call(const std::string& method, const std::string& path, const std::string& body,
                 const std::string& headers = "") {
  return absl::StrCat(method, " ", path, " HTTP/1.1\r\nHost: x\r\n", headers,
                      "Content-Length: ", body.size(), "\r\n\r\n", body);
}

class AdminTest : public ClusterTest {
 protected:
  std::string Code(const RawAnswer& answer, int status) {
    EXPECT_EQ(answer.status, status) << answer.body;
    return json::parse(answer.body, nullptr, false).value("/error/code"_json_pointer, "");
  }
  RawAnswer Admin(const std::string& what, const std::string& body) {
    return Ask(Call("POST", "/admin/" + what, body));
  }
  // Sends a long completion and waits until it runs.
  std::unique_ptr<RawClient> Begin(const FakeWorker& worker, const std::string& headers = "") {
    const int before = worker.started();
    auto client = std::make_unique<RawClient>(port());
    client->Send(Post(R"({"prompt": "a", "stream": true})", headers));
    EXPECT_TRUE(Eventually([&] { return worker.started() > before; }));
    return client;
  }
  // Before StartCluster. Answers as Short does, but waits for go_ first. Meanwhile the replica
  // neither beats nor takes what arrives.
  FakeWorker::Script Held() {
    options_.registry.heartbeat_interval_s = 20;
    return [this](const proto::StartSequence& start) {
      Eventually([this] { return go_.load(); });
      return Short(start);
    };
  }
  test::TempDir folder_;
  std::atomic<bool> go_ = false;
};

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

TEST_F(AdminTest, ADrainedClusterTakesNothingAndComesBack) {
  const FakeWorker::Script held = Held();
  StartCluster();
  const auto worker = Join("replica-0", held);
  WaitReady();
  const auto running = Begin(*worker);
  const RawAnswer drained = Admin("drain", R"({"target": "cluster"})");
  EXPECT_EQ(drained.status, 202);
  EXPECT_EQ(json::parse(drained.body)["state"], "draining");
  EXPECT_EQ(json::parse(drained.body)["running"], 1);
  EXPECT_EQ(Code(Ask(Post(R"({"prompt": "a"})")), 503), "draining");
  EXPECT_EQ(Code(Ask(Get("/ready")), 503), "draining");
  EXPECT_EQ(Ask(Get("/health")).status, 200);
  go_ = true;
  EXPECT_THAT(running->ReadAnswer().body, HasSubstr("[DONE]"));  // what ran is finished
  EXPECT_EQ(Admin("undrain", R"({"target": "cluster"})").status, 202);
  EXPECT_EQ(Ask(Post(R"({"prompt": "a"})")).status, 200);
}

// A browser sends the Origin of the page with every POST, and no Content-Type with a Blob.
TEST_F(AdminTest, AWebPageCannotDrain) {
  StartCluster();
  const std::string body = R"({"target": "cluster"})";
  for (const char* origin :
       {"Origin: https://example.org\r\n", "Origin: null\r\n", "origin:\r\n"}) {
    EXPECT_EQ(Code(Ask(Call("POST", "/admin/drain", body, origin)), 403), "admin_only");
    EXPECT_EQ(Code(Ask(Get("/cluster", origin)), 403), "admin_only");
  }
  EXPECT_EQ(json::parse(Ask(Get("/cluster")).body)["state"], "starting");
  EXPECT_EQ(Ask(Call("POST", "/admin/drain", body)).status, 202);
}

TEST_F(AdminTest, ADrainedReplicaFinishesWhatItHolds) {
  const FakeWorker::Script held = Held();
  StartCluster();
  const auto first = Join("replica-0", held), second = Join("replica-1", Short);
  WaitReady();
  ASSERT_TRUE(Eventually([this] { return Metric("coppice_replica_up{id=\"replica-1\"}") == 1; }));
  EXPECT_EQ(Admin("drain", R"({"target": "replica:replica-1"})").status, 202);
  const auto running = Begin(*first);
  RawClient also(port());  // is held there too, though the drained one is idle
  also.Send(Post(R"({"prompt": "a", "stream": true})"));
  EXPECT_TRUE(Eventually(
      [this] { return json::parse(Ask(Get("/cluster")).body)["requests"]["running"] == 2; }));
  EXPECT_EQ(second->started(), 0);
  EXPECT_EQ(json::parse(Admin("drain", R"({"target": "replica:replica-0"})").body)["running"], 2);
  EXPECT_EQ(Admin("undrain", R"({"target": "replica:replica-1"})").status, 202);
  const json state = json::parse(Ask(Get("/cluster")).body);
  EXPECT_EQ(state["replicas"][0]["state"], "draining");
  EXPECT_EQ(state["replicas"][1]["state"], "ready");
  EXPECT_EQ(Ask(Post(R"({"prompt": "a"})")).status, 200);
  EXPECT_EQ(second->started(), 1);
  go_ = true;
  EXPECT_THAT(running->ReadAnswer().body, HasSubstr("[DONE]"));
  EXPECT_THAT(also.ReadAnswer().body, HasSubstr("[DONE]"));
  EXPECT_EQ(first->started(), 2);
}

TEST_F(AdminTest, AfterItsTimeoutADrainMovesTheRest) {
  StartCluster();
  const auto first = Join("replica-0", Long, /*step_s=*/0.05);
  WaitReady();
  const auto running = Begin(*first);
  const auto second = Join("replica-1", Long);
  ASSERT_TRUE(Eventually([this] { return Metric("coppice_replica_up{id=\"replica-1\"}") == 1; }));
  EXPECT_EQ(Admin("drain", R"({"target": "replica:replica-0", "timeout": 0})").status, 202);
  const std::string body = running->ReadAnswer().body;  // 200 steps of 50 ms would take too long
  EXPECT_THAT(body, HasSubstr("[DONE]"));
  EXPECT_TRUE(Eventually([&] { return first->cancelled() == 1; }));
  EXPECT_EQ(second->started(), 1);
}

TEST_F(AdminTest, ADrainMayMoveWhatCanStartAgainAndLeaveTheRest) {
  StartCluster();
  const auto first = Join("replica-0", Long, /*step_s=*/0.01);
  WaitReady();
  const auto again = Begin(*first);
  EXPECT_THAT(again->ReadUntil("data: "), HasSubstr("200 OK"));
  RawClient once(port());
  once.Send(Post(R"({"prompt": "a", "stream": true, "speculative": {"method": "rejection"}})"));
  EXPECT_THAT(once.ReadUntil("data: "), HasSubstr("200 OK"));  // both have text
  const auto second = Join("replica-1", Long);
  ASSERT_TRUE(Eventually([this] { return Metric("coppice_replica_up{id=\"replica-1\"}") == 1; }));
  const RawAnswer drained =
      Admin("drain", R"({"target": "replica:replica-0", "move": true, "wait": 60})");
  EXPECT_EQ(drained.status, 200);
  EXPECT_EQ(json::parse(drained.body)["running"], 0);
  EXPECT_THAT(again->ReadAnswer().body, HasSubstr("[DONE]"));
  EXPECT_THAT(once.ReadAnswer().body, HasSubstr("[DONE]"));
  EXPECT_EQ(first->cancelled(), 1);
  EXPECT_EQ(second->started(), 1);
}

TEST_F(AdminTest, WhoWaitsForADrainIsToldWhatIsLeft) {
  const FakeWorker::Script held = Held();
  StartCluster();
  const auto worker = Join("replica-0", held);
  WaitReady();
  const auto running = Begin(*worker);
  EXPECT_EQ(json::parse(Ask(Get("/cluster")).body)["drains"], json::array());
  const RawAnswer drained =
      Admin("drain", R"({"target": "cluster", "timeout": 3600, "wait": 0.05})");
  EXPECT_EQ(drained.status, 202);
  EXPECT_EQ(json::parse(drained.body)["running"], 1);
  const json drain = json::parse(Ask(Get("/cluster")).body)["drains"][0];
  EXPECT_EQ(drain["target"], "cluster");
  EXPECT_EQ(drain["running"], 1);
  EXPECT_GT(drain["seconds_left"], 3000);
  EXPECT_THAT(Ask(Get("/ready")).body, HasSubstr("requests left: 1"));
  EXPECT_EQ(Metric("coppice_draining{id=\"\"}"), 1);
  RawClient waits(port());  // an undrain answers as well
  waits.Send(Call("POST", "/admin/drain", R"({"target": "cluster", "wait": 3600})"));
  EXPECT_TRUE(Eventually([this] {
    return json::parse(Ask(Get("/cluster")).body)["drains"][0]["seconds_left"].is_null();
  }));
  EXPECT_EQ(Admin("undrain", R"({"target": "cluster"})").status, 202);
  const RawAnswer undrained = waits.ReadAnswer();
  EXPECT_EQ(undrained.status, 202);
  EXPECT_EQ(json::parse(undrained.body)["state"], "ready");
  go_ = true;
  EXPECT_THAT(running->ReadAnswer().body, HasSubstr("[DONE]"));
  EXPECT_EQ(Admin("drain", R"({"target": "cluster", "wait": 60})").status, 200);
}

TEST_F(AdminTest, WhoWaitsForADrainHasAnAnswerBeforeTheServerEnds) {
  StartCluster();
  const auto worker = Join("replica-0", Long, /*step_s=*/0.05);
  WaitReady();
  const auto running = Begin(*worker);
  RawClient waits(port());
  waits.Send(Call("POST", "/admin/drain", R"({"target": "cluster", "wait": 3600})"));
  EXPECT_TRUE(Eventually([this] { return Ask(Get("/ready")).status == 503; }));
  coordinator_->Drain(0.1, "test");
  EXPECT_EQ(waits.ReadAnswer().status, 202);
  EXPECT_THAT(running->ReadAnswer().body, HasSubstr("shutting down"));
  thread_.join();
}

TEST_F(AdminTest, WhenTheTimeOfAClusterDrainIsOverTheRestFails) {
  StartCluster();
  const auto worker = Join("replica-0", Long, /*step_s=*/0.05);
  WaitReady();
  const auto running = Begin(*worker);
  EXPECT_EQ(Admin("drain", R"({"target": "cluster", "timeout": 0.1})").status, 202);
  EXPECT_THAT(running->ReadAnswer().body, HasSubstr("the time of the drain is over"));
  EXPECT_TRUE(Eventually([&] { return worker->cancelled() == 1; }));
}

TEST_F(AdminTest, BadTargetsAreRefused) {
  StartCluster();
  EXPECT_EQ(Code(Admin("drain", "{}"), 400), "missing_field");
  EXPECT_EQ(Code(Admin("drain", R"({"target": "replica-0"})"), 400), "invalid_value");
  EXPECT_EQ(Code(Admin("drain", R"({"target": "replica:nothing"})"), 404), "unknown_node");
  EXPECT_EQ(Code(Admin("drain", R"({"target": "cluster", "timeout": -1})"), 400), "invalid_value");
  EXPECT_EQ(Code(Admin("undrain", R"({"target": "cluster", "timeout": 1})"), 400), "unknown_field");
  EXPECT_EQ(Code(Admin("drain", R"({"target": "cluster", "move": true})"), 400),
            "unsupported_combination");
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
  EXPECT_EQ(spans["request"]["args"]["id"], "timed");
  EXPECT_EQ(Code(Ask(Get("/admin/timelines/other")), 404), "unknown_request");
}

TEST_F(AdminTest, ATraceHasTheSpansOfAllReplicasAndTheRequestsMeanwhile) {
  StartCluster();
  const auto first = Join("replica-\"0", Short), second = Join("replica-1", Short);
  WaitReady();
  ASSERT_TRUE(Eventually([this] { return Metric("coppice_replica_up{id=\"replica-1\"}") == 1; }));
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
