#include "kernels/cpu/thread_team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace coppice::cpu {
namespace {

TEST(ThreadTeamTest, RunsEveryChunkOnce) {
  for (const int threads : {1, 2, 4}) {
    ThreadTeam team(threads);
    for (int round = 0; round < 500; ++round) {
      const int chunks = round % 37;
      std::vector<int> runs(chunks, 0);
      team.Run(chunks, [&](int chunk) { ++runs[chunk]; });
      for (const int count : runs)
        ASSERT_EQ(count, 1) << threads << " threads, " << chunks << " chunks";
    }
  }
}

TEST(ThreadTeamTest, WakesAfterSleep) {
  ThreadTeam team(3);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // the helpers have stopped spinning
    std::atomic<int> sum{0};
    team.Run(100, [&](int chunk) { sum += chunk; });
    EXPECT_EQ(sum.load(), 4950);
  }
}

TEST(ThreadTeamTest, HelpersTakePart) {
  ThreadTeam team(2);
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<bool> helped{false};
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!helped && std::chrono::steady_clock::now() < deadline) {
    team.Run(4, [&](int) {
      if (std::this_thread::get_id() != caller) helped = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
  }
  EXPECT_TRUE(helped);
}

}  // namespace
}  // namespace coppice::cpu
