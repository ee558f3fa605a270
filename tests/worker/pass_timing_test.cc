#include "worker/pass_timing.h"

#include <gtest/gtest.h>

namespace coppice::worker {
namespace {

TEST(PassTimingTest, TimesAPassAndTellsWhetherAnAnnouncementComesInTime) {
  ManualClock clock;
  PassTiming round(&clock, /*stay_awake_s=*/0.001);
  EXPECT_TRUE(round.AnnouncementsComeInTime());  // assumed for the first, without a measurement
  clock.now_s = 5;
  round.PassBegins();
  clock.now_s = 5.010;
  round.HeadBegins();
  clock.now_s = 5.012;
  round.PassEnds();
  EXPECT_NEAR(round.pass_s(), 0.012, 1e-9);
  round.FirstVerdictsEnd();  // 2 ms after the head began
  EXPECT_FALSE(round.AnnouncementsComeInTime());
  clock.now_s = 6;
  round.HeadBegins();
  clock.now_s = 6.0005;
  round.FirstVerdictsEnd();
  EXPECT_TRUE(round.AnnouncementsComeInTime());
}

}  // namespace
}  // namespace coppice::worker
