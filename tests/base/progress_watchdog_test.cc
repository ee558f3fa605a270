#include "base/progress_watchdog.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace coppice {
namespace {

constexpr double kGap_s = 1;

class ProgressWatchdogTest : public ::testing::Test {
 protected:
  // Looks every half second until `end_s`, as a node agent does. Returns the last report.
  ProgressReport LookUntil(double end_s) {
    while (clock_.now_s + 0.5 < end_s) {
      clock_.now_s += 0.5;
      steps_.Look(kGap_s);
    }
    clock_.now_s = end_s;
    return steps_.Look(kGap_s);
  }

  ManualClock clock_;
  ProgressWatchdog steps_{&clock_};
};

TEST_F(ProgressWatchdogTest, WorkWithoutAStepIsStandingStill) {
  LookUntil(3);
  steps_.Wait();
  LookUntil(5);
  steps_.Begin();
  EXPECT_FALSE(LookUntil(5).still_s > 0);
  const ProgressReport report = LookUntil(17);
  EXPECT_TRUE(report.working);
  EXPECT_DOUBLE_EQ(report.still_s, 12);
  EXPECT_EQ(report.steps, 0);
}

TEST_F(ProgressWatchdogTest, AStepIsProgressAndTheLongestTimeWithoutIsKept) {
  LookUntil(5);
  steps_.Wait();
  LookUntil(10);  // there is no work, so this time does not count
  steps_.Begin();
  LookUntil(12);
  steps_.Stepped();
  steps_.Begin();  // still the same work
  LookUntil(12.5);
  steps_.Stepped();
  const ProgressReport report = LookUntil(16);
  EXPECT_DOUBLE_EQ(report.still_s, 3.5);
  EXPECT_EQ(report.steps, 2);
  EXPECT_DOUBLE_EQ(report.longest_stall_s, 2);
  steps_.Wait();
  EXPECT_DOUBLE_EQ(LookUntil(16.2).longest_stall_s, 3.5);
}

// A long pass of many layers is not a standstill.
TEST_F(ProgressWatchdogTest, PartsOfAStepAreProgress) {
  steps_.Begin();
  for (int layer = 1; layer <= 16; ++layer) {
    LookUntil(2 * layer);
    steps_.MovesOn();
  }
  const ProgressReport report = LookUntil(33);
  EXPECT_DOUBLE_EQ(report.still_s, 1);
  EXPECT_DOUBLE_EQ(report.longest_stall_s, 2);
  EXPECT_EQ(report.steps, 0);
}

TEST_F(ProgressWatchdogTest, WorkThatGoesOnWithoutStepsDoesNotRenewItself) {
  steps_.Begin();
  for (double end_s = 0.5; end_s <= 12; end_s += 0.5) {
    steps_.Begin();  // the loop goes round but finishes no step
    EXPECT_DOUBLE_EQ(LookUntil(end_s).still_s, end_s);
  }
}

TEST_F(ProgressWatchdogTest, AThreadThatComesBackFromItsWaitIsAlive) {
  for (double end_s = 0.5; end_s <= 30; end_s += 0.5) {
    steps_.Wait();
    const ProgressReport report = LookUntil(end_s);
    EXPECT_FALSE(report.working);
    EXPECT_LE(report.still_s, 0.5);
  }
}

TEST_F(ProgressWatchdogTest, AThreadThatNeverComesBackFromItsWaitIsNot) {
  steps_.Wait();
  EXPECT_DOUBLE_EQ(LookUntil(40).still_s, 40);
}

// If the whole process was stopped, its last step is long ago. That is not a standstill.
TEST_F(ProgressWatchdogTest, TimeInWhichTheWatcherDidNotRunDoesNotCount) {
  steps_.Begin();
  EXPECT_DOUBLE_EQ(LookUntil(3).still_s, 3);
  clock_.now_s = 60;
  EXPECT_DOUBLE_EQ(steps_.Look(kGap_s).still_s, 0);
  EXPECT_DOUBLE_EQ(LookUntil(64).still_s, 4);
  steps_.Stepped();
  EXPECT_DOUBLE_EQ(LookUntil(65).still_s, 1);
}

TEST(ProgressWatchdogThreadsTest, OneThreadStepsWhileAnotherLooks) {
  ProgressWatchdog steps;
  std::atomic<bool> stop{false};
  std::thread compute([&] {
    while (!stop) {
      steps.Wait();
      steps.Begin();
      steps.Stepped();
    }
  });
  while (steps.Look(kGap_s).steps == 0) std::this_thread::yield();  // the thread has begun
  uint64_t last = 0;
  for (int i = 0; i < 10000; ++i) {
    const ProgressReport report = steps.Look(kGap_s);
    EXPECT_GE(report.steps, last);
    EXPECT_GE(report.still_s, 0);
    last = report.steps;
  }
  stop = true;
  compute.join();
}

}  // namespace
}  // namespace coppice
