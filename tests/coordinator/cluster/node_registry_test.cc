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
    const auto ack = registry_.OnRegister(peer, registration, &replaced_);
    EXPECT_TRUE(ack.has_value()) << registration.node_id() << " has to wait for its name";
    return ack.value_or(proto::RegisterAck());
  }
  // Another process with everything else equal, as in containers with equal host names.
  proto::Register Twin(proto::Register registration, uint64_t process_id) {
    registration.set_process_id(process_id);
    return registration;
  }
  // "" = it has to wait.
  std::string NameOf(const std::string& peer, const proto::Register& registration) {
    const auto ack = registry_.OnRegister(peer, registration, &replaced_);
    return ack.has_value() ? ack->node_id() : "";
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

TEST_F(NodeRegistryTest, LeadersLearnWhatADraftNodeComputesOnAndWhatItTakes) {
  proto::Register registration = DraftRegistration("draft-0");
  registration.set_energy_domain(17);
  registration.set_states(23);
  Join("d", registration);
  ASSERT_EQ(registry_.ReadyDraftNodes().nodes_size(), 1);
  EXPECT_EQ(registry_.ReadyDraftNodes().nodes(0).energy_domain(), 17u);
  EXPECT_EQ(registry_.ReadyDraftNodes().nodes(0).states(), 23u);
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

// A given-up process that registers again must show progress before it gets work.
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
}

// Before the target has come nobody knows its vocabulary, which may be larger than the tokenizer's.
TEST_F(NodeRegistryTest, ADraftThatCameFirstIsRefusedWhenTheTargetComes) {
  ASSERT_TRUE(Join("b", DraftRegistration("draft-0", 299)).accepted());
  ASSERT_TRUE(Join("c", DraftRegistration("draft-1", 300)).accepted());
  EXPECT_EQ(registry_.ReadyDraftNodes().nodes_size(), 2);
  const proto::RegisterAck worker = Join("a", WorkerRegistration("replica-0", 300));
  EXPECT_TRUE(worker.accepted()) << worker.reason();
  ASSERT_EQ(worker.draft_nodes_size(), 1);
  EXPECT_EQ(worker.draft_nodes(0).node_id(), "draft-1");
  EXPECT_THAT(registry_.CollectLost(), ElementsAre("draft-0"));
  EXPECT_THAT(registry_.CollectLost(), IsEmpty());
  EXPECT_TRUE(registry_.Find("draft-0")->given_up);
  const std::string why = registry_.Find("draft-0")->refused;
  EXPECT_EQ(why,
            "the draft model's vocabulary has 299 ids but the target model's has 300 (replica "
            "replica-0)");
  EXPECT_EQ(registry_.events().back().what, "draft node draft-0 is refused: " + why);
  Beat("b");
  EXPECT_EQ(StateOf("draft-0"), NodeState::kLost);
  // It asks again, over whatever connection. That is told once.
  const size_t events = registry_.events().size();
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(Join("d", DraftRegistration("draft-0", 299)).reason(), why);
  }
  EXPECT_EQ(registry_.events().size(), events + 1);
  EXPECT_EQ(registry_.ReadyDraftNodes().nodes_size(), 1);
}

// The target was silent for a while. The draft that came meanwhile is not its.
TEST_F(NodeRegistryTest, ADraftIsRefusedWhenTheTargetComesBack) {
  Join("a", WorkerRegistration("replica-0", 300));
  EXPECT_THAT(LostUntil(2), ElementsAre("replica-0"));
  ASSERT_TRUE(Join("b", DraftRegistration("draft-0", 299)).accepted());
  EXPECT_THAT(registry_.CollectLost(), IsEmpty());
  Beat("a");
  EXPECT_THAT(registry_.CollectLost(), ElementsAre("draft-0"));
  EXPECT_EQ(StateOf("replica-0"), NodeState::kReady);
}

// A draft is compared with the target alone, so that one wrong model has one error.
TEST_F(NodeRegistryTest, ATargetWithoutAFittingTokenizerIsRefusedAndItsDraftIsNot) {
  EXPECT_TRUE(Join("b", DraftRegistration("draft-0", 257)).accepted());
  EXPECT_FALSE(Join("a", WorkerRegistration("replica-0", 257)).accepted());
  EXPECT_THAT(registry_.CollectLost(), IsEmpty());
  EXPECT_EQ(StateOf("draft-0"), NodeState::kReady);
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

// A request may move from one to another. Drafts have a type of their own.
TEST_F(NodeRegistryTest, ReplicasKeepKvInOneType) {
  proto::Register replica = WorkerRegistration("replica-0");
  replica.mutable_model()->set_kv_dtype("BF16");
  Join("a", replica);
  proto::Register other = WorkerRegistration("replica-1");
  other.mutable_model()->set_kv_dtype("I8");
  EXPECT_EQ(Join("b", other).reason(), "it keeps KV as I8, replica replica-0 as BF16 (--kv_dtype)");
  other.mutable_model()->set_kv_dtype("BF16");
  EXPECT_TRUE(Join("b", other).accepted());
  proto::Register draft = DraftRegistration("draft-0");
  draft.mutable_model()->set_kv_dtype("I8");
  EXPECT_TRUE(Join("c", draft).accepted());
}

TEST_F(NodeRegistryTest, NamesAreMadeUniqueAndTheSameProcessKeepsIts) {
  EXPECT_EQ(Join("a", WorkerRegistration("r")).node_id(), "r");
  EXPECT_EQ(Join("b", WorkerRegistration("r")).node_id(),
            "r");  // the same process on another connection
  EXPECT_EQ(replaced_, "");
  const proto::Register another = Twin(WorkerRegistration("r"), 2);
  EXPECT_EQ(NameOf("c", another), "");
  clock_.now_s = 0.4;
  Beat("b");
  clock_.now_s = 1;
  EXPECT_EQ(NameOf("c", another), "r-2");
  EXPECT_EQ(NameOf("e", another), "r-2");  // it has not got the answer
  EXPECT_EQ(replaced_, "");
  EXPECT_EQ(registry_.Replicas().size(), 2);
  EXPECT_EQ(Join("d", DraftRegistration("")).node_id(), "draft-0");
}

// Containers on the network of their host: the same host name, and in each the process is the first.
TEST_F(NodeRegistryTest, ProcessesWithEqualHostAndPidAreTwo) {
  proto::Register first = WorkerRegistration("replica-1"), second = WorkerRegistration("replica-1");
  first.clear_node_id();
  second = Twin(first, 2);
  EXPECT_EQ(Join("a", first).node_id(), "replica-0");
  EXPECT_EQ(Join("b", second).node_id(), "replica-1");
  registry_.OnGoodbye("b", "");
  Beat("a");
  ASSERT_EQ(registry_.ReadyReplicas().size(), 1);
  EXPECT_EQ(registry_.ReadyReplicas()[0]->peer, "a");
}

// A process that is killed says no Goodbye, and its supervisor starts it again at once.
TEST_F(NodeRegistryTest, AProcessThatIsStartedAgainAtOnceKeepsTheName) {
  Join("a", WorkerRegistration("r"));
  EXPECT_THAT(LostUntil(0.6), IsEmpty());
  Beat("a");
  clock_.now_s = 0.7;
  const proto::Register again = Twin(WorkerRegistration("r"), 2);
  EXPECT_EQ(NameOf("b", again), "");
  EXPECT_THAT(LostUntil(1.7), IsEmpty());
  EXPECT_EQ(NameOf("b", again), "");
  EXPECT_THAT(LostUntil(2.7), ElementsAre("r"));
  EXPECT_EQ(NameOf("b", again), "r");
  EXPECT_EQ(replaced_, "r");
  EXPECT_EQ(registry_.Replicas().size(), 1);
  Beat("b");
  EXPECT_EQ(registry_.ReadyReplicas().size(), 1);
}

TEST_F(NodeRegistryTest, WhereHeartbeatsAreRareANameIsNotWaitedForLong) {
  RegistryOptions options = Options();
  options.heartbeat_interval_s = 60;
  NodeRegistry registry(&clock_, options);
  registry.OnRegister("a", WorkerRegistration("r"), &replaced_);
  const proto::Register another = Twin(WorkerRegistration("r"), 2);
  EXPECT_FALSE(registry.OnRegister("b", another, &replaced_).has_value());
  clock_.now_s = 5;
  EXPECT_EQ(registry.OnRegister("b", another, &replaced_)->node_id(), "r-2");
}

// What the old process does not hear of while it is stopped.
TEST_F(NodeRegistryTest, AProcessWhoseNameWasTakenComesBackUnderAnother) {
  Join("a", WorkerRegistration("r"));
  EXPECT_THAT(LostUntil(2), ElementsAre("r"));
  EXPECT_EQ(NameOf("b", Twin(WorkerRegistration("r"), 2)), "r");
  EXPECT_EQ(registry_.OnHeartbeat("a", proto::NodeStatus()), nullptr);
  EXPECT_EQ(NameOf("a", WorkerRegistration("r")), "");
  clock_.now_s = 2.5;
  Beat("b");
  EXPECT_EQ(NameOf("a", WorkerRegistration("r")), "r-2");
  EXPECT_EQ(registry_.ReadyReplicas().size(), 2);
}

TEST_F(NodeRegistryTest, ANewProcessTakesTheNameOfALostOne) {
  Join("a", WorkerRegistration("r"));
  registry_.OnGoodbye("a", "");
  EXPECT_EQ(Join("b", Twin(WorkerRegistration("r"), 2)).node_id(), "r");
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
