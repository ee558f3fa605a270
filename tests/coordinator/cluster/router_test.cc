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
  int Send(const RoutedPrompt& prompt, int64_t blocks = 1) {
    const std::string id = router_.Pick(ready_, prompt);
    const int index = id.back() - '0';
    router_.Reserve(nodes_[index], prompt, blocks);
    return index;
  }
  Node nodes_[3];
  std::vector<const Node*> ready_ = {&nodes_[0], &nodes_[1]};
  Router router_;
  const std::vector<TokenId> tokens_ = CountFrom(600, 1);
  const RoutedPrompt prompt_{tokens_}, other_{CountFrom(600, 5000)};
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
  std::vector<TokenId> turn = tokens_;
  turn.push_back(9);
  EXPECT_EQ(router_.Pick(ready_, RoutedPrompt(turn)), "replica-1");
  EXPECT_EQ(router_.Pick(ready_, other_), "replica-0");
}

TEST_F(RouterTest, TheLongestBeginningCountsNotTheFirst) {
  std::vector<TokenId> tokens = tokens_;
  std::fill(tokens.begin() + 300, tokens.end(), 7);
  const RoutedPrompt longer = prompt_, shorter(tokens);
  router_.Reserve(nodes_[0], shorter, 1);
  router_.Reserve(nodes_[1], longer, 1);
  EXPECT_EQ(router_.Pick(ready_, longer), "replica-1");
  EXPECT_EQ(router_.Pick(ready_, shorter), "replica-0");
}

TEST_F(RouterTest, AShortCommonBeginningDoesNotHoldPromptsTogether) {
  for (int i = 0; i < 20; ++i) {
    std::vector<TokenId> prompt = CountFrom(600, 1000 * (i + 1));
    std::iota(prompt.begin(), prompt.begin() + 48, 1);
    EXPECT_EQ(Send(RoutedPrompt(prompt)), i % 2) << i;
  }
}

TEST_F(RouterTest, AHotPromptIsSoonEverywhere) {
  std::map<int, int> sent;
  for (int i = 0; i < 40; ++i) {
    std::vector<TokenId> prompt = tokens_;
    prompt.back() = i;
    ++sent[Send(RoutedPrompt(prompt))];
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
    const RoutedPrompt prompt(CountFrom(100, 1000 * i));
    const int index = Send(prompt, 10);
    EXPECT_EQ(index, i % 3);
    router_.Release(nodes_[index].id, prompt, 10);
  }
}

TEST_F(RouterTest, WhatIsReleasedIsFree) {
  router_.Reserve(nodes_[0], prompt_, 75);
  EXPECT_EQ(router_.reserved("replica-0"), 75);
  router_.Release("replica-0", prompt_, 75);
  EXPECT_EQ(router_.reserved("replica-0"), 0);
  EXPECT_EQ(router_.Pick({}, prompt_), "");
}

// 600 tokens are 37 blocks and a part of one.
TEST_F(RouterTest, WhatPromptsHaveInCommonIsReservedOnce) {
  std::vector<TokenId> turn = tokens_;
  turn.resize(700, 9);
  const RoutedPrompt longer(turn);
  EXPECT_EQ(router_.Added(nodes_[0], prompt_, 40), 40);
  router_.Reserve(nodes_[0], prompt_, 40);
  EXPECT_EQ(router_.Added(nodes_[0], prompt_, 40), 3);
  EXPECT_EQ(router_.Added(nodes_[0], longer, 50), 13);
  EXPECT_EQ(router_.Added(nodes_[0], other_, 40), 40);
  EXPECT_EQ(router_.Added(nodes_[1], prompt_, 40), 40);
  router_.Reserve(nodes_[0], longer, 50);
  EXPECT_EQ(router_.reserved("replica-0"), 53);
  // Whoever came first does not take with it what the other still has.
  router_.Release("replica-0", prompt_, 40);
  EXPECT_EQ(router_.reserved("replica-0"), 50);
  router_.Release("replica-0", longer, 50);
  EXPECT_EQ(router_.reserved("replica-0"), 0);
}

TEST_F(RouterTest, WithWindowsSequencesCountByThemselves) {
  nodes_[0].registration.add_kv_windows(0);
  nodes_[0].registration.add_kv_windows(128);
  router_.Reserve(nodes_[0], prompt_, 60);
  EXPECT_EQ(router_.Added(nodes_[0], prompt_, 60), 60);
  router_.Reserve(nodes_[0], prompt_, 60);
  EXPECT_EQ(router_.reserved("replica-0"), 120);
  router_.Release("replica-0", prompt_, 60);
  EXPECT_EQ(router_.reserved("replica-0"), 60);
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
