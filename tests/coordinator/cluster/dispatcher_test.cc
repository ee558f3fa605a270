// The queue, deadlines, and messages of nodes that are refused. For lost nodes see
// lost_node_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "tests/coordinator/cluster/dispatcher_fixture.h"

namespace coppice::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(DispatcherTest, DraftNodesAreToldToEveryLeader) {
  JoinReplica("replica-0");
  Join("d", DraftRegistration("draft-0"));
  const auto last = [&] { return sent_.back().second.draft_nodes(); };
  ASSERT_EQ(sent_.back().first, "replica-0");
  ASSERT_EQ(last().nodes_size(), 1);
  EXPECT_EQ(last().nodes(0).node_id(), "draft-0");
  proto::NodeMessage goodbye;
  goodbye.mutable_goodbye();
  dispatcher_.OnNodeMessage("d", goodbye);
  ASSERT_TRUE(sent_.back().second.has_draft_nodes());
  EXPECT_EQ(last().nodes_size(), 0);
}

TEST_F(DispatcherTest, AWorkerLearnsTheDraftNodesWhenItJoins) {
  Join("d", DraftRegistration("draft-0"));
  JoinReplica("replica-0");
  bool acknowledged = false;
  for (const auto& [peer, message] : sent_) {
    if (peer != "replica-0" || !message.has_register_ack()) continue;
    acknowledged = true;
    EXPECT_EQ(message.register_ack().draft_nodes_size(), 1);
  }
  EXPECT_TRUE(acknowledged);
}

TEST_F(DispatcherTest, WithoutAReplicaRequestsWaitUntilTheirDeadline) {
  GenerateRequest generate;
  generate.timeout_s = 5;
  const auto first = Submit(generate);
  clock_.now_s = 4.9;
  dispatcher_.Tick();
  EXPECT_FALSE(first->reply);
  clock_.now_s = 5.1;
  dispatcher_.Tick();
  EXPECT_EQ(first->reply->status, 503);
  EXPECT_THAT(first->reply->body, HasSubstr("no_replica"));
  EXPECT_TRUE(dispatcher_.idle());
}

TEST_F(DispatcherTest, WhatWaitsIsServedWhenAReplicaJoins) {
  const auto waiting = Submit();
  EXPECT_EQ(dispatcher_.waiting(), 1);
  JoinReplica("replica-0");
  ASSERT_EQ(Started("replica-0").size(), 1);
  Finish("replica-0", Started("replica-0")[0]);
  EXPECT_EQ(waiting->reply->status, 200);
  EXPECT_TRUE(dispatcher_.idle());
  EXPECT_EQ(dispatcher_.router().reserved("replica-0"), 0);
}

TEST_F(DispatcherTest, WhatTheModelDoesNotAllowFailsWhenItsLimitsAreKnown) {
  GenerateRequest generate;
  generate.params.max_tokens = 600;
  const auto waiting = Submit(generate);
  EXPECT_FALSE(waiting->reply);
  JoinReplica("replica-0");
  EXPECT_EQ(waiting->reply->status, 400);
  EXPECT_THAT(waiting->reply->body, HasSubstr("context_length_exceeded"));
  EXPECT_THAT(Submit(generate)->reply->body, HasSubstr("context_length_exceeded"));
}

TEST_F(DispatcherTest, RequestsWaitForKvAndTheQueueIsBounded) {
  JoinReplica("replica-0", /*blocks=*/25);  // one request needs 10
  Submit();
  Submit();
  EXPECT_EQ(Started("replica-0").size(), 2);
  Submit();
  Submit();
  EXPECT_EQ(dispatcher_.waiting(), 2);
  const auto refused = Submit();
  EXPECT_EQ(refused->reply->status, 429);
  bool retry_after = false;
  for (const auto& [name, value] : refused->reply->headers) {
    if (name == "Retry-After") retry_after = std::stoi(value) >= 1 && std::stoi(value) <= 60;
  }
  EXPECT_TRUE(retry_after);
  Finish("replica-0", Started("replica-0")[0]);
  EXPECT_EQ(Started("replica-0").size(), 3);
  EXPECT_EQ(dispatcher_.waiting(), 1);
}

TEST_F(DispatcherTest, ARequestRunsFromItsFirstSequenceToItsLast) {
  JoinReplica("replica-0", /*blocks=*/25);  // one sequence needs 10
  GenerateRequest generate;
  generate.n = generate.samples = 3;
  const auto exchange = Submit(generate);
  EXPECT_EQ(dispatcher_.running(), 1);
  EXPECT_EQ(dispatcher_.waiting(), 1);  // its third sequence
  EXPECT_EQ(dispatcher_.unanswered(), 1);
  Finish("replica-0", Started("replica-0")[0]);
  Finish("replica-0", Started("replica-0")[1]);
  EXPECT_EQ(dispatcher_.running(), 1);
  EXPECT_EQ(dispatcher_.waiting(), 0);
  Finish("replica-0", Started("replica-0")[2]);
  EXPECT_EQ(exchange->reply->status, 200);
  EXPECT_EQ(dispatcher_.running(), 0);
  EXPECT_EQ(dispatcher_.unanswered(), 0);
}

TEST_F(DispatcherTest, DeadlinesCancelWhatRuns) {
  JoinReplica("replica-0");
  GenerateRequest generate;
  generate.timeout_s = 1;
  const auto late = Submit(generate);
  Beat("replica-0");
  clock_.now_s = 1.2;
  dispatcher_.Tick();
  EXPECT_EQ(late->reply->status, 504);
  EXPECT_EQ(Cancelled("replica-0"), Started("replica-0"));
}

TEST_F(DispatcherTest, EachRequestHasItsOwnDeadline) {
  std::vector<std::shared_ptr<FakeExchange>> exchanges;
  for (const double timeout_s : {30.0, 10.0}) {
    GenerateRequest generate;
    generate.timeout_s = timeout_s;
    exchanges.push_back(Submit(generate));
  }
  const auto answered_at = [&](double now_s) {
    clock_.now_s = now_s;
    dispatcher_.Tick();
    std::vector<bool> answered;
    for (const auto& exchange : exchanges) answered.push_back(exchange->reply.has_value());
    return answered;
  };
  EXPECT_THAT(answered_at(9), ElementsAre(false, false));
  EXPECT_THAT(answered_at(11), ElementsAre(false, true));
  EXPECT_THAT(answered_at(31), ElementsAre(true, true));
}

TEST_F(DispatcherTest, ProgressOfUnknownSequencesIsCancelled) {
  JoinReplica("replica-0");
  proto::NodeMessage message;
  message.mutable_progress()->add_updates()->set_sequence_id(77);
  dispatcher_.OnNodeMessage("replica-0", message);
  EXPECT_EQ(Cancelled("replica-0"), std::vector<uint64_t>{77});
}

TEST_F(DispatcherTest, AnUpdateThatCannotBeIsCountedAndCancelledAtItsNode) {
  JoinReplica("replica-0");
  const auto exchange = Submit();
  const uint64_t id = Started("replica-0").at(0);
  proto::NodeMessage message;
  proto::SequenceUpdate* update = message.mutable_progress()->add_updates();
  update->set_sequence_id(id);
  update->add_stable_tokens(5000);
  dispatcher_.OnNodeMessage("replica-0", message);
  EXPECT_EQ(exchange->reply->status, 500);
  EXPECT_THAT(exchange->reply->body, HasSubstr("replica-0: stable_tokens[0]: 5000"));
  EXPECT_EQ(Cancelled("replica-0"), std::vector<uint64_t>{id});
  EXPECT_THAT(metrics_.Text(),
              HasSubstr("coppice_invalid_updates_total{replica=\"replica-0\"} 1\n"));
  EXPECT_TRUE(dispatcher_.idle());
  EXPECT_EQ(dispatcher_.router().reserved("replica-0"), 0);
  Finish("replica-0", id);  // the sequence has already ended
  EXPECT_THAT(metrics_.Text(),
              HasSubstr("coppice_invalid_updates_total{replica=\"replica-0\"} 1\n"));
}

// A node with impossible heartbeats counts as silent.
TEST_F(DispatcherTest, AnUpdateThatThrowsEndsItsOwnRequestAlone) {
  JoinReplica("replica-0");
  const auto poor = Submit(), other = Submit();
  const std::vector<uint64_t> ids = Started("replica-0");
  ASSERT_EQ(ids.size(), 2);
  proto::NodeMessage message;
  for (const uint64_t id : ids) {
    proto::SequenceUpdate* update = message.mutable_progress()->add_updates();
    update->set_sequence_id(id);
    update->set_finished(true);
    *update->add_hypotheses() = MakeHypothesis(Bytes(id == ids[0] ? "$" : "ok", true), -1, true);
    *update->mutable_stats() = MakeStats();
  }
  dispatcher_.OnNodeMessage("replica-0", message);
  ASSERT_TRUE(poor->reply);
  EXPECT_EQ(poor->reply->status, 500);
  EXPECT_THAT(poor->reply->body, HasSubstr("internal_error"));
  ASSERT_TRUE(other->reply);
  EXPECT_EQ(other->reply->status, 200);
  EXPECT_TRUE(dispatcher_.idle());
  EXPECT_EQ(dispatcher_.router().reserved("replica-0"), 0);
}

TEST_F(DispatcherTest, AHeartbeatThatCannotBeIsCountedAndDoesNotKeepANode) {
  JoinReplica("replica-0");
  JoinReplica("replica-1");
  for (clock_.now_s = 0.5; clock_.now_s <= 2; clock_.now_s += 0.5) {
    Beat("replica-0");
    proto::NodeMessage message;
    message.mutable_heartbeat()->mutable_status()->set_running(-1);
    dispatcher_.OnNodeMessage("replica-1", message);
    dispatcher_.Tick();
  }
  EXPECT_EQ(registry_.Find("replica-0")->state, NodeState::kReady);
  EXPECT_EQ(registry_.Find("replica-1")->state, NodeState::kLost);
  EXPECT_THAT(metrics_.Text(),
              HasSubstr("coppice_invalid_updates_total{replica=\"replica-1\"} 4\n"));
}

TEST_F(DispatcherTest, ANodeCannotSpeakForAnothersSequence) {
  JoinReplica("replica-0");
  const auto exchange = Submit();
  JoinReplica("replica-1");
  Join("d", DraftRegistration("draft-0"));
  const uint64_t id = Started("replica-0").at(0);
  Finish("replica-1", id);
  Finish("d", id);
  EXPECT_FALSE(exchange->reply);
  EXPECT_THAT(metrics_.Text(),
              HasSubstr("coppice_invalid_updates_total{replica=\"replica-1\"} 1\n"));
  EXPECT_THAT(metrics_.Text(), HasSubstr("coppice_invalid_updates_total{replica=\"draft-0\"} 1\n"));
  Finish("replica-0", id);
  EXPECT_EQ(exchange->reply->status, 200);
}

TEST_F(DispatcherTest, AGoneClientFreesItsPlace) {
  JoinReplica("replica-0", /*blocks=*/12);
  Submit();
  Submit();
  EXPECT_EQ(Started("replica-0").size(), 1);
  dispatcher_.Disconnected(requests_[0]);
  EXPECT_EQ(Cancelled("replica-0").size(), 1);
  EXPECT_EQ(Started("replica-0").size(), 2);
  dispatcher_.Disconnected(requests_[1]);
  EXPECT_TRUE(dispatcher_.idle());
}

TEST_F(DispatcherTest, ADrainRefuses) {
  JoinReplica("replica-0");
  dispatcher_.SetDraining(true, "test");
  const auto refused = Submit();
  EXPECT_EQ(refused->reply->status, 503);
  EXPECT_THAT(refused->reply->body, HasSubstr("draining"));
  dispatcher_.StopNodes("test");
  EXPECT_TRUE(sent_.back().second.has_stop());
}

// Requests start, end, are cancelled and time out at random while replicas come and go. Nothing is
// left over.
TEST_F(DispatcherTest, RandomLifeLeavesNothingBehind) {
  std::mt19937 random(7);
  std::vector<std::shared_ptr<FakeExchange>> exchanges;
  for (int step = 0; step < 3000; ++step) {
    clock_.now_s += 0.05;
    const std::string replica = random() % 2 == 0 ? "replica-0" : "replica-1";
    switch (random() % 8) {
      case 0:
        JoinReplica(replica, 60);
        break;
      case 1: {
        proto::NodeMessage goodbye;
        goodbye.mutable_goodbye();
        if (random() % 8 == 0) dispatcher_.OnNodeMessage(replica, goodbye);
        break;
      }
      case 2:
      case 3: {
        GenerateRequest generate;
        generate.timeout_s = 2;
        generate.n = generate.samples = 1 + random() % 3;
        exchanges.push_back(Submit(generate));
        break;
      }
      case 4:
        if (!requests_.empty()) dispatcher_.Disconnected(requests_[random() % requests_.size()]);
        break;
      default: {
        const std::vector<uint64_t> started = Started(replica);
        if (!started.empty())
          Finish(replica,
                 started[started.size() - 1 - random() % std::min<size_t>(4, started.size())]);
      }
    }
    Beat("replica-0");
    Beat("replica-1");
    dispatcher_.Tick();
    ASSERT_LE(dispatcher_.router().reserved("replica-0"), 60);
    ASSERT_LE(dispatcher_.router().reserved("replica-1"), 60);
  }
  clock_.now_s += 3;
  dispatcher_.Tick();
  EXPECT_TRUE(dispatcher_.idle());
  EXPECT_EQ(dispatcher_.waiting(), 0);
  EXPECT_EQ(dispatcher_.router().reserved("replica-0") + dispatcher_.router().reserved("replica-1"),
            0);
  EXPECT_EQ(dispatcher_.router().running("replica-0") + dispatcher_.router().running("replica-1"),
            0);
  int answered = 0;
  for (const auto& exchange : exchanges)
    answered += exchange->reply && exchange->reply->status == 200;
  EXPECT_GT(answered, 50);
  for (const std::shared_ptr<Request>& request : requests_) EXPECT_TRUE(request->ended());
}

TEST_F(DispatcherTest, TokensAreCountedWhileARequestRunsAndIfItIsAborted) {
  JoinReplica("replica-0");
  GenerateRequest generate;
  generate.stream = true;
  Submit(generate);
  const auto counted = [&](int prompt, int generated) {
    EXPECT_THAT(
        metrics_.Text(),
        HasSubstr(absl::StrCat("coppice_prompt_tokens_total{model_name=\"demo\"} ", prompt, "\n")));
    EXPECT_THAT(metrics_.Text(),
                HasSubstr(absl::StrCat("coppice_generation_tokens_total{model_name=\"demo\"} ",
                                       generated, "\n")));
  };
  counted(0, 0);
  proto::NodeMessage message;
  proto::SequenceUpdate* update = message.mutable_progress()->add_updates();
  update->set_sequence_id(Started("replica-0").back());
  for (const TokenId token : Bytes("abc")) update->add_stable_tokens(token);
  dispatcher_.OnNodeMessage("replica-0", message);
  counted(2, 3);
  dispatcher_.Disconnected(requests_.back());
  counted(2, 3);
  Submit();
  Finish("replica-0", Started("replica-0").back());  // "ok" and its end
  counted(4, 6);
}

// An answer that is not streamed is reported few times before its end.
TEST_F(DispatcherTest, OnlyStreamsTellTheTimeBetweenTokens) {
  JoinReplica("replica-0");
  for (const bool stream : {false, true}) {
    GenerateRequest generate;
    generate.stream = stream;
    Submit(generate);
    const uint64_t id = Started("replica-0").back();
    proto::NodeMessage message;
    proto::SequenceUpdate* update = message.mutable_progress()->add_updates();
    update->set_sequence_id(id);
    update->add_stable_tokens('o');
    dispatcher_.OnNodeMessage("replica-0", message);
    Finish("replica-0", id);
    EXPECT_THAT(
        metrics_.Text(),
        HasSubstr(absl::StrCat("coppice_inter_token_latency_seconds_count{model_name=\"demo\"} ",
                               int{stream})));
  }
}

// Three tokens in each of two answers, of which the first comes at once and the last after 2 s.
TEST_F(DispatcherTest, TheTimeOfATokenIsThatOfOneAnswerOfManyPrompts) {
  JoinReplica("replica-0");
  GenerateRequest generate;
  generate.prompts = {Bytes("hi"), Bytes("ho")};
  generate.max_tokens_given = true;
  generate.params.max_tokens = 16;
  dispatcher_.Submit(std::make_shared<Request>(generate, Request::Origin(), &tokenizer_,
                                               std::make_shared<FakeExchange>()));
  const std::vector<uint64_t> ids = Started("replica-0");
  ASSERT_EQ(ids.size(), 2);
  for (const uint64_t id : ids) {
    proto::NodeMessage message;
    proto::SequenceUpdate* update = message.mutable_progress()->add_updates();
    update->set_sequence_id(id);
    update->add_stable_tokens('o');
    dispatcher_.OnNodeMessage("replica-0", message);
  }
  clock_.now_s = 2;
  for (const uint64_t id : ids) Finish("replica-0", id);
  EXPECT_THAT(
      metrics_.Text(),
      HasSubstr("coppice_request_time_per_output_token_seconds_sum{model_name=\"demo\"} 1\n"));
}

// What an autoscaler looks at.
TEST_F(DispatcherTest, GaugesSayHowLongTheQueueHasWaited) {
  const auto gauge = [this](const std::string& series) {
    dispatcher_.UpdateGauges();
    const std::string text = "\n" + metrics_.Text();
    const size_t at = text.find("\ncoppice_" + series + " ");
    return at == std::string::npos ? -1 : std::stod(text.substr(at + series.size() + 10));
  };
  EXPECT_EQ(gauge("queue_oldest_seconds{model_name=\"demo\"}"), 0);
  EXPECT_EQ(gauge("queue_estimated_wait_seconds{model_name=\"demo\"}"), 0);
  const auto first = Submit();
  clock_.now_s = 3;
  const auto second = Submit();
  clock_.now_s = 5;
  EXPECT_EQ(gauge("queue_oldest_seconds{model_name=\"demo\"}"), 5);
  EXPECT_EQ(gauge("queue_estimated_wait_seconds{model_name=\"demo\"}"), 5);  // nothing was served
  JoinReplica("replica-0");
  EXPECT_EQ(gauge("queue_oldest_seconds{model_name=\"demo\"}"), 0);
  EXPECT_GT(gauge("kv_blocks_reserved{replica=\"replica-0\"}"), 0);
  for (const uint64_t id : Started("replica-0")) Finish("replica-0", id);
  EXPECT_EQ(gauge("kv_blocks_reserved{replica=\"replica-0\"}"), 0);
}

}  // namespace
}  // namespace coppice::coordinator
