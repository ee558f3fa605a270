// Turns of clients: the order of service, and its bounds under random operations.
#include "coordinator/http/fair_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "absl/strings/str_cat.h"

namespace coppice::coordinator {
namespace {

using ::testing::ElementsAre;

class FairQueueTest : public ::testing::Test {
 protected:
  // Serves what is next, whole. Returns its job.
  std::string Pop() {
    const FairQueue<std::string>::Entry head = *queue_.Heads().front();
    queue_.Serve(head.id, head.cost);
    return queue_.Remove(head.id);
  }
  std::vector<std::string> PopAll() {
    std::vector<std::string> jobs;
    while (!queue_.empty()) jobs.push_back(Pop());
    return jobs;
  }
  FairQueue<std::string> queue_;
  const Client a_{"a"}, b_{"b"}, heavy_{"heavy", 2};
};

TEST_F(FairQueueTest, ClientsTakeTurnsAndEachIsServedInOrder) {
  for (const char* job : {"a1", "a2", "a3"}) queue_.Push(a_, 1, job);
  for (const char* job : {"b1", "b2"}) queue_.Push(b_, 1, job);
  EXPECT_THAT(PopAll(), ElementsAre("a1", "b1", "a2", "b2", "a3"));
}

TEST_F(FairQueueTest, CostsAndWeightsCount) {
  for (const char* job : {"a1", "a2"}) queue_.Push(a_, 4, job);
  for (const char* job : {"b1", "b2", "b3"}) queue_.Push(b_, 2, job);
  EXPECT_THAT(PopAll(), ElementsAre("a1", "b1", "b2", "a2", "b3"));
  for (const char* job : {"a1", "a2"}) queue_.Push(a_, 1, job);
  for (const char* job : {"h1", "h2", "h3", "h4"}) queue_.Push(heavy_, 1, job);
  EXPECT_THAT(PopAll(), ElementsAre("a1", "h1", "h2", "a2", "h3", "h4"));
}

TEST_F(FairQueueTest, OneThatComesBackHasSavedNothing) {
  for (int i = 0; i < 6; ++i) queue_.Push(a_, 1, absl::StrCat("a", i));
  for (int i = 0; i < 4; ++i) Pop();
  queue_.Push(b_, 1, "b0");
  queue_.Push(b_, 1, "b1");
  EXPECT_THAT(PopAll(), ElementsAre("b0", "a4", "b1", "a5"));
}

// Its jobs are paid for when they come first, so leaving does not make them free.
TEST_F(FairQueueTest, OneThatComesBackHasNotForgottenItsDebts) {
  queue_.Push(a_, 9, "a0");
  for (int i = 0; i < 12; ++i) queue_.Push(b_, 1, absl::StrCat("b", i));
  EXPECT_EQ(Pop(), "a0");
  EXPECT_EQ(Pop(), "b0");
  queue_.Push(a_, 1, "a1");
  for (int i = 1; i < 10; ++i) EXPECT_EQ(Pop(), absl::StrCat("b", i));
  EXPECT_EQ(Pop(), "a1");
}

TEST_F(FairQueueTest, LowerValuesOfPriorityGoFirst) {
  queue_.Push(a_, 1, "a1", /*priority=*/2);
  queue_.Push(a_, 1, "a2");
  queue_.Push(b_, 1, "b1", /*priority=*/2);
  queue_.Push(b_, 1, "b2");
  queue_.Push(b_, 1, "b3", /*priority=*/-1);
  EXPECT_EQ(queue_.Ahead(a_, 0, /*priority=*/-2), 0);
  EXPECT_EQ(queue_.Ahead(a_, 0, /*priority=*/-1), 0);
  EXPECT_EQ(queue_.Ahead(a_, 0, /*priority=*/0), 3);
  EXPECT_EQ(queue_.Ahead(a_, 0, /*priority=*/3), 5);
  EXPECT_THAT(PopAll(), ElementsAre("b3", "a2", "b2", "a1", "b1"));
}

// A job that others outrank has its turn after eight of those that came later, and what it costs is
// an eighth of theirs.
TEST_F(FairQueueTest, AnEighthIsForThoseThatOthersOutrank) {
  for (int i = 0; i < 3; ++i) queue_.Push(a_, 1, "early");
  for (const char* job : {"low1", "low2"}) queue_.Push(b_, 2, job, /*priority=*/1);
  std::vector<int> turns;
  for (int turn = 0; turn < 50; ++turn) {
    queue_.Push(a_, 1, "high");
    const std::string job = Pop();
    EXPECT_EQ(job == "early", turn < 3);
    if (job != "high" && job != "early") turns.push_back(turn);
  }
  EXPECT_THAT(turns, ElementsAre(3 + 8, 3 + 8 + 1 + 16));
}

// Each part of a job is owed an eighth, not the whole job before its first part.
TEST_F(FairQueueTest, AnEighthIsAlsoForTheFirstPartOfALargeJob) {
  const uint64_t large = queue_.Push(b_, 64, "large", /*priority=*/1);
  queue_.Push(a_, 1, "high");  // there is always one more
  std::vector<int> turns;
  for (int turn = 0; turn < 60; ++turn) {
    queue_.Push(a_, 1, "high");
    const FairQueue<std::string>::Entry head = *queue_.Heads().front();
    queue_.Serve(head.id, 1);
    if (head.id == large) {
      turns.push_back(turn);
    } else {
      queue_.Remove(head.id);
    }
  }
  EXPECT_THAT(turns, ElementsAre(8, 17, 26, 35, 44, 53));
}

TEST_F(FairQueueTest, WhatIsPushedFirstComesBeforeAll) {
  queue_.Push(a_, 1, "a1");
  queue_.PushFirst(b_, 1, "b1");
  queue_.PushFirst(a_, 1, "a0");
  EXPECT_EQ(queue_.SizeOf("a"), 2);
  EXPECT_THAT(PopAll(), ElementsAre("a0", "b1", "a1"));
}

TEST_F(FairQueueTest, AheadIsWhatComesFirst) {
  for (int i = 0; i < 100; ++i) queue_.Push(a_, 10, "a");
  EXPECT_EQ(queue_.Ahead(b_), 0);
  EXPECT_EQ(queue_.Ahead(a_), 1000);
  const uint64_t first = queue_.Push(b_, 10, "b");
  const uint64_t third = queue_.Push(b_, 20, "b");
  EXPECT_EQ(queue_.Ahead(b_, first), 0);
  EXPECT_EQ(queue_.Ahead(b_, third), 10 + 10);
  EXPECT_EQ(queue_.Ahead(heavy_), 0);
  queue_.PushFirst(a_, 5, "a");
  EXPECT_EQ(queue_.Ahead(b_, first), 5);
}

TEST_F(FairQueueTest, WhatIsRemovedCostsNothing) {
  const uint64_t large = queue_.Push(a_, 1000, "a0");
  queue_.Push(a_, 1, "a1");
  queue_.Push(b_, 1, "b0");
  EXPECT_EQ(queue_.Remove(large), "a0");
  EXPECT_FALSE(queue_.Contains(large));
  EXPECT_THAT(PopAll(), ElementsAre("a1", "b0"));
}

TEST_F(FairQueueTest, WhoForgoesTurnsHasNoClaimOnThem) {
  const uint64_t a = queue_.Push(a_, 1, "a0");
  for (int i = 1; i < 4; ++i) queue_.Push(a_, 1, absl::StrCat("a", i));
  for (int i = 0; i < 6; ++i) {  // while a's cannot begin
    const uint64_t id = queue_.Push(b_, 1, "b");
    queue_.Serve(id, 1);
    queue_.Remove(id);
    queue_.ForgoTurns(a);
  }
  for (int i = 0; i < 3; ++i) queue_.Push(b_, 1, absl::StrCat("b", i));
  EXPECT_THAT(PopAll(), ElementsAre("a0", "a1", "b0", "a2", "b1", "a3", "b2"));
}

// Clients come, wait, give up and are served at random. While two of them have something waiting, what
// they have been served for differs, by weight, by no more than one job of each (Goyal et al.,
// theorem 1). A newcomer is served after at most one job of each other client.
TEST_F(FairQueueTest, BoundsHoldUnderRandomOperations) {
  constexpr int kClients = 5, kMostCost = 50, kNewcomer = -1;
  std::mt19937 random(11);
  std::vector<Client> clients;
  for (int i = 0; i < kClients; ++i) clients.push_back({absl::StrCat("c", i), 1.0 + i % 3});
  FairQueue<int> queue;  // of client numbers
  std::vector<std::multiset<uint64_t>> waiting(kClients);
  // [x][y] what x has been served for since both wait, by weight
  double served[kClients][kClients] = {};
  const auto reset = [&](int client) {
    for (int other = 0; other < kClients; ++other)
      served[client][other] = served[other][client] = 0;
  };
  int checks = 0, newcomers = 0;
  bool newcomer_waits = false;
  std::vector<int> before_newcomer(kClients);
  for (int step = 0; step < 40000; ++step) {
    const int client = random() % kClients;
    const int what = random() % 100;
    if (what < 2 && !newcomer_waits) {
      queue.Push({absl::StrCat("newcomer-", ++newcomers)}, 1 + random() % kMostCost, kNewcomer);
      newcomer_waits = true;
      before_newcomer.assign(kClients, 0);
    } else if (what < 48) {
      if (waiting[client].empty()) reset(client);
      waiting[client].insert(queue.Push(clients[client], 1 + random() % kMostCost, client));
    } else if (what < 52 && !waiting[client].empty()) {
      const uint64_t id = *std::next(waiting[client].begin(), random() % waiting[client].size());
      EXPECT_EQ(queue.Remove(id), client);
      waiting[client].erase(id);
      if (waiting[client].empty()) reset(client);
    } else if (!queue.empty()) {
      const FairQueue<int>::Entry head = *queue.Heads().front();
      queue.Serve(head.id, head.cost);
      queue.Remove(head.id);
      if (head.job == kNewcomer) {
        newcomer_waits = false;
        continue;
      }
      const int one = head.job;
      ASSERT_EQ(head.id, *waiting[one].begin());
      waiting[one].erase(head.id);
      EXPECT_TRUE(++before_newcomer[one] <= 1 || !newcomer_waits);
      for (int other = 0; other < kClients; ++other) {
        if (other == one || waiting[other].empty()) continue;
        served[one][other] += head.cost / clients[one].weight;
        const double bound = kMostCost / clients[one].weight + kMostCost / clients[other].weight;
        EXPECT_LE(served[one][other] - served[other][one], bound);
        ++checks;
      }
      if (waiting[one].empty()) reset(one);
    }
    size_t total = newcomer_waits;
    for (int i = 0; i < kClients; ++i) {
      ASSERT_EQ(queue.SizeOf(clients[i].name), waiting[i].size());
      total += waiting[i].size();
    }
    ASSERT_EQ(queue.size(), total);
  }
  EXPECT_GT(checks, 10000);
  EXPECT_GT(newcomers, 100);
}

}  // namespace
}  // namespace coppice::coordinator
