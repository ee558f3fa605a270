#include <cmath>

#include "tests/kernels/cuda/device_memory.h"

namespace coppice::kernels::cuda {
namespace {

TEST(CudaSoftCap, MatchesDoublePrecision) {
  for (const int64_t count : {1, 7, 1024, 1028, 5001}) {
    for (const float cap : {0.5f, 30.0f}) {
      const std::vector<float> before = RandomValues<float>(count, count, 100.0f);
      DeviceArray<float> x(before);
      SoftCap({x.data(), count, cap}, nullptr);
      WaitForDevice();
      for (int64_t i = 0; i < count; ++i) {
        const double want = double{cap} * std::tanh(double{before[i]} / cap);
        ExpectNear(x[i], want, std::abs(want), 1e-6, std::to_string(before[i]));
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

// A logit that overflowed must not become the largest.
TEST(CudaSoftCap, WhatIsNotFiniteBecomesNan) {
  DeviceArray<float> x(std::vector<float>{INFINITY, -INFINITY, NAN, 3e38f});
  SoftCap({x.data(), 4, 30.0f}, nullptr);
  WaitForDevice();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(x[i])) << i;
  EXPECT_EQ(x[3], 30.0f);
}

TEST(CudaSoftCap, NoRows) { SoftCap({nullptr, 0, 30.0f}, nullptr); }

}  // namespace
}  // namespace coppice::kernels::cuda
