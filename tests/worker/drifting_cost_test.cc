#include "worker/drifting_cost.h"

#include <gtest/gtest.h>

#include <cmath>

namespace coppice::worker {
namespace {

constexpr double kRatio = 1.2;  // cost of size 5 divided by cost of size 3

double Cost(int size) { return size == 5 ? 0.010 * kRatio : 0.010; }

TEST(DriftingCostTest, AConstantMachineGivesItsMeans) {
  DriftingCost cost;
  EXPECT_TRUE(cost.empty());
  unsigned state = 1;
  for (int i = 0; i < 400; ++i) {
    state = state * 1664525u + 1013904223u;
    const double noise = 1 + 0.1 * ((state >> 8) * 0x1p-24 - 0.5);
    cost.Record(i % 4 == 0 ? 5 : 3, Cost(i % 4 == 0 ? 5 : 3) * noise);
  }
  EXPECT_NEAR(cost.Now().at(3), 0.010, 0.0004);
  EXPECT_NEAR(cost.Now().at(5), 0.012, 0.0005);
}

// In every second stretch of 40 steps, the machine takes 1.5 times as long. Size 5 is measured only
// in these stretches. With a separate mean for each size, it would seem 1.8 times as expensive as
// size 3.
TEST(DriftingCostTest, TheRatioOfSizesSurvivesADriftingMachine) {
  DriftingCost cost;
  for (int i = 0; i < 30; ++i) cost.Record(i % 2 == 0 ? 3 : 5, Cost(i % 2 == 0 ? 3 : 5));
  double worst = 0;
  for (int i = 0; i < 2000; ++i) {
    const bool slow = i / 40 % 2 == 1;
    const int size = slow && i % 10 == 0 ? 5 : 3;
    cost.Record(size, Cost(size) * (slow ? 1.5 : 1.0));
    const auto now = cost.Now();
    worst = std::max(worst, std::abs(now.at(5) / now.at(3) / kRatio - 1));
    if (i % 40 == 39) {
      EXPECT_NEAR(now.at(3), slow ? 0.015 : 0.010, 0.0008) << i;
    }
  }
  EXPECT_LT(worst, 0.25);
}

TEST(DriftingCostTest, ASizeThatChangesIsFollowed) {
  DriftingCost cost;
  for (int i = 0; i < 100; ++i) cost.Record(i % 2 == 0 ? 3 : 5, Cost(i % 2 == 0 ? 3 : 5));
  for (int i = 0; i < 400; ++i) cost.Record(i % 2 == 0 ? 3 : 5, i % 2 == 0 ? 0.010 : 0.030);
  EXPECT_NEAR(cost.Now().at(5) / cost.Now().at(3), 3.0, 0.15);
}

// Under load 4 all takes three times as long. Sizes were measured under either.
TEST(DriftingCostTest, EachLoadHasItsSpeed) {
  DriftingCost cost;
  for (int i = 0; i < 200; ++i) {
    cost.Record(3, Cost(3));
    cost.Record(i % 2 == 0 ? 5 : 3, 3 * Cost(i % 2 == 0 ? 5 : 3), /*load=*/4);
  }
  EXPECT_NEAR(cost.Slowdown(4), 3, 0.2);
  EXPECT_NEAR(cost.Now().at(3), 0.010, 0.0008);
  EXPECT_NEAR(cost.Now().at(5), 0.012, 0.0010);
  EXPECT_EQ(cost.Slowdown(0), 1);
  EXPECT_EQ(cost.Slowdown(9), cost.Slowdown(4));  // the nearest that was measured
  EXPECT_EQ(cost.Slowdown(3), cost.Slowdown(4));
  EXPECT_EQ(cost.Slowdown(2), 1);  // as near to 0, which is taken
  EXPECT_EQ(DriftingCost().Slowdown(3), 1);
}

TEST(DriftingCostTest, ALoadIsKnownFromItsFirstMeasurements) {
  DriftingCost cost;
  for (int i = 0; i < 20; ++i) cost.Record(3, Cost(3));
  cost.Record(3, 5 * Cost(3), 2);
  EXPECT_NEAR(cost.Slowdown(2), 2, 0.01);  // one measurement counts as at most twice
  for (int i = 0; i < 3; ++i) cost.Record(3, 5 * Cost(3), 2);
  EXPECT_GT(cost.Slowdown(2), 3.5);
  EXPECT_NEAR(cost.Now().at(3), 0.010, 1e-4);  // they say nothing about sizes
  for (int i = 0; i < 20; ++i) cost.Record(3, 5 * Cost(3), 2);
  EXPECT_NEAR(cost.Slowdown(2), 5, 0.7);
}

TEST(DriftingCostTest, OneStallIsNotBelieved) {
  DriftingCost cost;
  for (int i = 0; i < 100; ++i) cost.Record(3, 0.010);
  cost.Record(3, 10.0);
  EXPECT_LT(cost.Now().at(3), 0.012);
  cost.Record(3, 0);  // a time of 0 is ignored
  EXPECT_LT(cost.Now().at(3), 0.012);
  EXPECT_GT(cost.Now().at(3), 0.009);
}

}  // namespace
}  // namespace coppice::worker
