#include "tests/testing/stopwatch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace coppice::test {
namespace {

double Clock() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

TEST(StopwatchTest, CountsMoreSlowlyOnABusyMachine) {
  std::atomic<bool> over = false;
  std::vector<std::thread> busy;
  for (unsigned i = 0; i < 3 * std::thread::hardware_concurrency(); ++i) {
    busy.emplace_back([&] {
      while (!over) {
      }
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // until they run
  Stopwatch watch;
  const double begin = Clock();
  while (Clock() < begin + 2) {
    watch.Seconds();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  const double counted = watch.Seconds() / (Clock() - begin) * kSlowdown;
  over = true;
  for (std::thread& thread : busy) thread.join();
  EXPECT_LT(counted, 0.5);  // each thread gets a third of a core
  EXPECT_GT(counted, 0.09);
}

TEST(StopwatchTest, GivesUp) {
  EXPECT_FALSE(Eventually([] { return false; }, 0.05));
  EXPECT_TRUE(Eventually([] { return true; }, 0));
}

}  // namespace
}  // namespace coppice::test
