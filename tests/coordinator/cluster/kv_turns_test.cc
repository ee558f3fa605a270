// Who may reserve KV blocks when they are scarce.
#include "coordinator/cluster/kv_turns.h"

#include <gtest/gtest.h>

#include "tests/coordinator/fake_worker.h"

namespace coppice::coordinator {
namespace {

class KvTurnsTest : public ::testing::Test {
 protected:
  KvTurnsTest() {
    for (int i = 0; i < 2; ++i) {
      nodes_[i].id = "replica-" + std::to_string(i);
      nodes_[i].registration = WorkerRegistration(nodes_[i].id);
      nodes_[i].registration.set_kv_blocks_total(80);
    }
  }
  bool HasRoom(const std::string& client, uint64_t entry, int64_t blocks) {
    return !turns_.WithRoom(one_, client, entry, blocks, {}).empty();
  }
  uint64_t Start(const std::string& client, uint64_t entry, int64_t blocks,
                 const std::string& replica = "replica-0") {
    router_.Reserve(replica == nodes_[0].id ? nodes_[0] : nodes_[1], {}, blocks);
    turns_.Started(client, entry, replica, ++sequence_, blocks);
    return sequence_;
  }
  void End(const std::string& client, uint64_t sequence, int64_t blocks) {
    router_.Release("replica-0", {}, blocks);
    turns_.Ended(client, "replica-0", sequence, blocks);
  }

  Node nodes_[2];
  const std::vector<const Node*> one_ = {&nodes_[0]}, both_ = {&nodes_[0], &nodes_[1]};
  Router router_;
  KvTurns turns_{&router_};
  uint64_t sequence_ = 0;
};

TEST_F(KvTurnsTest, TheLastEighthIsForClientsThatHoldNothing) {
  EXPECT_TRUE(HasRoom("a", 1, 80));
  Start("a", 1, 60);
  EXPECT_TRUE(HasRoom("a", 2, 10));
  EXPECT_FALSE(HasRoom("a", 2, 11));
  EXPECT_TRUE(HasRoom("b", 3, 20));
  EXPECT_FALSE(HasRoom("b", 3, 21));
}

TEST_F(KvTurnsTest, WhatNeedsMoreThanThereIsRunsAlone) {
  EXPECT_TRUE(HasRoom("a", 1, 90));
  const uint64_t sequence = Start("b", 2, 10);
  EXPECT_FALSE(HasRoom("a", 1, 90));
  EXPECT_FALSE(HasRoom("b", 3, 80));
  End("b", sequence, 10);
  EXPECT_TRUE(HasRoom("a", 1, 90));
}

TEST_F(KvTurnsTest, WhoHoldsSomethingOnOneReplicaLeavesTheLastPartOfAll) {
  Start("a", 1, 1, "replica-1");
  EXPECT_TRUE(HasRoom("a", 2, 70));
  EXPECT_FALSE(HasRoom("a", 2, 71));
}

// The huge request of a client that holds nothing is passed by a pool of blocks, and then no more
// than what it leaves is given to others.
TEST_F(KvTurnsTest, AReplicaIsKeptForWhatWasPassedForTooLong) {
  const uint64_t first = Start("b", 1, 40);
  ASSERT_FALSE(HasRoom("huge", 9, 60));
  turns_.Passed(9, 79);
  turns_.Blocked(9, "huge", 60, one_);
  EXPECT_TRUE(HasRoom("c", 2, 25));
  turns_.Passed(9, 1);
  turns_.Blocked(9, "huge", 60, one_);
  EXPECT_FALSE(HasRoom("c", 2, 25));
  EXPECT_TRUE(HasRoom("c", 2, 20));
  const uint64_t late = Start("c", 2, 15);
  EXPECT_FALSE(HasRoom("d", 3, 6));
  EXPECT_TRUE(HasRoom("d", 3, 5));
  End("b", first, 40);
  EXPECT_TRUE(HasRoom("huge", 9, 60));
  EXPECT_FALSE(HasRoom("d", 3, 6));
  End("c", late, 15);
  EXPECT_TRUE(HasRoom("d", 3, 20));
  Start("huge", 9, 60);
  EXPECT_TRUE(HasRoom("d", 3, 20));
}

TEST_F(KvTurnsTest, NothingIsKeptForWhatWaitsForItsOwnClientOrWaitsNoMore) {
  Start("huge", 1, 40);
  turns_.Passed(9, 800);
  EXPECT_FALSE(turns_.WaitsForOthers("huge", 60, one_));
  turns_.Blocked(9, "huge", 60, one_);
  EXPECT_TRUE(HasRoom("c", 2, 40));
  turns_.Passed(10, 800);
  turns_.Blocked(10, "other", 60, one_);
  EXPECT_FALSE(HasRoom("c", 2, 40));
  turns_.Forget(10);
  EXPECT_TRUE(HasRoom("c", 2, 40));
}

TEST_F(KvTurnsTest, AReplicaIsKeptForAClientThatHoldsLittle) {
  Start("huge", 1, 5);
  Start("b", 2, 50);
  turns_.Passed(9, 80);
  EXPECT_TRUE(turns_.WaitsForOthers("huge", 60, one_));
  turns_.Blocked(9, "huge", 60, one_);
  EXPECT_FALSE(HasRoom("c", 3, 21));
  EXPECT_TRUE(HasRoom("c", 3, 20));
}

TEST_F(KvTurnsTest, OfTwoReplicasTheFreerOneIsKept) {
  Start("b", 1, 70);
  Start("b", 2, 30, "replica-1");
  turns_.Passed(9, 80);
  turns_.Blocked(9, "huge", 60, both_);
  const std::vector<const Node*> room = turns_.WithRoom(both_, "c", 3, 21, {});
  EXPECT_TRUE(room.empty());
  ASSERT_EQ(turns_.WithRoom(both_, "c", 3, 10, {}).size(), 2);
  turns_.Blocked(9, "huge", 60, one_);  // it drains: the other one is kept
  EXPECT_EQ(turns_.WithRoom(both_, "c", 3, 30, {}), std::vector<const Node*>{&nodes_[1]});
}

}  // namespace
}  // namespace coppice::coordinator
