#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/kernels/kernel_fixture.h"

namespace coppice::kernels {
namespace {

class ElementwiseTest : public KernelTest {
 protected:
  // out = norm(x) * gain over rows of gain.size(). If there is an addend, x += addend comes first.
  static void AddNorm(Backend* backend, Tensor x, Tensor addend, const std::vector<float>& gain,
                      float epsilon, Tensor out) {
    const auto weight = backend->PackGain(gain).value();
    RunOps(backend, PlanOfRows(x.rows),
           [&](Ops* ops) { ops->AddNorm(x, addend, *weight, epsilon, out); });
  }
  static void RmsNorm(Backend* backend, std::vector<float>* x, const std::vector<float>& gain,
                      float epsilon, std::vector<float>* out) {
    const auto n = static_cast<int64_t>(gain.size());
    AddNorm(backend, TensorOf(x, n), {}, gain, epsilon, TensorOf(out, n));
  }
  static void SwiGlu(Backend* backend, float* gate_up, int64_t rows, int64_t n, float* out) {
    RunOps(backend, PlanOfRows(rows),
           [&](Ops* ops) { ops->SwiGlu(TensorOf(gate_up, rows, 2 * n), TensorOf(out, rows, n)); });
  }
};

TEST_P(ElementwiseTest, RmsNormMatchesDoublePrecision) {
  for (const int64_t n : {1, 7, 8, 31, 32, 80, 769}) {
    const std::vector<float> gain = RandomFloats(n, n + 1);
    std::vector<float> x = RandomFloats(3 * n, n), out(3 * n);
    RmsNorm(single_.get(), &x, gain, 1e-5f, &out);
    EXPECT_EQ(x, RandomFloats(3 * n, n));
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
  RmsNorm(single_.get(), &x, gain, 1e-6f, &out);
  RmsNorm(single_.get(), &x, gain, 1e-6f, &x);
  EXPECT_EQ(x, out);
}

TEST_P(ElementwiseTest, SwiGluMatchesDoublePrecision) {
  for (const int64_t n : {1, 5, 8, 21, 64}) {
    std::vector<float> gate_up = RandomFloats(2 * 2 * n, n);
    for (float& value : gate_up) value *= 20.0f;
    std::vector<float> out(2 * n);
    SwiGlu(single_.get(), gate_up.data(), 2, n, out.data());
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
  std::vector<float> gate_up = {-1e30f, -200.0f, -0.0f, 200.0f, 1e30f, 1, 1, 1, 1, 1};
  std::vector<float> out(5);
  SwiGlu(single_.get(), gate_up.data(), 1, 5, out.data());
  EXPECT_EQ(out, (std::vector<float>{0.0f, 0.0f, 0.0f, 200.0f, 1e30f}));
}

// The sum is stored in the residual, and the norm is that of the sum, bit for bit.
TEST_P(ElementwiseTest, AddNormAddsThenNorms) {
  constexpr int64_t kRows = 130, kWidth = 1003;
  const std::vector<float> x = RandomFloats(kRows * kWidth, 1), gain = RandomFloats(kWidth, 3);
  std::vector<float> y = RandomFloats(kRows * kWidth, 2), normed(x.size()), expected(x.size());
  for (Backend* backend : {single_.get(), team_.get()}) {
    std::vector<float> sum = x;
    AddNorm(backend, TensorOf(&sum, kWidth), TensorOf(&y, kWidth), gain, 1e-5f,
            TensorOf(&normed, kWidth));
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(sum[i], x[i] + y[i]);
    RmsNorm(backend, &sum, gain, 1e-5f, &expected);
    EXPECT_EQ(normed, expected);
  }
}

TEST_P(ElementwiseTest, BitsOfARowDoNotDependOnBatchOrThreads) {
  constexpr int64_t kRows = 300, kWidth = 515;
  const std::vector<float> gain = RandomFloats(kWidth, 4);
  std::vector<float> x = RandomFloats(kRows * 2 * kWidth, 3);
  std::vector<float> norm(kRows * kWidth), glu(kRows * kWidth), row(kWidth);
  AddNorm(team_.get(), TensorOf(x.data(), kRows, kWidth), {}, gain, 1e-5f, TensorOf(&norm, kWidth));
  SwiGlu(team_.get(), x.data(), kRows, kWidth, glu.data());
  for (int64_t r = 0; r < kRows; ++r) {
    AddNorm(single_.get(), TensorOf(x.data() + r * kWidth, 1, kWidth), {}, gain, 1e-5f,
            TensorOf(&row, kWidth));
    ASSERT_EQ(std::memcmp(row.data(), norm.data() + r * kWidth, kWidth * sizeof(float)), 0)
        << "norm, row " << r;
    SwiGlu(single_.get(), x.data() + r * 2 * kWidth, 1, kWidth, row.data());
    ASSERT_EQ(std::memcmp(row.data(), glu.data() + r * kWidth, kWidth * sizeof(float)), 0)
        << "SwiGLU, row " << r;
  }
}

// exp must not depend on the lane: the same gate is used at every place of a vector and in the
// remainder.
TEST_P(ElementwiseTest, SwiGluGivesTheSameBitsInEveryLane) {
  constexpr int64_t kWidth = 29;
  for (const float gate : RandomFloats(50, 9)) {
    std::vector<float> gate_up(2 * kWidth, gate * 10.0f), out(kWidth);
    SwiGlu(single_.get(), gate_up.data(), 1, kWidth, out.data());
    for (int64_t i = 1; i < kWidth; ++i) ASSERT_EQ(out[i], out[0]) << gate << " lane " << i;
  }
}

COPPICE_ON_ALL_TARGETS(ElementwiseTest);

}  // namespace
}  // namespace coppice::kernels
