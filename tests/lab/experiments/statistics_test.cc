#include "lab/experiments/statistics.h"

#include <gtest/gtest.h>

#include <cmath>

namespace coppice::lab {
namespace {

// With equal denominators, the jackknife of a ratio is the usual error of a mean.
TEST(RatioSampleTest, IsTheErrorOfTheMeanForEqualDenominators) {
  const double values[] = {1, 4, 2, 7, 6};
  RatioSample sample(5);
  double mean = 0, squares = 0;
  for (int i = 0; i < 5; ++i) {
    sample.Add(i, values[i], 1);
    mean += values[i] / 5;
  }
  for (double value : values) squares += (value - mean) * (value - mean);
  const Estimate estimate = sample.Get();
  EXPECT_NEAR(estimate.value, mean, 1e-12);
  EXPECT_NEAR(estimate.standard_error, std::sqrt(squares / 4 / 5), 1e-12);
  EXPECT_EQ(estimate.count, 5);
}

TEST(RatioSampleTest, WeighsGroupsByTheirDenominators) {
  RatioSample sample(3);
  sample.Add(0, 1, 2);
  sample.Add(0, 2, 2);
  sample.Add(1, 5, 6);
  sample.Add(2, 0, 10);
  const Estimate estimate = sample.Get();
  EXPECT_NEAR(estimate.value, 8.0 / 20, 1e-12);
  const double without[] = {5.0 / 16, 3.0 / 14, 8.0 / 10};
  const double mean = (without[0] + without[1] + without[2]) / 3;
  double squares = 0;
  for (double ratio : without) squares += (ratio - mean) * (ratio - mean);
  EXPECT_NEAR(estimate.standard_error, std::sqrt(squares * 2 / 3), 1e-12);
}

TEST(RatioSampleTest, SaysWhenNothingOrOneGroupWasCounted) {
  RatioSample sample(4);
  EXPECT_TRUE(std::isnan(sample.Get().value));
  sample.Add(2, 3, 4);
  EXPECT_NEAR(sample.Get().value, 0.75, 1e-12);
  EXPECT_TRUE(std::isnan(sample.Get().standard_error));
}

}  // namespace
}  // namespace coppice::lab
