#include "coordinator/cluster/router.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "tests/coordinator/fake_worker.h"

namespace coppice::coordinator {
namespace {

std::vector<TokenId> CountFrom(int tokens, TokenId first) {
  std::vector<TokenId> prompt(tokens);
  std::iota(prompt.begin(), prompt.end(), first);
  return prompt;
}

class RouterTest : public ::testing::Test {
 protected:
  RouterTest() {
    for (int i = 0; i < 3; ++i) {
      nodes_[i].id = "replica-" + std::to_string(i);
      nodes_[i].registration = WorkerRegistration(nodes_[i].id);
      nodes_[i].registration.set_kv_blocks_total(800);
    }
  }
  // Routes and reserves. Returns the index of the replica.
  int Send(absl::Span<const TokenId> prompt, int64_t blocks = 1) {
    const std::string id = router_.Pick(ready_, prompt);
    const int index = id.back() - '0';
    router_.Reserve(nodes_[index], prompt, blocks);
    return index;
  }
  Node nodes_[3];
  std::vector<const Node*> ready_ = {&nodes_[0], &nodes_[1]};
  Router router_;
  const std::vector<TokenId> prompt_ = CountFrom(600, 1), other_ = CountFrom(600, 5000);
};

TEST_F(RouterTest, TheFreestReplicaComesFirst) {
  router_.Reserve(nodes_[0], other_, 400);
  router_.Reserve(nodes_[1], other_, 1);
  EXPECT_EQ(router_.Pick(ready_, prompt_), "replica-1");
}

TEST_F(RouterTest, TheLessBusyWins) {
  router_.Reserve(nodes_[0], other_, 1);
  EXPECT_EQ(router_.Pick(ready_, prompt_), "replica-1");
}

TEST_F(RouterTest, APromptGoesWhereItsBeginningHasBeen) {
  router_.Reserve(nodes_[1], prompt_, 1);
  router_.Reserve(nodes_[0], other_, 1);
  std::vector<TokenId> turn = prompt_;
  turn.push_back(9);
  EXPECT_EQ(router_.Pick(ready_, turn), "replica-1");
  EXPECT_EQ(router_.Pick(ready_, other_), "replica-0");
}

TEST_F(RouterTest, TheLongestBeginningCountsNotTheFirst) {
  std::vector<TokenId> longer = prompt_, shorter = prompt_;
  std::fill(shorter.begin() + 300, shorter.end(), 7);
  router_.Reserve(nodes_[0], shorter, 1);
  router_.Reserve(nodes_[1], longer, 1);
  EXPECT_EQ(router_.Pick(ready_, longer), "replica-1");
  EXPECT_EQ(router_.Pick(ready_, shorter), "replica-0");
}

TEST_F(RouterTest, AShortCommonBeginningDoesNotHoldPromptsTogether) {
  for (int i = 0; i < 20; ++i) {
    std::vector<TokenId> prompt = CountFrom(600, 1000 * (i + 1));
    std::iota(prompt.begin(), prompt.begin() + 48, 1);
    EXPECT_EQ(Send(prompt), i % 2) << i;
  }
}

TEST_F(RouterTest, AHotPromptIsSoonEverywhere) {
  std::map<int, int> sent;
  for (int i = 0; i < 40; ++i) {
    std::vector<TokenId> prompt = prompt_;
    prompt.back() = i;
    ++sent[Send(prompt)];
  }
  EXPECT_GE(sent[0], 15);
  EXPECT_GE(sent[1], 15);
}

TEST_F(RouterTest, ALongBeginningIsWorthAShortWait) {
  EXPECT_EQ(Send(prompt_), 0);
  EXPECT_EQ(Send(prompt_), 0);
  router_.Reserve(nodes_[0], other_, 700);  // hardly any KV is left
  EXPECT_EQ(Send(prompt_), 1);
}

TEST_F(RouterTest, AmongIdleReplicasNewPromptsTakeTurns) {
  ready_.push_back(&nodes_[2]);
  for (int i = 0; i < 6; ++i) {
    const int index = Send(CountFrom(100, 1000 * i));
    EXPECT_EQ(index, i % 3);
    router_.Release(nodes_[index].id, 1);
  }
}

TEST_F(RouterTest, WhatIsReleasedIsFree) {
  router_.Reserve(nodes_[0], prompt_, 75);
  EXPECT_EQ(router_.reserved("replica-0"), 75);
  router_.Release("replica-0", 75);
  EXPECT_EQ(router_.reserved("replica-0"), 0);
  EXPECT_EQ(router_.Pick({}, prompt_), "");
}

TEST_F(RouterTest, AForgottenReplicaHoldsNothing) {
  router_.Reserve(nodes_[0], prompt_, 70);
  router_.Forget("replica-0");
  EXPECT_EQ(router_.reserved("replica-0"), 0);
  EXPECT_EQ(router_.running("replica-0"), 0);
}

TEST_F(RouterTest, AReplicaThatDiedHasNoPrefixes) {
  router_.Reserve(nodes_[0], prompt_, 1);
  router_.Reserve(nodes_[1], other_, 1);
  router_.Forget("replica-0");
  router_.Reserve(nodes_[0], other_, 1);
  // Both run one sequence, and neither has seen the prompt: the one that started longer ago.
  EXPECT_EQ(router_.Pick(ready_, prompt_), "replica-1");
}

}  // namespace
}  // namespace coppice::coordinator
