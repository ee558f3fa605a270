// Drains of the cluster and of replicas, through a whole coordinator with fake replicas.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/coordinator/admin_fixture.h"

namespace coppice::coordinator {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

using DrainTest = AdminTest;

TEST_F(DrainTest, ADrainedClusterTakesNothingAndComesBack) {
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
TEST_F(DrainTest, AWebPageCannotDrain) {
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

TEST_F(DrainTest, ADrainedReplicaFinishesWhatItHolds) {
  const FakeWorker::Script held = Held();
  StartCluster();
  const auto first = Join("replica-0", held), second = Join("replica-1", Short);
  WaitReplicas(2);
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

TEST_F(DrainTest, AfterItsTimeoutADrainMovesTheRest) {
  StartCluster();
  const auto first = Join("replica-0", Long, /*step_s=*/0.05);
  WaitReady();
  const auto running = Begin(*first);
  const auto second = Join("replica-1", Long);
  WaitReplicas(2);
  EXPECT_EQ(Admin("drain", R"({"target": "replica:replica-0", "timeout": 0})").status, 202);
  const std::string body = running->ReadAnswer().body;  // 200 steps of 50 ms would take too long
  EXPECT_THAT(body, HasSubstr("[DONE]"));
  EXPECT_TRUE(Eventually([&] { return first->cancelled() == 1; }));
  EXPECT_EQ(second->started(), 1);
}

TEST_F(DrainTest, ADrainMayMoveWhatCanStartAgainAndLeaveTheRest) {
  StartCluster();
  const auto first = Join("replica-0", Long, /*step_s=*/0.01);
  WaitReady();
  const auto again = Begin(*first);
  EXPECT_THAT(again->ReadUntil("data: "), HasSubstr("200 OK"));
  RawClient once(port());
  once.Send(Post(R"({"prompt": "a", "stream": true, "speculative": {"method": "rejection"}})"));
  EXPECT_THAT(once.ReadUntil("data: "), HasSubstr("200 OK"));  // both have text
  const auto second = Join("replica-1", Long);
  WaitReplicas(2);
  const RawAnswer drained =
      Admin("drain", R"({"target": "replica:replica-0", "move": true, "wait": 60})");
  EXPECT_EQ(drained.status, 200);
  EXPECT_EQ(json::parse(drained.body)["running"], 0);
  EXPECT_THAT(again->ReadAnswer().body, HasSubstr("[DONE]"));
  EXPECT_THAT(once.ReadAnswer().body, HasSubstr("[DONE]"));
  EXPECT_EQ(first->cancelled(), 1);
  EXPECT_EQ(second->started(), 1);
}

TEST_F(DrainTest, WhoWaitsForADrainIsToldWhatIsLeft) {
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

TEST_F(DrainTest, WhoWaitsForADrainHasAnAnswerBeforeTheServerEnds) {
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

TEST_F(DrainTest, WhenTheTimeOfAClusterDrainIsOverTheRestFails) {
  StartCluster();
  const auto worker = Join("replica-0", Long, /*step_s=*/0.05);
  WaitReady();
  const auto running = Begin(*worker);
  EXPECT_EQ(Admin("drain", R"({"target": "cluster", "timeout": 0.1})").status, 202);
  EXPECT_THAT(running->ReadAnswer().body, HasSubstr("the time of the drain is over"));
  EXPECT_TRUE(Eventually([&] { return worker->cancelled() == 1; }));
}

TEST_F(DrainTest, BadTargetsAreRefused) {
  StartCluster();
  EXPECT_EQ(Code(Admin("drain", "{}"), 400), "missing_field");
  EXPECT_EQ(Code(Admin("drain", R"({"target": "replica-0"})"), 400), "invalid_value");
  EXPECT_EQ(Code(Admin("drain", R"({"target": "replica:nothing"})"), 404), "unknown_node");
  EXPECT_EQ(Code(Admin("drain", R"({"target": "cluster", "timeout": -1})"), 400), "invalid_value");
  EXPECT_EQ(Code(Admin("undrain", R"({"target": "cluster", "timeout": 1})"), 400), "unknown_field");
  EXPECT_EQ(Code(Admin("drain", R"({"target": "cluster", "move": true})"), 400),
            "unsupported_combination");
}

}  // namespace
}  // namespace coppice::coordinator
