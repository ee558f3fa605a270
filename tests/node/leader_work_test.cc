// The ranks of a replica wait for what rank 0 does alone: as long as it moves on, and no longer.
#include "node/leader_work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "node/start_watch.h"
#include "tests/testing/stopwatch.h"
#include "tests/testing/thread_communicator.h"

namespace coppice::node {
namespace {

using std::chrono::milliseconds;

constexpr int kRanks = 3;

TEST(LeaderWorkTest, EachRankHearsThatRank0MovesOn) {
  std::array<std::atomic<int>, kRanks> heard{}, calls{};
  std::array<bool, kRanks> over{};
  std::atomic<bool> stop = false;
  test::RunRanks(kRanks, [&](comm::Communicator* ranks) {
    const int rank = ranks->rank();
    const absl::Status status = RunOnLeader(
        ranks,
        [&](const std::function<void()>& moves_on) {
          ++calls[rank];
          // Until each rank has heard of it twice, so the test does not depend on the clock.
          EXPECT_TRUE(test::Eventually(
              [&] {
                moves_on();
                for (const auto& count : heard)
                  if (count < 2) return false;
                return true;
              },
              60));
          stop = true;
          return absl::OkStatus();
        },
        [&] { ++heard[rank]; });
    EXPECT_TRUE(status.ok()) << status;
    over[rank] = stop;
  });
  EXPECT_THAT(over, ::testing::Each(true));
  EXPECT_EQ(calls[0], 1);
  EXPECT_EQ(calls[1] + calls[2], 0);
}

TEST(LeaderWorkTest, WorkThatStandsStillIsNotTakenForProgress) {
  std::atomic<int> heard = 0;
  test::RunRanks(kRanks, [&](comm::Communicator* ranks) {
    EXPECT_TRUE(RunOnLeader(
                    ranks,
                    [](const std::function<void()>& moves_on) {
                      moves_on();
                      std::this_thread::sleep_for(milliseconds(1500));
                      return absl::OkStatus();
                    },
                    [&] { ++heard; })
                    .ok());
  });
  EXPECT_LE(heard, kRanks);  // once on each rank
}

TEST(LeaderWorkTest, AFailureIsThatOfRank0) {
  for (const int ranks : {1, kRanks}) {
    test::RunRanks(ranks, [&](comm::Communicator* communicator) {
      const absl::Status status = RunOnLeader(
          communicator,
          [](const std::function<void()>&) { return absl::NotFoundError("no such corpus"); },
          [] {});
      EXPECT_EQ(status, communicator->rank() == 0 ? absl::NotFoundError("no such corpus")
                                                  : absl::OkStatus());
    });
  }
}

// A follower's watch has a deadline that is shorter than the work.
TEST(LeaderWorkTest, AWatchOutlastsLongWork) {
  std::atomic<int> ended = 0;
  test::RunRanks(2, [&](comm::Communicator* ranks) {
    StartWatch watch(2.5, [&](const std::string&) { ++ended; });
    watch.At("waits for rank 0");
    EXPECT_TRUE(RunOnLeader(
                    ranks,
                    [](const std::function<void()>& moves_on) {
                      for (int i = 0; i < 40; ++i) {
                        std::this_thread::sleep_for(milliseconds(100));
                        moves_on();
                      }
                      return absl::OkStatus();
                    },
                    [&] { watch.MovesOn(); })
                    .ok());
  });
  EXPECT_EQ(ended, 0);
}

}  // namespace
}  // namespace coppice::node
