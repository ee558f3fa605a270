// What a node has used at a time between two readings, with fine counters and coarse ones.
#include "node/energy/energy_samples.h"

#include <gtest/gtest.h>

namespace coppice::node {
namespace {

TEST(EnergySamplesTest, ThePowerBeforeIsCarriedOn) {
  EnergySamples samples;
  EXPECT_EQ(samples.Estimate(0, 0), std::nullopt);
  samples.Add(1.00, 50, true);
  EXPECT_EQ(samples.Estimate(1.01, 0), 0);  // what came before is not of this node's time
  samples.Add(1.01, 51, true);
  samples.Add(1.02, 52, true);
  EXPECT_DOUBLE_EQ(samples.counted(), 2);
  EXPECT_NEAR(*samples.Estimate(1.025, 0), 2.5, 1e-9);
  EXPECT_NEAR(*samples.Estimate(1.03, 0), 3, 1e-9);
  EXPECT_NEAR(*samples.Estimate(1.2, 0), 3, 1e-9);     // no longer than the last move took
  EXPECT_NEAR(*samples.Estimate(1.2, 0.1), 12, 1e-9);  // nor than it is to the next reading
  samples.Add(1.03, 62, true);  // a thousand watts, once: the lower power counts
  EXPECT_NEAR(*samples.Estimate(1.04, 0), 13, 1e-9);
  EXPECT_DOUBLE_EQ(samples.counted(), 12);
}

TEST(EnergySamplesTest, ACoarseCounterIsSpreadOverItsTime) {
  EnergySamples samples;
  double joules = 0;
  for (int i = 0; i <= 30; ++i) {  // moves every 100 ms
    if (i % 10 == 0) joules += 10;
    samples.Add(i * 0.01, joules, true);
  }
  EXPECT_DOUBLE_EQ(samples.counted(), 30);
  for (int i = 31; i < 40; ++i) {
    samples.Add(i * 0.01, joules, true);
    EXPECT_NEAR(*samples.Estimate(i * 0.01, 0), 30 + i - 30, 1e-9) << i;
  }
  for (int i = 40; i < 70; ++i) samples.Add(i * 0.01, joules, true);
  EXPECT_NEAR(*samples.Estimate(0.70, 0), 30, 1e-9);  // it does stand still
}

TEST(EnergySamplesTest, WhatAnotherProcessCountsIsNotCounted) {
  EnergySamples samples;
  samples.Add(0, 0, false);
  samples.Add(1, 10, false);
  EXPECT_EQ(samples.Estimate(1, 0), std::nullopt);
  samples.Add(2, 20, true);
  EXPECT_DOUBLE_EQ(*samples.Estimate(2, 0), 0);
  samples.Add(3, 30, true);
  samples.Add(4, 40, false);
  EXPECT_EQ(samples.Estimate(4, 0), std::nullopt);
  samples.Add(5, 50, false);
  EXPECT_DOUBLE_EQ(samples.counted(), 20);
}

TEST(EnergySamplesTest, WithoutReadingsNothingIsMeasured) {
  EnergySamples samples;
  samples.Add(0, 0, true);
  samples.Add(1, 0, true);
  EXPECT_TRUE(samples.Estimate(1 + EnergySamples::kStale_s - 0.1, 0));
  EXPECT_FALSE(samples.Estimate(1 + EnergySamples::kStale_s + 0.1, 0));
  samples.Add(1.1, 0, true);  // a reading, though the counter stands still
  EXPECT_TRUE(samples.Estimate(1.05 + EnergySamples::kStale_s, 0));
}

}  // namespace
}  // namespace coppice::node
