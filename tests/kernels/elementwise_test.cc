#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/kernels/kernel_fixture.h"

namespace coppice {
namespace {

class ElementwiseTest : public KernelTest {};

TEST_P(ElementwiseTest, RmsNormMatchesDoublePrecision) {
  for (const int64_t n : {1, 7, 8, 31, 32, 80, 769}) {
    const std::vector<float> x = RandomFloats(3 * n, n), gain = RandomFloats(n, n + 1);
    std::vector<float> out(3 * n);
    single_->RmsNorm(x.data(), gain, 1e-5f, 3, n, out.data());
    for (int64_t r = 0; r < 3; ++r) {
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) sum += double{x[r * n + i]} * x[r * n + i];
      const double scale = 1.0 / std::sqrt(sum / n + 1e-5f);
      for (int64_t i = 0; i < n; ++i) {
        const double want = x[r * n + i] * scale * gain[i];
        ASSERT_NEAR(out[r * n + i], want, 3e-6 * std::abs(want) + 1e-9)
            << n << " " << r << " " << i;
      }
    }
  }
}

TEST_P(ElementwiseTest, RmsNormMayAlias) {
  std::vector<float> x = RandomFloats(2 * 45, 1), out(2 * 45);
  const std::vector<float> gain = RandomFloats(45, 2);
  single_->RmsNorm(x.data(), gain, 1e-6f, 2, 45, out.data());
  single_->RmsNorm(x.data(), gain, 1e-6f, 2, 45, x.data());
  EXPECT_EQ(x, out);
}

TEST_P(ElementwiseTest, SwiGluMatchesDoublePrecision) {
  for (const int64_t n : {1, 5, 8, 21, 64}) {
    std::vector<float> gate_up = RandomFloats(2 * 2 * n, n);
    for (float& value : gate_up) value *= 20.0f;
    std::vector<float> out(2 * n);
    single_->SwiGlu(gate_up.data(), 2, n, out.data());
    for (int64_t r = 0; r < 2; ++r) {
      for (int64_t i = 0; i < n; ++i) {
        const double gate = gate_up[r * 2 * n + i], up = gate_up[r * 2 * n + n + i];
        const double want = gate / (1.0 + std::exp(-gate)) * up;
        ASSERT_NEAR(out[r * n + i], want, 2e-6 * std::abs(want) + 1e-30) << gate << " " << up;
      }
    }
  }
}

TEST_P(ElementwiseTest, SwiGluOfExtremesIsFinite) {
  const std::vector<float> gate_up = {-1e30f, -200.0f, -0.0f, 200.0f, 1e30f, 1, 1, 1, 1, 1};
  std::vector<float> out(5);
  single_->SwiGlu(gate_up.data(), 1, 5, out.data());
  EXPECT_EQ(out, (std::vector<float>{0.0f, 0.0f, 0.0f, 200.0f, 1e30f}));
}

TEST_P(ElementwiseTest, AddAdds) {
  const std::vector<float> x = RandomFloats(1003, 1), y = RandomFloats(1003, 2);
  std::vector<float> sum = x;
  single_->Add(sum.data(), y.data(), 1003);
  for (int i = 0; i < 1003; ++i) ASSERT_EQ(sum[i], x[i] + y[i]);
}

TEST_P(ElementwiseTest, BitsOfARowDoNotDependOnBatchOrThreads) {
  constexpr int64_t kRows = 300, kWidth = 515;
  const std::vector<float> x = RandomFloats(kRows * 2 * kWidth, 3), gain = RandomFloats(kWidth, 4);
  std::vector<float> norm(kRows * kWidth), glu(kRows * kWidth), row(kWidth);
  team_->RmsNorm(x.data(), gain, 1e-5f, kRows, kWidth, norm.data());
  team_->SwiGlu(x.data(), kRows, kWidth, glu.data());
  for (int64_t r = 0; r < kRows; ++r) {
    single_->RmsNorm(x.data() + r * kWidth, gain, 1e-5f, 1, kWidth, row.data());
    ASSERT_EQ(std::memcmp(row.data(), norm.data() + r * kWidth, kWidth * sizeof(float)), 0)
        << "norm, row " << r;
    single_->SwiGlu(x.data() + r * 2 * kWidth, 1, kWidth, row.data());
    ASSERT_EQ(std::memcmp(row.data(), glu.data() + r * kWidth, kWidth * sizeof(float)), 0)
        << "SwiGLU, row " << r;
  }
}

// exp must not know its lane: the same gate at every place of a vector and in the remainder.
TEST_P(ElementwiseTest, SwiGluGivesTheSameBitsInEveryLane) {
  constexpr int64_t kWidth = 29;
  for (const float gate : RandomFloats(50, 9)) {
    std::vector<float> gate_up(2 * kWidth, gate * 10.0f), out(kWidth);
    single_->SwiGlu(gate_up.data(), 1, kWidth, out.data());
    for (int64_t i = 1; i < kWidth; ++i) ASSERT_EQ(out[i], out[0]) << gate << " lane " << i;
  }
}

COPPICE_ON_ALL_TARGETS(ElementwiseTest);

}  // namespace
}  // namespace coppice
