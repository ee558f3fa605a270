#include "coordinator/cluster/router.h"

#include <gtest/gtest.h>

#include "tests/coordinator/fake_worker.h"

namespace coppice::coordinator {
namespace {

class RouterTest : public ::testing::Test {
 protected:
  RouterTest() {
    for (int i = 0; i < 2; ++i) {
      nodes_[i].id = "replica-" + std::to_string(i);
      nodes_[i].registration = WorkerRegistration(nodes_[i].id);
      nodes_[i].registration.set_kv_blocks_total(80);
      ready_.push_back(&nodes_[i]);
    }
  }
  Node nodes_[2];
  std::vector<const Node*> ready_;
  Router router_;
  const std::vector<TokenId> prompt_ = {1, 2, 3}, other_ = {4, 5, 6};
};

TEST_F(RouterTest, TheFreestReplicaComesFirst) {
  router_.Reserve("replica-0", other_, 40);
  EXPECT_EQ(router_.Pick(ready_, prompt_), "replica-1");
}

TEST_F(RouterTest, APrefixGoesHomeWhenBothAreAboutAsFree) {
  router_.Reserve("replica-1", prompt_, 1);
  router_.Reserve("replica-0", other_, 1);
  EXPECT_EQ(router_.Pick(ready_, prompt_), "replica-1");
  EXPECT_EQ(router_.Pick(ready_, other_), "replica-0");
  router_.Reserve("replica-1", prompt_, 40);
  EXPECT_EQ(router_.Pick(ready_, prompt_), "replica-0");
}

TEST_F(RouterTest, WithoutAHomeTheLessBusyWins) {
  router_.Reserve("replica-0", other_, 1);
  EXPECT_EQ(router_.Pick(ready_, prompt_), "replica-1");
}

TEST_F(RouterTest, WhatIsReleasedIsFree) {
  router_.Reserve("replica-0", prompt_, 75);
  EXPECT_EQ(router_.reserved("replica-0"), 75);
  router_.Release("replica-0", 75);
  EXPECT_EQ(router_.reserved("replica-0"), 0);
  EXPECT_EQ(router_.Pick({}, prompt_), "");
}

TEST_F(RouterTest, AForgottenReplicaHoldsNothing) {
  router_.Reserve("replica-0", prompt_, 70);
  router_.Forget("replica-0");
  EXPECT_EQ(router_.reserved("replica-0"), 0);
  EXPECT_EQ(router_.running("replica-0"), 0);
}

}  // namespace
}  // namespace coppice::coordinator
