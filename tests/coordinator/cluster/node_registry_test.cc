#include "coordinator/cluster/node_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/coordinator/fake_worker.h"

namespace coppice::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class NodeRegistryTest : public ::testing::Test {
 protected:
  static RegistryOptions Options() {
    RegistryOptions options;
    options.tokenizer_vocab = 258;
    return options;
  }
  proto::RegisterAck Join(const std::string& peer, const proto::Register& registration) {
    return registry_.OnRegister(peer, registration, &replaced_);
  }
  void Beat(const std::string& peer, double still_s = 0, bool working = true) {
    proto::NodeStatus status;
    status.set_working(working);
    status.set_still_s(still_s);
    registry_.OnHeartbeat(peer, status);
  }
  // The nodes that are lost until then. Looks more often than nodes send heartbeats, as the
  // coordinator does.
  std::vector<std::string> LostUntil(double end_s) {
    std::vector<std::string> lost;
    while (clock_.now_s < end_s) {
      clock_.now_s = std::min(end_s, clock_.now_s + 0.05);
      for (const std::string& id : registry_.CollectLost()) lost.push_back(id);
    }
    return lost;
  }
  NodeState StateOf(const std::string& id) const { return registry_.Find(id)->state; }

  ManualClock clock_;
  NodeRegistry registry_{&clock_, Options()};
  std::string replaced_;
};

TEST_F(NodeRegistryTest, ThreeMissedBeatsAreALoss) {
  ASSERT_TRUE(Join("a", WorkerRegistration("replica-0")).accepted());
  EXPECT_THAT(LostUntil(1.4), IsEmpty());
  Beat("a");
  EXPECT_THAT(LostUntil(2.8), IsEmpty());
  EXPECT_THAT(LostUntil(3.0), ElementsAre("replica-0"));
  EXPECT_THAT(LostUntil(9.0), IsEmpty());
  EXPECT_EQ(StateOf("replica-0"), NodeState::kLost);
  EXPECT_THAT(registry_.Find("replica-0")->why_lost, HasSubstr("no heartbeat"));
  EXPECT_FALSE(registry_.Find("replica-0")->given_up);
  Beat("a");
  EXPECT_EQ(StateOf("replica-0"), NodeState::kReady);
  EXPECT_EQ(registry_.Find("replica-0")->why_lost, "");
}

// A coordinator that was stopped has heard no node. That does not make the nodes silent.
TEST_F(NodeRegistryTest, TimeInWhichTheCoordinatorDidNotRunIsNoSilence) {
  Join("a", WorkerRegistration("replica-0"));
  EXPECT_THAT(LostUntil(1.0), IsEmpty());
  clock_.now_s = 30;
  EXPECT_THAT(registry_.CollectLost(), IsEmpty());
  EXPECT_THAT(LostUntil(30.4), IsEmpty());
  EXPECT_THAT(LostUntil(30.6), ElementsAre("replica-0"));
}

TEST_F(NodeRegistryTest, BeatsWithoutStepsAreALossAndTheNodeIsGivenUp) {
  Join("a", WorkerRegistration("replica-0"));
  for (int i = 1; i <= 40; ++i) {
    Beat("a", /*still_s=*/i * 0.5);
    const std::vector<std::string> lost = LostUntil(i * 0.5);
    EXPECT_EQ(lost.size(), i * 0.5 > 10 && i * 0.5 <= 10.5 ? 1 : 0) << clock_.now_s;
  }
  EXPECT_TRUE(registry_.Find("replica-0")->given_up);
  EXPECT_EQ(
      registry_.events().back().what,
      "replica replica-0 is lost: it beats but has made no progress for 10.5 s though it has work");
}

TEST_F(NodeRegistryTest, ADraftNodeThatBeatsAndDoesNotDraftIsGivenUp) {
  Join("d", DraftRegistration("draft-0"));
  Beat("d", /*still_s=*/10.1);
  EXPECT_THAT(LostUntil(0.1), ElementsAre("draft-0"));
  EXPECT_EQ(registry_.ReadyDraftNodes().nodes_size(), 0);
}

TEST_F(NodeRegistryTest, LeadersLearnWhatADraftNodeComputesOn) {
  proto::Register registration = DraftRegistration("draft-0");
  registration.set_energy_domain(17);
  Join("d", registration);
  ASSERT_EQ(registry_.ReadyDraftNodes().nodes_size(), 1);
  EXPECT_EQ(registry_.ReadyDraftNodes().nodes(0).energy_domain(), 17u);
}

TEST_F(NodeRegistryTest, AnIdleNodeIsNotStuck) {
  Join("a", WorkerRegistration("replica-0"));
  for (int i = 1; i <= 100; ++i) {
    Beat("a", /*still_s=*/0.2, /*working=*/false);
    EXPECT_THAT(LostUntil(i * 0.5), IsEmpty());
  }
}

// The node's own clock says how long it has made no progress. A late heartbeat adds nothing.
TEST_F(NodeRegistryTest, ABeatThatComesLateIsNoStandstill) {
  Join("a", WorkerRegistration("replica-0"));
  Beat("a", /*still_s=*/9.9);
  EXPECT_THAT(LostUntil(1.4), IsEmpty());
  Beat("a", /*still_s=*/0.1);
  EXPECT_THAT(LostUntil(2.8), IsEmpty());
}

TEST_F(NodeRegistryTest, AGivenUpNodeStaysLostThoughItStepsAgain) {
  Join("a", WorkerRegistration("replica-0"));
  Beat("a", /*still_s=*/11);
  EXPECT_THAT(LostUntil(0.1), ElementsAre("replica-0"));
  Beat("a", /*still_s=*/0);
  EXPECT_EQ(StateOf("replica-0"), NodeState::kLost);
  EXPECT_TRUE(registry_.Find("replica-0")->given_up);
}

// A node that registers under a given-up name may be the same hung process, or another process with
// the same id in a new container. It must show progress before it gets work.
TEST_F(NodeRegistryTest, AGivenUpNodeThatRegistersAgainIsReadyWhenABeatShowsThatItGetsOn) {
  Join("a", WorkerRegistration("replica-0"));
  Beat("a", /*still_s=*/11);
  EXPECT_THAT(LostUntil(0.1), ElementsAre("replica-0"));
  ASSERT_TRUE(Join("b", WorkerRegistration("replica-0")).accepted());
  EXPECT_EQ(StateOf("replica-0"), NodeState::kStarting);
  EXPECT_THAT(registry_.ReadyReplicas(), IsEmpty());
  Beat("b", /*still_s=*/12);
  EXPECT_THAT(LostUntil(0.2), ElementsAre("replica-0"));
  Join("c", WorkerRegistration("replica-0"));
  Beat("c", /*still_s=*/0);
  EXPECT_EQ(StateOf("replica-0"), NodeState::kReady);
  EXPECT_THAT(LostUntil(0.3), IsEmpty());
}

// The whole process was stopped and has come back. Its clock does not count the time in which it
// did not run.
TEST_F(NodeRegistryTest, ASilentNodeIsTakenBackByABeatThatShowsProgress) {
  Join("a", WorkerRegistration("replica-0"));
  EXPECT_THAT(LostUntil(20), ElementsAre("replica-0"));
  Beat("a", /*still_s=*/0);
  EXPECT_EQ(StateOf("replica-0"), NodeState::kReady);
}

TEST_F(NodeRegistryTest, AGoodbyeIsALossAtOnce) {
  Join("a", WorkerRegistration("replica-0"));
  EXPECT_EQ(registry_.OnGoodbye("a", "done"), "replica-0");
  EXPECT_EQ(registry_.OnGoodbye("a", "done"), "");
  EXPECT_EQ(registry_.OnGoodbye("nobody", ""), "");
  EXPECT_THAT(registry_.ReadyReplicas(), IsEmpty());
}

TEST_F(NodeRegistryTest, VocabulariesMustAgreeWhoeverComesSecond) {
  ASSERT_TRUE(Join("a", WorkerRegistration("replica-0", 300)).accepted());
  const proto::RegisterAck draft = Join("b", DraftRegistration("draft-0", 299));
  EXPECT_FALSE(draft.accepted());
  EXPECT_THAT(draft.reason(), HasSubstr("299"));
  EXPECT_THAT(draft.reason(), HasSubstr("300"));
  EXPECT_EQ(registry_.ReadyDraftNodes().nodes_size(), 0);
  registry_.OnGoodbye("a", "");
  ASSERT_TRUE(Join("b", DraftRegistration("draft-0", 299)).accepted());
  const proto::RegisterAck worker = Join("c", WorkerRegistration("replica-1", 300));
  EXPECT_FALSE(worker.accepted());
  EXPECT_THAT(worker.reason(),
              HasSubstr("the draft model's vocabulary has 299 ids but the target model's has 300"));
}

TEST_F(NodeRegistryTest, TheTokenizerMustFitTheModel) {
  const proto::RegisterAck ack = Join("a", WorkerRegistration("replica-0", 257));
  EXPECT_FALSE(ack.accepted());
  EXPECT_THAT(ack.reason(), HasSubstr("258"));
  EXPECT_THAT(ack.reason(), HasSubstr("257"));
}

TEST_F(NodeRegistryTest, ReplicasServeOneModel) {
  Join("a", WorkerRegistration("replica-0"));
  proto::Register other = WorkerRegistration("replica-1");
  other.mutable_model()->set_fingerprint(8);
  EXPECT_THAT(Join("b", other).reason(), HasSubstr("replica-0"));
}

TEST_F(NodeRegistryTest, NamesAreMadeUniqueAndTheSameProcessKeepsIts) {
  EXPECT_EQ(Join("a", WorkerRegistration("r")).node_id(), "r");
  EXPECT_EQ(Join("b", WorkerRegistration("r")).node_id(),
            "r");  // the same process on another connection
  EXPECT_EQ(replaced_, "");
  proto::Register another = WorkerRegistration("r");
  another.mutable_ranks(0)->set_pid(2);
  EXPECT_EQ(Join("c", another).node_id(), "r-2");
  EXPECT_EQ(registry_.Replicas().size(), 2);
  EXPECT_EQ(Join("d", DraftRegistration("")).node_id(), "draft-0");
}

TEST_F(NodeRegistryTest, ANewProcessTakesTheNameOfALostOne) {
  Join("a", WorkerRegistration("r"));
  registry_.OnGoodbye("a", "");
  proto::Register another = WorkerRegistration("r");
  another.mutable_ranks(0)->set_pid(2);
  EXPECT_EQ(Join("b", another).node_id(), "r");
  EXPECT_EQ(replaced_, "r");
  EXPECT_EQ(registry_.ReadyReplicas().size(), 1);
}

TEST_F(NodeRegistryTest, KeepsTheLastEvents) {
  for (int i = 0; i < 150; ++i) registry_.AddEvent(std::to_string(i));
  EXPECT_EQ(registry_.events().size(), 100);
  EXPECT_EQ(registry_.events().back().what, "149");
}

TEST_F(NodeRegistryTest, AForeignBeatIsIgnored) {
  EXPECT_EQ(registry_.OnHeartbeat("nobody", proto::NodeStatus()), nullptr);
  EXPECT_FALSE(Join("a", proto::Register()).accepted());
}

TEST_F(NodeRegistryTest, ARegistrationThatCannotBeIsRefusedByField) {
  proto::Register registration = WorkerRegistration("replica\x01");
  EXPECT_THAT(Join("a", registration).reason(), HasSubstr("its registration: node_id"));
  EXPECT_THAT(registry_.events().back().what, HasSubstr("replica replica\\001 refused"));
  registration = WorkerRegistration("replica-0");
  registration.set_kv_blocks_total(-5);
  EXPECT_THAT(Join("a", registration).reason(), HasSubstr("kv_blocks_total: -5"));
  EXPECT_THAT(registry_.Replicas(), IsEmpty());
}

}  // namespace
}  // namespace coppice::coordinator
