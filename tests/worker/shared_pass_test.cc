#include "worker/shared_pass.h"

#include <gtest/gtest.h>

namespace coppice::worker {
namespace {

constexpr double kNow = 100, kPass = 0.010;

double Flat(int) { return kPass; }
double Proportional(int rows) { return kPass * rows; }
// Up to 8 rows for the price of one.
double Stepped(int rows) { return kPass * ((rows + 7) / 8); }

TEST(SharedPassTest, WaitsForAForestThatComesBeforeAPassWouldEnd) {
  EXPECT_EQ(WaitForForests(3, 64, {{kNow + 0.009, 3}}, kNow, Flat), kNow + 0.009);
  EXPECT_EQ(WaitForForests(3, 64, {{kNow + 0.011, 3}}, kNow, Flat), 0);
}

TEST(SharedPassTest, RowsThatCostTimeAreNotWorthAWait) {
  EXPECT_EQ(WaitForForests(3, 64, {{kNow + 1e-6, 3}}, kNow, Proportional), 0);
  EXPECT_GT(WaitForForests(3, 64, {{kNow + 1e-6, 5}}, kNow, Stepped), 0);
  EXPECT_EQ(WaitForForests(3, 64, {{kNow + 1e-6, 14}}, kNow, Stepped), 0);
}

TEST(SharedPassTest, NothingToWaitForOrToBegin) {
  EXPECT_EQ(WaitForForests(3, 64, {}, kNow, Flat), 0);
  EXPECT_EQ(WaitForForests(0, 64, {{kNow + 0.001, 3}}, kNow, Flat), 0);
}

TEST(SharedPassTest, AnOverdueForestIsNotWaitedFor) {
  EXPECT_EQ(WaitForForests(3, 64, {{kNow, 3}}, kNow, Flat), 0);
  EXPECT_EQ(WaitForForests(3, 64, {{kNow - 1, 3}, {kNow + 0.002, 3}}, kNow, Flat), kNow + 0.002);
}

// In whatever order they are listed.
TEST(SharedPassTest, WaitsForThoseThatComeSoonAndNotForThoseThatComeLate) {
  EXPECT_EQ(
      WaitForForests(3, 64, {{kNow + 0.2, 3}, {kNow + 0.004, 3}, {kNow + 0.002, 3}}, kNow, Stepped),
      kNow + 0.002);
  // One pass of all four is worth the longest wait, though not for any of them alone.
  const auto two_prices = [](int rows) { return rows <= 3 ? 0.010 : 0.012; };
  EXPECT_EQ(WaitForForests(3, 64, {{kNow + 0.0085, 3}}, kNow, two_prices), 0);
  EXPECT_EQ(WaitForForests(3, 64, {{kNow + 0.0085, 3}, {kNow + 0.009, 3}}, kNow, two_prices),
            kNow + 0.009);
}

TEST(SharedPassTest, APassHasRoomForSoManyRows) {
  EXPECT_EQ(WaitForForests(5, 8, {{kNow + 0.001, 3}}, kNow, Flat), kNow + 0.001);
  EXPECT_EQ(WaitForForests(5, 8, {{kNow + 0.001, 4}}, kNow, Flat), 0);
  EXPECT_EQ(WaitForForests(5, 8, {{kNow + 0.001, 3}, {kNow + 0.002, 1}}, kNow, Flat), kNow + 0.001);
}

TEST(SharedPassTest, UnknownCostsAreNoReasonToWait) {
  EXPECT_EQ(WaitForForests(3, 64, {{kNow + 1e-9, 3}}, kNow, [](int) { return 0.0; }), 0);
}

}  // namespace
}  // namespace coppice::worker
