#include "worker/batching_wait.h"

#include <gtest/gtest.h>

#include <vector>

namespace coppice::worker {
namespace {

constexpr double kNow = 100, kPass = 0.010;

double Flat(int) { return kPass; }
double Proportional(int rows) { return kPass * rows; }
// Up to 8 rows for the price of one.
double Stepped(int rows) { return kPass * ((rows + 7) / 8); }

// With a forest of 3 rows each, and with no row but their own.
ReadyForStep Ready(int drafted, int plain = 0) {
  return {drafted + plain, 3 * drafted + plain, plain, plain};
}

template <class Cost>
double Wait(const ReadyForStep& ready, const std::vector<DueForest>& due, Cost pass_s,
            int max_rows = 64) {
  return WaitForForests(ready, max_rows, due, kNow, pass_s);
}

TEST(BatchingWaitTest, WaitsForAForestThatComesBeforeAStepWouldEnd) {
  EXPECT_EQ(Wait(Ready(1), {{kNow + 0.008, 3}}, Flat), kNow + 0.008);
  EXPECT_EQ(Wait(Ready(1), {{kNow + 0.011, 3}}, Flat), 0);
}

TEST(BatchingWaitTest, RowsThatCostTimeAreNotWorthAWait) {
  EXPECT_EQ(Wait(Ready(1), {{kNow + 1e-6, 3}}, Proportional), 0);
  EXPECT_GT(Wait(Ready(1), {{kNow + 1e-6, 5}}, Stepped), 0);
  EXPECT_EQ(Wait(Ready(1), {{kNow + 1e-6, 14}}, Stepped), 0);
}

// Fifteen that have no drafts, and one that has them: a wait would cost every pass of the fifteen.
TEST(BatchingWaitTest, ManyWithoutDraftsDoNotWaitForOneThatHasThem) {
  for (const double draft_s : {0.001, 0.002, 0.008})
    EXPECT_EQ(Wait(Ready(0, 15), {{kNow + draft_s, 5}}, Flat), 0) << draft_s;
  EXPECT_GT(Wait(Ready(1), {{kNow + 0.002, 5}}, Flat), 0);
}

TEST(BatchingWaitTest, NothingToWaitForOrToBegin) {
  EXPECT_EQ(Wait(Ready(1), {}, Flat), 0);
  EXPECT_EQ(Wait(Ready(0), {{kNow + 0.001, 3}}, Flat), 0);
}

TEST(BatchingWaitTest, AnOverdueForestIsNotWaitedFor) {
  EXPECT_EQ(Wait(Ready(1), {{kNow, 3}}, Flat), 0);
  EXPECT_EQ(Wait(Ready(1), {{kNow - 1, 3}, {kNow + 0.002, 3}}, Flat), kNow + 0.002);
}

// What is left of a wait is then short, but the wait may end with nothing.
TEST(BatchingWaitTest, AForestThatShouldBeThereIsWaitedForUntilItIsOverdue) {
  EXPECT_EQ(Wait(Ready(1), {{kNow + 0.002, 3, kNow + 0.005}}, Flat), kNow + 0.005);
  EXPECT_EQ(Wait(Ready(1), {{kNow - 0.002, 3, kNow + 0.005}}, Flat), kNow + 0.005);
  EXPECT_EQ(Wait(Ready(1), {{kNow - 0.002, 3, kNow + 0.005}}, Proportional), 0);
  EXPECT_EQ(Wait(Ready(1), {{kNow - 0.005, 3, kNow - 0.002}}, Flat), 0);
  EXPECT_EQ(Wait(Ready(1), {{kNow + 0.002, 3, kNow + 0.005}, {kNow + 0.003, 3}}, Flat),
            kNow + 0.005);
}

// In whatever order they are listed.
TEST(BatchingWaitTest, WaitsForThoseThatComeSoonAndNotForThoseThatComeLate) {
  EXPECT_EQ(Wait(Ready(1), {{kNow + 0.2, 3}, {kNow + 0.004, 3}, {kNow + 0.002, 3}}, Stepped),
            kNow + 0.002);
}

TEST(BatchingWaitTest, APassHasRoomForSoManyRows) {
  EXPECT_EQ(Wait(Ready(1), {{kNow + 0.001, 3}}, Flat, 6), kNow + 0.001);
  EXPECT_EQ(Wait(Ready(1), {{kNow + 0.001, 4}}, Flat, 6), 0);
  EXPECT_EQ(Wait(Ready(1), {{kNow + 0.001, 3}, {kNow + 0.001, 1}}, Flat, 6), kNow + 0.001);
}

TEST(BatchingWaitTest, UnknownCostsAreNoReasonToWait) {
  EXPECT_EQ(Wait(Ready(1), {{kNow + 1e-9, 3}}, [](int) { return 0.0; }), 0);
}

}  // namespace
}  // namespace coppice::worker
