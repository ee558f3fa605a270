#include "worker/fair_turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace coppice::worker {
namespace {

using ::testing::ElementsAre;

// The first `gifts` turns of a round, of one unit each. All still wait at its end.
std::vector<std::string> Turns(std::vector<FairTurns::Asker> askers, int gifts, FairTurns* turns) {
  std::vector<std::string> got;
  turns->Begin(askers);
  for (int i = 0; i < gifts; ++i) {
    const int next = turns->First().value();
    got.push_back(askers[next].client);
    turns->Give(next, 1);
  }
  turns->End();
  return got;
}

TEST(FairTurnsTest, ClientsTakeTurnsByWeight) {
  FairTurns turns;
  EXPECT_THAT(Turns({{"a", 1, 1}, {"b", 1, 2}}, 4, &turns), ElementsAre("a", "b", "a", "b"));
  FairTurns weighted;
  EXPECT_THAT(Turns({{"a", 1, 1}, {"b", 3, 2}}, 8, &weighted),
              ElementsAre("a", "b", "b", "b", "a", "b", "b", "b"));
}

TEST(FairTurnsTest, ARoundGoesOnWhereTheLastOneEnded) {
  FairTurns turns;
  EXPECT_THAT(Turns({{"a", 1, 1}, {"b", 1, 2}}, 3, &turns), ElementsAre("a", "b", "a"));
  EXPECT_EQ(turns.ahead("a"), 1);
  EXPECT_EQ(turns.ahead("b"), 0);
  EXPECT_THAT(Turns({{"a", 1, 1}, {"b", 1, 2}}, 1, &turns), ElementsAre("b"));
  EXPECT_EQ(turns.ahead("a"), 0);
}

// b has had nothing while a had a hundred, and then they share.
TEST(FairTurnsTest, WhoComesLaterEarnsNothingForTheTimeBefore) {
  FairTurns turns;
  Turns({{"a", 1, 1}}, 100, &turns);
  EXPECT_THAT(Turns({{"a", 1, 1}, {"b", 1, 2}}, 4, &turns), ElementsAre("a", "b", "a", "b"));
  // A client that gets all that it asks for earns nothing either.
  for (int round = 0; round < 10; ++round) {
    turns.Begin({{"a", 1, 1}, {"c", 1, 2}});
    turns.Leave(1, /*waits=*/false);
    for (int i = 0; i < 10; ++i) turns.Give(0, 1);
    turns.End();
  }
  EXPECT_THAT(Turns({{"a", 1, 1}, {"c", 1, 2}}, 2, &turns), ElementsAre("a", "c"));
}

// What a client has had too much is not forgotten because it stays away for a round.
TEST(FairTurnsTest, StayingAwayPaysNoDebt) {
  FairTurns turns;
  turns.Begin({{"a", 1, 1}, {"b", 1, 2}});
  turns.Give(0, 5);
  turns.End();
  turns.Begin({{"b", 1, 2}});
  turns.Give(0, 2);
  turns.End();
  EXPECT_EQ(turns.ahead("a"), 3);
  Turns({{"a", 1, 1}}, 1, &turns);
  EXPECT_EQ(turns.ahead("a"), 0);  // nobody else has waited
}

// Clients come, ask for some rounds and stay away. At each turn the one that has had the least gets a
// random amount. Between any two that wait in all rounds from one to another, what they get, divided
// by their weights, differs by at most the largest gift of each, divided by its weight.
TEST(FairTurnsTest, WhoWaitsGetsItsShareWithinOneGift) {
  constexpr int kClients = 7, kRounds = 3000, kLargest = 64;
  const double weights[kClients] = {1, 1, 2, 5, 0.5, 1, 10};
  std::mt19937 random(17);
  const auto draw = [&random](int n) { return static_cast<int>(random() % n); };
  FairTurns turns;
  // Of pairs that both wait without a break: how much more the first has had, and its extremes.
  double more[kClients][kClients] = {}, most[kClients][kClients] = {},
         least[kClients][kClients] = {};
  bool asks[kClients] = {};
  double worst = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (bool& one : asks) one = one ? draw(40) != 0 : draw(40) == 0;
    std::vector<FairTurns::Asker> askers;
    std::vector<int> ids;
    for (int c = 0; c < kClients; ++c) {
      if (!asks[c]) continue;
      askers.push_back({std::to_string(c), weights[c], static_cast<uint64_t>(draw(100))});
      ids.push_back(c);
    }
    turns.Begin(askers);
    std::vector<double> got(kClients);
    std::vector<bool> waits(asks, asks + kClients);
    const int gifts = draw(6);
    for (int i = 0; i < gifts && turns.First(); ++i) {
      const int next = *turns.First();
      const double amount = 1 + draw(kLargest);
      turns.Give(next, amount);
      got[ids[next]] += amount / weights[ids[next]];
      if (draw(3) == 0) turns.AsksSince(next, draw(100));
      ASSERT_TRUE(turns.CheckIntegrity().ok()) << turns.CheckIntegrity();
      if (draw(30) != 0) continue;
      turns.Leave(next, /*waits=*/false);
      waits[ids[next]] = false;
    }
    turns.End();
    ASSERT_TRUE(turns.CheckIntegrity().ok()) << turns.CheckIntegrity();
    for (int c = 0; c < kClients; ++c)
      ASSERT_LE(turns.ahead(std::to_string(c)), kLargest / weights[c] + 1e-9);
    for (int a = 0; a < kClients; ++a) {
      for (int b = 0; b < kClients; ++b) {
        if (a == b) continue;
        if (!waits[a] || !waits[b]) {
          more[a][b] = most[a][b] = least[a][b] = 0;
          continue;
        }
        more[a][b] += got[a] - got[b];
        most[a][b] = std::max(most[a][b], more[a][b]);
        least[a][b] = std::min(least[a][b], more[a][b]);
        const double bound = kLargest / weights[a] + kLargest / weights[b];
        ASSERT_LE(most[a][b] - least[a][b], bound + 1e-9);
        worst = std::max(worst, (most[a][b] - least[a][b]) / bound);
      }
    }
  }
  EXPECT_GT(worst, 0.5);  // the bound is nearly reached, so the simulation has tried it
}

}  // namespace
}  // namespace coppice::worker
