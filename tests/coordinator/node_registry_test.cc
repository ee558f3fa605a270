#include "coordinator/node_registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/coordinator/fake_worker.h"

namespace coppice {
namespace {

using testing::DraftRegistration;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::WorkerRegistration;

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
  void Beat(const std::string& peer, uint64_t step = 1, double last_step_s = 0) {
    proto::NodeStatus status;
    status.set_step(step);
    status.set_last_step_s(last_step_s);
    registry_.OnHeartbeat(peer, status);
  }

  ManualClock clock_;
  NodeRegistry registry_{&clock_, Options()};
  std::string replaced_;
};

TEST_F(NodeRegistryTest, ThreeMissedBeatsAreALoss) {
  ASSERT_TRUE(Join("a", WorkerRegistration("replica-0")).accepted());
  clock_.now_s = 1.4;
  EXPECT_THAT(registry_.CollectLost(), IsEmpty());
  Beat("a");
  clock_.now_s = 2.8;
  EXPECT_THAT(registry_.CollectLost(), IsEmpty());
  clock_.now_s = 3.0;
  EXPECT_THAT(registry_.CollectLost(), ElementsAre("replica-0"));
  EXPECT_THAT(registry_.CollectLost(), IsEmpty());
  EXPECT_EQ(registry_.Find("replica-0")->state, NodeState::kLost);
  Beat("a");
  EXPECT_EQ(registry_.Find("replica-0")->state, NodeState::kReady);
}

TEST_F(NodeRegistryTest, BeatsWithoutStepsAreALoss) {
  Join("a", WorkerRegistration("replica-0"));
  for (int i = 1; i <= 130; ++i) {
    clock_.now_s = i * 0.5;
    Beat("a", 7, /*last_step_s=*/i * 0.5);
    const std::vector<std::string> lost = registry_.CollectLost();
    EXPECT_EQ(lost.size(), clock_.now_s > 60.5 && clock_.now_s <= 61 ? 1 : 0) << clock_.now_s;
  }
  EXPECT_THAT(registry_.events().back().what, HasSubstr("no step"));
}

TEST_F(NodeRegistryTest, AnIdleNodeIsNotStuck) {
  Join("a", WorkerRegistration("replica-0"));
  for (int i = 1; i <= 300; ++i) {
    clock_.now_s = i * 0.5;
    Beat("a", 7, 0);
    EXPECT_THAT(registry_.CollectLost(), IsEmpty());
  }
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
}  // namespace coppice
