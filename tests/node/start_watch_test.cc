#include "node/start_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <thread>

#include "tests/testing/stopwatch.h"

namespace coppice::node {
namespace {

using ::testing::HasSubstr;

class StartWatchTest : public ::testing::Test {
 protected:
  std::function<void(const std::string&)> Note() {
    return [this](const std::string& reason) { standstill_.set_value(reason); };
  }
  bool NotedWithin(int milliseconds) {
    return test::Eventually(
        [&] { return noted_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; },
        milliseconds / 1000.0);
  }

  std::promise<std::string> standstill_;
  std::future<std::string> noted_ = standstill_.get_future();
};

TEST_F(StartWatchTest, AStandstillIsToldOnceWithItsPlace) {
  StartWatch watch(2, Note());
  watch.At("waits in MPI_Init");
  ASSERT_TRUE(NotedWithin(10000));
  const std::string reason = noted_.get();
  EXPECT_THAT(reason, HasSubstr("rank 0 of 1: start-up stands still for "));
  EXPECT_THAT(reason, HasSubstr("it waits in MPI_Init"));
  EXPECT_THAT(reason, HasSubstr("no other rank of this host is stopped"));
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // a second set_value would throw
}

// Within a part of the start, and from part to part.
TEST_F(StartWatchTest, AStartThatMovesOnOrIsOverIsLeftAlone) {
  std::atomic<int> standstills = 0, after_the_end = 0;
  const auto count = [&](const std::string&) { ++standstills; };
  StartWatch moving(2.5, count), from_place_to_place(2.5, count);
  StartWatch over(2.5, [&](const std::string&) { ++after_the_end; });
  over.Over();
  for (int i = 0; i < 30; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    moving.MovesOn();
    from_place_to_place.At("is at place " + std::to_string(i));
  }
  EXPECT_EQ(standstills, 0);
  EXPECT_EQ(after_the_end, 0);
}

}  // namespace
}  // namespace coppice::node
