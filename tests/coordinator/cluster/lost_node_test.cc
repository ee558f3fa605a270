// What happens to the requests of a lost replica, and to the replica when it comes back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/cluster/operations.h"
#include "decoding/method.h"
#include "tests/coordinator/cluster/dispatcher_fixture.h"

namespace coppice::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(DispatcherTest, ALostReplicasRequestsAreStartedElsewhereUnderNewIds) {
  JoinReplica("replica-0");
  const auto exchange = Submit();
  ASSERT_EQ(Started("replica-0").size(), 1);
  clock_.now_s = 1.0;
  JoinReplica("replica-1");
  clock_.now_s = 1.8;
  dispatcher_.Tick();  // replica-0 has been silent for 1.8 s
  ASSERT_EQ(Started("replica-1").size(), 1);
  EXPECT_NE(Started("replica-1")[0], Started("replica-0")[0]);
  Finish("replica-0", Started("replica-0")[0]);  // too late: the request has moved
  EXPECT_FALSE(exchange->reply);
  Finish("replica-1", Started("replica-1")[0]);
  EXPECT_EQ(exchange->reply->status, 200);
}

TEST_F(DispatcherTest, AReplicaWithoutStepsIsToldToEndAndItsRequestsGoOn) {
  JoinReplica("replica-0");
  const auto exchange = Submit();
  ASSERT_EQ(Started("replica-0").size(), 1);
  JoinReplica("replica-1");
  Beat("replica-1");
  Beat("replica-0", /*still_s=*/10.2);
  clock_.now_s = 0.02;
  dispatcher_.Tick();
  EXPECT_EQ(registry_.Find("replica-0")->state, NodeState::kLost);
  EXPECT_EQ(GivenUps("replica-0"), 1);
  ASSERT_EQ(Started("replica-1").size(), 1);
  Beat("replica-0", /*still_s=*/0);  // it makes steps again, but too late
  EXPECT_EQ(GivenUps("replica-0"), 2);
  EXPECT_EQ(registry_.Find("replica-0")->state, NodeState::kLost);
  Finish("replica-0", Started("replica-0")[0]);
  EXPECT_FALSE(exchange->reply);
  Finish("replica-1", Started("replica-1")[0]);
  EXPECT_EQ(exchange->reply->status, 200);
  EXPECT_EQ(GivenUps("replica-1"), 0);
  EXPECT_THAT(metrics_.Text(), HasSubstr("coppice_replica_up{id=\"replica-0\"} 0"));
}

TEST_F(DispatcherTest, WithoutAnotherReplicaALostOnesRequestsEndAsReplicaLost) {
  JoinReplica("replica-0");
  const auto exchange = Submit();
  Beat("replica-0", /*still_s=*/10.2);
  dispatcher_.Tick();
  clock_.now_s = 4.9;
  dispatcher_.Tick();
  EXPECT_FALSE(exchange->reply);
  const auto fresh = Submit();  // was on no lost replica: waits for one until its own deadline
  clock_.now_s = 5.1;
  dispatcher_.Tick();
  ASSERT_TRUE(exchange->reply);
  EXPECT_EQ(exchange->reply->status, 503);
  EXPECT_THAT(exchange->reply->body, HasSubstr("replica_lost"));
  EXPECT_THAT(exchange->reply->body, HasSubstr("replica replica-0 is lost: it beats but has made"));
  EXPECT_FALSE(fresh->reply);
  EXPECT_EQ(dispatcher_.waiting(), 1);
}

TEST_F(DispatcherTest, AReplicaThatComesInTimeTakesWhatALostOneHad) {
  JoinReplica("replica-0");
  const auto exchange = Submit();
  Beat("replica-0", /*still_s=*/10.2);
  dispatcher_.Tick();
  clock_.now_s = 4;
  dispatcher_.Tick();
  JoinReplica("replica-1");
  clock_.now_s = 5.4;
  dispatcher_.Tick();
  Finish("replica-1", Started("replica-1").at(0));
  EXPECT_EQ(exchange->reply->status, 200);
}

// A replica that was silent and comes back still runs requests that have moved to another replica.
// It must be told to drop them before it gets anything new, whether it sends a heartbeat or
// registers.
TEST_F(DispatcherTest, AReplicaThatComesBackIsToldToDropWhatWentElsewhere) {
  for (const bool registers : {false, true}) {
    JoinReplica("replica-0");
    Submit();
    Submit();
    const std::vector<uint64_t> old = Started("replica-0");
    const double lost_s = clock_.now_s + 1.6;
    while (clock_.now_s < lost_s) {
      clock_.now_s += 0.1;
      dispatcher_.Tick();
    }
    ASSERT_EQ(registry_.Find("replica-0")->state, NodeState::kLost);
    EXPECT_EQ(Cancelled("replica-0").size(), 0);
    if (registers) {
      JoinReplica("replica-0");
    } else {
      Beat("replica-0");
    }
    EXPECT_THAT(Cancelled("replica-0"), ::testing::UnorderedElementsAreArray(old));
    const std::vector<uint64_t> all = Started("replica-0");
    ASSERT_EQ(all.size(), 4);
    int cancelled = 0;
    for (const auto& [peer, message] : sent_) {
      cancelled += message.has_cancel();
      if (message.has_start() && message.start().sequence_id() == all[2]) break;
    }
    EXPECT_EQ(cancelled, 2);
    Finish("replica-0", all[2]);
    Finish("replica-0", all[3]);
    EXPECT_TRUE(dispatcher_.idle());
    sent_.clear();
  }
}

// A connection that breaks loses what is on its way, in both directions, though the process at its
// other end lives on and registers again in time. So what it had starts anew.
TEST_F(DispatcherTest, ANodeThatRegistersAgainStartsAnewWhatItHad) {
  JoinReplica("replica-0");
  const auto exchange = Submit();
  const std::vector<uint64_t> old = Started("replica-0");
  ASSERT_EQ(old.size(), 1);
  clock_.now_s = 0.3;
  JoinReplica("replica-0");
  EXPECT_EQ(registry_.Find("replica-0")->state, NodeState::kReady);
  EXPECT_EQ(Cancelled("replica-0"), old);
  ASSERT_EQ(Started("replica-0").size(), 2);
  Finish("replica-0", old[0]);  // its beginning may be lost
  EXPECT_FALSE(exchange->reply);
  Finish("replica-0", Started("replica-0")[1]);
  ASSERT_TRUE(exchange->reply);
  EXPECT_EQ(exchange->reply->status, 200);
  EXPECT_TRUE(dispatcher_.idle());
  EXPECT_EQ(dispatcher_.router().reserved("replica-0"), 0);
}

TEST_F(DispatcherTest, AShownTextThatCannotBeRepeatedEndsWithTheConnectionToItsReplica) {
  JoinReplica("replica-0");
  GenerateRequest generate;
  generate.stream = true;
  generate.params.method = decoding::FindMethod("rejection");
  const auto exchange = Submit(generate);
  proto::NodeMessage message;
  message.mutable_progress()->add_updates()->set_sequence_id(Started("replica-0").at(0));
  message.mutable_progress()->mutable_updates(0)->add_stable_tokens('o');
  dispatcher_.OnNodeMessage("replica-0", message);
  ASSERT_EQ(exchange->events.size(), 1);
  JoinReplica("replica-0");
  ASSERT_EQ(exchange->events.size(), 2);
  EXPECT_THAT(exchange->events[1], HasSubstr("replica_lost"));
  EXPECT_EQ(Cancelled("replica-0"), Started("replica-0"));
  EXPECT_TRUE(dispatcher_.idle());
}

// Of what a broken connection has lost, the rest may come before the replica registers again.
TEST_F(DispatcherTest, AfterAMissingReportASequenceStartsAnew) {
  const auto report = [this](uint64_t id, uint32_t index, const std::string& text) {
    proto::NodeMessage message;
    proto::SequenceUpdate* update = message.mutable_progress()->add_updates();
    update->set_sequence_id(id);
    update->set_index(index);
    for (const TokenId token : Bytes(text)) update->add_stable_tokens(token);
    dispatcher_.OnNodeMessage("replica-0", message);
  };
  JoinReplica("replica-0");
  GenerateRequest generate;
  generate.stream = true;
  const auto exchange = Submit(generate);
  const uint64_t old = Started("replica-0").at(0);
  report(old, 0, "o");
  report(old, 2, "x");  // what followed "o" is lost
  EXPECT_EQ(Cancelled("replica-0"), std::vector<uint64_t>{old});
  ASSERT_EQ(Started("replica-0").size(), 2);
  ASSERT_EQ(exchange->events.size(), 1);
  const uint64_t anew = Started("replica-0")[1];
  report(anew, 0, "o");
  report(anew, 1, "k");
  Finish("replica-0", anew);
  ASSERT_EQ(exchange->events.size(), 4);  // "o", "k", the end, [DONE]
  EXPECT_THAT(exchange->events[1], HasSubstr("\"k\""));
  EXPECT_THAT(metrics_.Text(), HasSubstr("coppice_failovers_total{model_name=\"demo\"} 1"));
  EXPECT_TRUE(dispatcher_.idle());

  const auto again = Submit(generate);
  report(Started("replica-0").at(2), 1, "o");
  ASSERT_EQ(Started("replica-0").size(), 4);
  report(Started("replica-0")[3], 1, "o");  // it counts wrongly
  EXPECT_THAT(again->events.empty() ? again->reply->body : again->events[0],
              HasSubstr("replica_lost"));
  EXPECT_EQ(Started("replica-0").size(), 4);
  EXPECT_TRUE(dispatcher_.idle());
}

// A replica that outlives its coordinator still runs what that one had started, and reports it to the
// next one.
TEST_F(DispatcherTest, ANewCoordinatorDoesNotTakeTheSequencesOfTheOldOneForItsOwn) {
  JoinReplica("replica-0");
  Submit();
  const uint64_t old = Started("replica-0").at(0);
  NodeRegistry registry(&clock_, RegistryOptions());
  std::vector<uint64_t> started;
  Dispatcher next(Options(), &clock_, &registry, &metrics_,
                  [&](const std::string&, const proto::CoordinatorMessage& sent) {
                    if (sent.has_start()) started.push_back(sent.start().sequence_id());
                  });
  proto::NodeMessage message;
  *message.mutable_register_() = WorkerRegistration("replica-0");
  next.OnNodeMessage("replica-0", message);
  GenerateRequest generate;
  generate.prompts = {Bytes("hi")};
  generate.max_tokens_given = true;
  generate.params.max_tokens = 16;
  const auto exchange = std::make_shared<FakeExchange>();
  next.Submit(std::make_shared<Request>(generate, Request::Origin(), &tokenizer_, exchange));
  ASSERT_EQ(started.size(), 1);
  EXPECT_NE(started[0], old);
  message.Clear();
  proto::SequenceUpdate* update = message.mutable_progress()->add_updates();
  update->set_sequence_id(old);
  update->set_finished(true);
  *update->add_hypotheses() = MakeHypothesis(Bytes("secret", true), -1, true);
  next.OnNodeMessage("replica-0", message);
  EXPECT_FALSE(exchange->reply);
}

TEST_F(DispatcherTest, ALostNodeIsForgottenWithItsSeries) {
  const auto silent_until = [this](double end_s) {
    clock_.now_s = end_s;
    dispatcher_.Tick();
  };
  Join("draft-0", DraftRegistration("draft-0"));
  JoinReplica("replica-0");
  JoinReplica("replica-1");
  Beat("draft-0");
  Beat("replica-0");
  for (const char* id : {"draft-0", "replica-0"}) {
    proto::NodeMessage goodbye;
    goodbye.mutable_goodbye();
    dispatcher_.OnNodeMessage(id, goodbye);
    EXPECT_THAT(metrics_.Text(), HasSubstr(absl::StrCat("=\"", id, "\"")));
  }
  silent_until(3600);
  EXPECT_NE(registry_.Find("replica-0"), nullptr);
  Beat("replica-1");
  silent_until(3601);
  EXPECT_EQ(registry_.Find("replica-0"), nullptr);
  EXPECT_EQ(registry_.Find("draft-0"), nullptr);
  EXPECT_THAT(registry_.events().back().what, HasSubstr("replica replica-0 is forgotten"));
  EXPECT_THAT(metrics_.Text(), Not(HasSubstr("replica-0")));
  EXPECT_THAT(metrics_.Text(), Not(HasSubstr("draft-0")));
  EXPECT_THAT(metrics_.Text(), HasSubstr("coppice_replica_up{id=\"replica-1\"} 1"));
  JoinReplica("replica-0");  // it begins anew
  EXPECT_THAT(metrics_.Text(), HasSubstr("coppice_replica_up{id=\"replica-0\"} 1"));
  const auto exchange = Submit();
  for (const char* id : {"replica-0", "replica-1"}) {
    for (const uint64_t sequence : Started(id)) Finish(id, sequence);
  }
  EXPECT_EQ(exchange->reply->status, 200);
}

// It is told to end with each heartbeat, so it must be known as long as it sends them.
TEST_F(DispatcherTest, ALostNodeThatBeatsIsNotForgotten) {
  JoinReplica("replica-0");
  Beat("replica-0", /*still_s=*/10.2);
  dispatcher_.Tick();
  for (clock_.now_s = 1800; clock_.now_s < 20000; clock_.now_s += 1800) {
    Beat("replica-0", /*still_s=*/clock_.now_s);
    dispatcher_.Tick();
  }
  EXPECT_NE(registry_.Find("replica-0"), nullptr);
  EXPECT_EQ(GivenUps("replica-0"), 12);
}

// It was stopped for so long that it was forgotten, and its connection has outlived that.
TEST_F(DispatcherTest, ANodeThatIsNotKnownIsToldToRegister) {
  const auto told = [this](const std::string& peer) {
    return std::count_if(sent_.begin(), sent_.end(), [&](const auto& sent) {
      return sent.first == peer && sent.second.has_register_again();
    });
  };
  JoinReplica("replica-0");
  Beat("replica-0");
  EXPECT_EQ(told("replica-0"), 0);
  clock_.now_s = 4000;
  dispatcher_.Tick();  // it was not there itself
  clock_.now_s = 4000.4;
  dispatcher_.Tick();
  clock_.now_s = 4002;
  dispatcher_.Tick();
  clock_.now_s = 8000;
  dispatcher_.Tick();
  ASSERT_EQ(registry_.Find("replica-0"), nullptr);
  Beat("replica-0");
  EXPECT_EQ(told("replica-0"), 1);
  JoinReplica("replica-0");
  Beat("replica-0");
  EXPECT_EQ(told("replica-0"), 1);
  const auto exchange = Submit();
  Finish("replica-0", Started("replica-0").at(0));
  EXPECT_EQ(exchange->reply->status, 200);
}

TEST_F(DispatcherTest, ADraftThatDoesNotFitTheTargetIsToldWhyUntilItEnds) {
  const auto refusals = [this] {
    std::vector<std::string> reasons;
    for (const auto& [peer, message] : sent_) {
      if (peer == "draft-0" && message.has_register_ack() && !message.register_ack().accepted())
        reasons.push_back(message.register_ack().reason());
    }
    return reasons;
  };
  Join("draft-0", DraftRegistration("draft-0", 300));
  JoinReplica("replica-0");
  EXPECT_EQ(registry_.ReadyReplicas().size(), 1);
  dispatcher_.Tick();
  ASSERT_EQ(refusals().size(), 1);
  EXPECT_THAT(refusals()[0], HasSubstr("has 300 ids but the target model's has 258"));
  Beat("draft-0");
  EXPECT_EQ(refusals().size(), 2);
  EXPECT_EQ(GivenUps("draft-0"), 0);
  EXPECT_THAT(metrics_.Text(), HasSubstr("coppice_draft_node_up{id=\"draft-0\"} 0"));
}

// A process that has to wait for its name gets no answer until its predecessor is lost.
TEST_F(DispatcherTest, ARestartedReplicaTakesWhatItsPredecessorHad) {
  JoinReplica("replica-0");
  const auto exchange = Submit();
  proto::Register restarted = WorkerRegistration("replica-0");
  restarted.set_process_id(2);
  clock_.now_s = 0.5;
  dispatcher_.Tick();
  Join("restarted", restarted);
  for (const auto& [peer, message] : sent_) EXPECT_NE(peer, "restarted");
  for (clock_.now_s = 0.9; clock_.now_s < 2; clock_.now_s += 0.2) dispatcher_.Tick();
  Join("restarted", restarted);
  ASSERT_EQ(Started("restarted").size(), 1);
  Finish("restarted", Started("restarted")[0]);
  EXPECT_EQ(exchange->reply->status, 200);
  EXPECT_EQ(registry_.Replicas().size(), 1);
}

// A drain is for the process that was there, even if its time is over after another one has its name.
TEST_F(DispatcherTest, TheTimeOfADrainIsNotThatOfTheNextProcess) {
  Operations operations(&clock_, &registry_, &dispatcher_);
  JoinReplica("replica-0");
  const auto drained = std::make_shared<FakeExchange>();
  operations.Drain(R"({"target": "replica:replica-0", "timeout": 60})", drained);
  ASSERT_EQ(drained->reply->status, 202);
  proto::NodeMessage goodbye;
  goodbye.mutable_goodbye();
  dispatcher_.OnNodeMessage("replica-0", goodbye);
  proto::Register restarted = WorkerRegistration("replica-0");
  restarted.set_process_id(2);
  Join("another connection", restarted);
  const auto exchange = Submit();
  ASSERT_EQ(Started("another connection").size(), 1);
  clock_.now_s = 61;
  operations.Tick();
  EXPECT_EQ(Cancelled("another connection").size(), 0);
  Finish("another connection", Started("another connection")[0]);
  EXPECT_EQ(exchange->reply->status, 200);
}

}  // namespace
}  // namespace coppice::coordinator
