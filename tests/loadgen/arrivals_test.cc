#include "loadgen/arrivals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

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
TEST(Arrivals, GapsHaveTheMomentsOfTheGammaLaw) {
  constexpr int kCount = 100000;
  constexpr double kRate = 5;
  for (const double shape : {0.25, 1.0, 4.0}) {
    const GapMoments gaps = Gaps(ArrivalTimes(kCount, kRate, shape, 42));
    EXPECT_NEAR(gaps.mean * kRate, 1, 5 / std::sqrt(kCount * shape)) << shape;
    EXPECT_NEAR(gaps.variance * shape * kRate * kRate, 1, 5 * std::sqrt((2 + 6 / shape) / kCount))
        << shape;
  }
}

// The Kolmogorov-Smirnov distance to the exponential law stays below the 1e-6 critical value 2.69 /
// sqrt(n).
TEST(Arrivals, ShapeOneIsPoisson) {
  constexpr int kCount = 20000;
  const std::vector<double> times = ArrivalTimes(kCount, 2, 1, 7);
  std::vector<double> gaps(kCount);
  for (int i = 0; i < kCount; ++i) gaps[i] = times[i] - (i > 0 ? times[i - 1] : 0);
  std::sort(gaps.begin(), gaps.end());
  double distance = 0;
  for (int i = 0; i < kCount; ++i) {
    const double law = 1 - std::exp(-2 * gaps[i]);
    distance = std::max(
        {distance, std::abs(law - double(i) / kCount), std::abs(law - double(i + 1) / kCount)});
  }
  EXPECT_LT(distance, 2.69 / std::sqrt(kCount));
}

TEST(Arrivals, AreFixedByTheSeed) {
  EXPECT_EQ(ArrivalTimes(100, 3, 0.5, 1), ArrivalTimes(100, 3, 0.5, 1));
  EXPECT_NE(ArrivalTimes(100, 3, 0.5, 1), ArrivalTimes(100, 3, 0.5, 2));
  const std::vector<double> times = ArrivalTimes(1000, 3, 0.5, 1);
  EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
}

TEST(Arrivals, InfiniteRateIsAtOnce) {
  EXPECT_EQ(ArrivalTimes(3, std::numeric_limits<double>::infinity(), 1, 1),
            std::vector<double>(3, 0.0));
}

}  // namespace
}  // namespace coppice::loadgen
