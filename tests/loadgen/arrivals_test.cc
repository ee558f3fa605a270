#include "loadgen/arrivals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace coppice::loadgen {
namespace {

struct GapMoments {
  double mean, variance;
};

GapMoments Gaps(const std::vector<double>& times) {
  double last = 0, sum = 0, squares = 0;
  for (const double time : times) {
    const double gap = time - last;
    last = time;
    sum += gap;
    squares += gap * gap;
  }
  const double mean = sum / times.size();
  return {mean, squares / times.size() - mean * mean};
}

// Gamma gaps of shape B and mean 1/R have variance 1/(B R^2). With 100,000 gaps, the standard error
// of the mean is 1/(R sqrt(1e5 B)). The relative standard error of the variance is
// sqrt((2 + 6/B) / 1e5). The test allows five of them. Seeds are fixed.
TEST(Arrivals, GapsHaveTheMomentsOfTheGammaDistribution) {
  constexpr int kCount = 100000;
  constexpr double kRate = 5;
  for (const double shape : {0.25, 1.0, 4.0}) {
    const GapMoments gaps = Gaps(ArrivalTimes(kCount, {.rate = kRate, .burstiness = shape}, 42));
    EXPECT_NEAR(gaps.mean * kRate, 1, 5 / std::sqrt(kCount * shape)) << shape;
    EXPECT_NEAR(gaps.variance * shape * kRate * kRate, 1, 5 * std::sqrt((2 + 6 / shape) / kCount))
        << shape;
  }
}

// The Kolmogorov-Smirnov distance to the exponential distribution stays below the 1e-6 critical
// value 2.69 / sqrt(n).
TEST(Arrivals, ShapeOneIsPoisson) {
  constexpr int kCount = 20000;
  const std::vector<double> times = ArrivalTimes(kCount, {.rate = 2}, 7);
  std::vector<double> gaps(kCount);
  for (int i = 0; i < kCount; ++i) gaps[i] = times[i] - (i > 0 ? times[i - 1] : 0);
  std::sort(gaps.begin(), gaps.end());
  double distance = 0;
  for (int i = 0; i < kCount; ++i) {
    const double distribution = 1 - std::exp(-2 * gaps[i]);
    distance = std::max({distance, std::abs(distribution - double(i) / kCount),
                         std::abs(distribution - double(i + 1) / kCount)});
  }
  EXPECT_LT(distance, 2.69 / std::sqrt(kCount));
}

TEST(Arrivals, AreFixedByTheSeed) {
  const ArrivalProcess distribution = {.rate = 3, .burstiness = 0.5};
  EXPECT_EQ(ArrivalTimes(100, distribution, 1), ArrivalTimes(100, distribution, 1));
  EXPECT_NE(ArrivalTimes(100, distribution, 1), ArrivalTimes(100, distribution, 2));
  const std::vector<double> times = ArrivalTimes(1000, distribution, 1);
  EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
}

TEST(Arrivals, InfiniteRateIsAtOnce) {
  EXPECT_EQ(ArrivalTimes(3, {}, 1), std::vector<double>(3, 0.0));
}

// With a shape of 1e8 a gap is its mean to about 1e-4.
TEST(Arrivals, RampsGoFromStartToEndOverTheRequests) {
  constexpr int kCount = 101;
  ArrivalProcess distribution = {
      .burstiness = 1e8, .ramp = Ramp::kLinear, .ramp_start = 10, .ramp_end = 40};
  const auto rate = [&](const std::vector<double>& times, int k) {
    return 1 / (times[k] - (k > 0 ? times[k - 1] : 0));
  };
  std::vector<double> times = ArrivalTimes(kCount, distribution, 3);
  ASSERT_EQ(times.size(), kCount);
  EXPECT_NEAR(rate(times, 0), 10, 0.02);
  EXPECT_NEAR(rate(times, 50), 25, 0.05);
  EXPECT_NEAR(rate(times, 100), 40, 0.08);
  distribution.ramp = Ramp::kExponential;
  times = ArrivalTimes(kCount, distribution, 3);
  EXPECT_NEAR(rate(times, 0), 10, 0.02);
  EXPECT_NEAR(rate(times, 50), 20, 0.04);  // the geometric mean
  EXPECT_NEAR(rate(times, 100), 40, 0.08);
}

TEST(Arrivals, ADurationHoldsAsManyAsItCan) {
  const std::vector<double> times = ArrivalTimes(0, {.rate = 100, .duration_s = 20}, 5);
  EXPECT_NEAR(times.size(), 2000, 5 * std::sqrt(2000));
  EXPECT_LT(times.back(), 20);
  EXPECT_LT(ArrivalTimes(5000, {.rate = 100, .duration_s = 20}, 5).back(), 20);
  EXPECT_EQ(ArrivalTimes(7, {.rate = 100, .duration_s = 20}, 5).size(), 7u);
}

TEST(Arrivals, ARampReachesItsEndWhenTheDurationIsOver) {
  for (const Ramp ramp : {Ramp::kLinear, Ramp::kExponential}) {
    const ArrivalProcess distribution = {
        .burstiness = 1e8, .ramp = ramp, .ramp_start = 5, .ramp_end = 80, .duration_s = 30};
    const std::vector<double> times = ArrivalTimes(0, distribution, 5);
    EXPECT_GT(times.back(), 29.8);
    EXPECT_NEAR(1 / (times.back() - times[times.size() - 2]), 80, 4);
  }
}

// The count of 20,000 independent choices is within five standard deviations.
TEST(Cancellation, ChoosesTheShareThatItShould) {
  constexpr int kCount = 20000;
  for (const double percent : {0.0, 1.0, 25.0, 100.0}) {
    int chosen = 0;
    for (int k = 0; k < kCount; ++k) chosen += IsChosenForCancellation(9, k, percent);
    const double p = percent / 100;
    EXPECT_NEAR(chosen, kCount * p, 5 * std::sqrt(kCount * p * (1 - p))) << percent;
  }
  int different = 0;
  for (int k = 0; k < 1000; ++k)
    different += IsChosenForCancellation(1, k, 50) != IsChosenForCancellation(2, k, 50);
  EXPECT_NEAR(different, 500, 80);
}

}  // namespace
}  // namespace coppice::loadgen
