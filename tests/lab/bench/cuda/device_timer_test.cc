// The timer over the simulated device: what it enqueues before what it times.
#include "lab/bench/cuda/device_timer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "kernels/cuda/simulator/fake/fake_device.h"
#include "lab/bench/cuda/llama_shape.h"

namespace coppice::bench {
namespace {

namespace fake = kernels::cuda::fake;

// Lines that a fill leaves in the cache would be written back during the measurement.
TEST(DeviceTimerTest, ReadsOtherMemoryBeforeEachRunAndFillsNone) {
  fake::Configure({.work_us = 7});
  const auto timer = DeviceTimer::Create();
  ASSERT_TRUE(timer.ok()) << timer.status();
  fake::ClearTotals();
  int runs = 0;
  const auto timing = (*timer)->Time([&] {
    ++runs;
    const auto totals = fake::TotalsByName();
    // Work runs when the host waits, so what was enqueued for this run has not been counted.
    EXPECT_EQ(totals.empty() ? 0 : totals.at("read").launches, runs - 1);
    return absl::OkStatus();
  });
  ASSERT_TRUE(timing.ok()) << timing.status();
  EXPECT_EQ(timing->us, 0);  // the read comes before the first event
  const auto totals = fake::TotalsByName();
  ASSERT_THAT(totals, testing::SizeIs(1));
  EXPECT_EQ(totals.at("read").launches, runs);
  EXPECT_EQ(totals.at("read").bytes, runs * kCoverBytes);
  EXPECT_GT(runs, kRuns);
}

}  // namespace
}  // namespace coppice::bench
