#include "base/thread_team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "tests/testing/stopwatch.h"

namespace coppice {
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
  test::Stopwatch watch;
  while (!helped && watch.Seconds() < 20) {
    team.Run(4, [&](int) {
      if (std::this_thread::get_id() != caller) helped = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
  }
  EXPECT_TRUE(helped);
}

// A chunk of one team may run another team: there its thread is the caller.
TEST(ThreadTeamTest, NumbersItsThreads) {
  ThreadTeam outer(3);
  ThreadTeam inner(2);
  std::mutex mutex;
  std::map<std::thread::id, std::set<int>> numbers;
  bool helped = false;
  EXPECT_EQ(ThreadTeam::ThisThread(), 0);
  test::Stopwatch watch;
  for (int round = 0; round < 50 || (!helped && watch.Seconds() < 20); ++round) {
    outer.Run(6, [&](int) {
      const int number = ThreadTeam::ThisThread();
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      const std::lock_guard<std::mutex> lock(mutex);
      numbers[std::this_thread::get_id()].insert(number);
      helped |= number > 0;
      inner.Run(4, [&, caller = std::this_thread::get_id()](int) {
        EXPECT_EQ(ThreadTeam::ThisThread(), std::this_thread::get_id() == caller ? 0 : 1);
      });
      inner.Run(1, [&](int) { EXPECT_EQ(ThreadTeam::ThisThread(), 0); });
      EXPECT_EQ(ThreadTeam::ThisThread(), number);
    });
  }
  EXPECT_EQ(ThreadTeam::ThisThread(), 0);
  std::set<int> all;
  for (const auto& [thread, of_thread] : numbers) {
    ASSERT_EQ(of_thread.size(), 1) << "a thread has one number";
    EXPECT_TRUE(all.insert(*of_thread.begin()).second) << "of two threads";
    EXPECT_LT(*of_thread.begin(), 3);
  }
  EXPECT_EQ(*numbers.at(std::this_thread::get_id()).begin(), 0);
  EXPECT_TRUE(helped);
}

TEST(ThreadTeamTest, LendsItselfForJobs) {
  for (const int threads : {1, 2, 4}) {
    ThreadTeam team(threads);
    HostThreads* lent = &team;
    for (int jobs = 0; jobs < 40; ++jobs) {
      std::vector<int> runs(jobs, 0);
      lent->RunJobs(jobs, [&](int job) { ++runs[job]; });
      for (const int count : runs) ASSERT_EQ(count, 1) << threads << " threads, " << jobs;
    }
  }
}

TEST(ThreadTeamTest, RunsAPostedTaskOnce) {
  for (const int threads : {1, 2, 4}) {
    ThreadTeam team(threads);
    int runs = 0;
    for (int round = 0; round < 500; ++round) {
      team.Post([&] { ++runs; });
      team.Wait();
      ASSERT_EQ(runs, round + 1) << threads << " threads";
    }
    team.Wait();
    EXPECT_EQ(runs, 500) << threads << " threads";
  }
}

TEST(ThreadTeamTest, WaitWithoutATaskReturns) {
  for (const int threads : {1, 2, 4}) {
    ThreadTeam team(threads);
    team.Wait();
    team.Wait();
    team.Run(10, [](int) {});
    team.Wait();
  }
}

TEST(ThreadTeamTest, WithoutHelpersATaskRunsAtOnce) {
  ThreadTeam team(1);
  bool done = false;
  team.Post([&] { done = true; });
  EXPECT_TRUE(done);
}

TEST(ThreadTeamTest, WaitsForATaskThatAHelperHasBegun) {
  for (const int threads : {2, 4}) {
    ThreadTeam team(threads);
    std::atomic<bool> begun{false};
    std::thread::id ran_by;
    bool done = false;
    team.Post([&] {
      ran_by = std::this_thread::get_id();
      begun = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      done = true;
    });
    while (!begun) std::this_thread::yield();  // on a helper, since this thread does not wait yet
    team.Wait();
    EXPECT_TRUE(done);
    EXPECT_NE(ran_by, std::this_thread::get_id());
  }
}

// A sleeping helper takes longer to wake up than Wait takes to begin. So Wait runs the task.
TEST(ThreadTeamTest, WaitRunsWhatNoHelperHasBegun) {
  ThreadTeam team(2);
  std::thread::id ran_by;
  test::Stopwatch watch;
  while (ran_by != std::this_thread::get_id() && watch.Seconds() < 20) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    team.Post([&] { ran_by = std::this_thread::get_id(); });
    team.Wait();
  }
  EXPECT_EQ(ran_by, std::this_thread::get_id());
}

TEST(ThreadTeamTest, ASecondTaskWaitsForTheFirst) {
  for (const int threads : {1, 2, 4}) {
    ThreadTeam team(threads);
    std::vector<int> order;
    for (int task = 0; task < 20; ++task) {
      team.Post([&order, task] {
        if (task % 5 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        order.push_back(task);
      });
    }
    team.Wait();
    ASSERT_EQ(order.size(), 20u) << threads << " threads";
    for (int task = 0; task < 20; ++task) EXPECT_EQ(order[task], task);
  }
}

// The task holds its helper until every chunk has run.
TEST(ThreadTeamTest, RunsChunksBesideATask) {
  for (const int threads : {2, 4}) {
    ThreadTeam team(threads);
    std::atomic<bool> begun{false}, release{false};
    bool done = false;
    team.Post([&] {
      begun = true;
      while (!release) std::this_thread::yield();
      done = true;
    });
    while (!begun) std::this_thread::yield();
    for (int round = 0; round < 50; ++round) {
      std::vector<int> runs(200, 0);
      team.Run(200, [&](int chunk) { ++runs[chunk]; });
      for (const int count : runs) ASSERT_EQ(count, 1) << threads << " threads";
    }
    release = true;
    team.Wait();
    EXPECT_TRUE(done);
  }
}

// The helper is held by a task, so the caller runs its own share in order, then the helper's from its
// end.
TEST(ThreadTeamTest, AShareIsInOrderAndAnothersIsTakenFromItsEnd) {
  ThreadTeam team(2);
  std::atomic<bool> begun{false}, release{false};
  team.Post([&] {
    begun = true;
    while (!release) std::this_thread::yield();
  });
  while (!begun) std::this_thread::yield();
  std::vector<int> order;
  team.Run(9, [&](int chunk) { order.push_back(chunk); });
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4, 8, 7, 6, 5}));
  release = true;
  team.Wait();
}

TEST(ThreadTeamTest, EndsWithItsTaskDone) {
  for (const int threads : {1, 2, 4}) {
    for (int round = 0; round < 50; ++round) {
      int runs = 0;
      {
        ThreadTeam team(threads);
        if (round % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
        team.Post([&] { ++runs; });
      }
      ASSERT_EQ(runs, 1) << threads << " threads";
    }
  }
}

// Helpers take jobs whether they are kept awake or not, and for whatever time.
TEST(ThreadTeamTest, KeptAwakeHelpersTakeJobsAndSleepAgain) {
  ThreadTeam team(3);
  EXPECT_EQ(team.count(), 3);
  for (int round = 0; round < 200; ++round) {
    team.KeepAwake(round % 2 == 0);
    if (round % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::atomic<int> sum{0};
    team.Run(10, [&](int chunk) { sum += chunk; });
    ASSERT_EQ(sum.load(), 45);
    if (round % 3 == 0) team.KeepAwake(false);
  }
  team.KeepAwake(true);  // the team still ends
}

// Between the rounds, helpers spin, yield or sleep, depending on the time.
TEST(ThreadTeamTest, LosesNothingInManyRounds) {
  for (const int threads : {2, 4}) {
    ThreadTeam team(threads);
    int tasks = 0, chunks = 0, expected_chunks = 0;
    for (int round = 0; round < 20000; ++round) {
      if (round % 1000 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::vector<int> runs(round % 7, 0);
      expected_chunks += round % 7;
      team.Post([&] { ++tasks; });
      if (round % 5 == 0) team.Wait();
      team.Run(round % 7, [&](int chunk) { ++runs[chunk]; });
      if (round % 3 != 0) team.Wait();
      for (const int count : runs) chunks += count;
    }
    team.Wait();
    EXPECT_EQ(tasks, 20000) << threads << " threads";
    EXPECT_EQ(chunks, expected_chunks) << threads << " threads";
  }
}

}  // namespace
}  // namespace coppice
