#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tests/kernels/kernel_fixture.h"

namespace coppice::kernels {
namespace {

constexpr float kEpsilon = 1e-5f;
constexpr Activation kActivations[] = {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh,
                                       Activation::kRelu};

double Activated(Activation f, double x) {
  switch (f) {
    case Activation::kSilu:
      return x / (1.0 + std::exp(-x));
    case Activation::kGelu:
      return x * std::erfc(-x / std::sqrt(2.0)) / 2;
    case Activation::kGeluTanh:
      // (1 + tanh(u)) / 2 without cancellation.
      return x / (1.0 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kRelu:
      return std::max(x, 0.0);
  }
  return NAN;
}

// norm(x) of one row in double precision.
std::vector<double> Normed(NormKind kind, const double* x, const std::vector<float>& gain,
                           const std::vector<float>& bias) {
  const size_t n = gain.size();
  double mean = 0, squares = 0;
  if (kind == NormKind::kLayer) {
    for (size_t i = 0; i < n; ++i) mean += x[i] / n;
  }
  for (size_t i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
  const double scale = 1.0 / std::sqrt(squares / n + kEpsilon);
  std::vector<double> out(n);
  for (size_t i = 0; i < n; ++i)
    out[i] = (x[i] - mean) * scale * gain[i] + (bias.empty() ? 0.0f : bias[i]);
  return out;
}

class ElementwiseTest : public KernelTest {
 protected:
  // AddNorm with a norm of this gain and bias.
  static void AddNorm(Backend* backend, Tensor x, const Addend& addend, NormKind kind,
                      const std::vector<float>& gain, const std::vector<float>& bias, Tensor out) {
    const auto weight = backend->PackGain(gain, bias).value();
    RunOps(backend, PlanOfRows(x.rows), [&](Ops* ops) {
      ops->AddNorm(x, addend, {weight.get(), kind, kEpsilon}, out);
    });
  }
  static void RmsNorm(Backend* backend, std::vector<float>* x, const std::vector<float>& gain,
                      std::vector<float>* out) {
    const auto n = static_cast<int64_t>(gain.size());
    AddNorm(backend, TensorOf(x, n), {}, NormKind::kRms, gain, {}, TensorOf(out, n));
  }
  static void Activate(Backend* backend, Activation f, bool gated, float* in, int64_t rows,
                       int64_t n, float* out) {
    RunOps(backend, PlanOfRows(rows), [&](Ops* ops) {
      ops->Activate(f, TensorOf(in, rows, gated ? 2 * n : n), TensorOf(out, rows, n));
    });
  }
};

TEST_P(ElementwiseTest, NormsMatchDoublePrecision) {
  for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
    for (const bool biased : {false, true}) {
      for (const int64_t n : {1, 7, 8, 31, 32, 80, 769}) {
        const std::vector<float> gain = RandomFloats(n, n + 1);
        const std::vector<float> bias = biased ? RandomFloats(n, n + 2) : std::vector<float>();
        std::vector<float> x = RandomFloats(3 * n, n), out(3 * n);
        for (float& value : x) value += 2;  // a mean that matters
        const std::vector<float> before = x;
        AddNorm(single_.get(), TensorOf(&x, n), {}, kind, gain, bias, TensorOf(&out, n));
        EXPECT_EQ(x, before);
        for (int64_t r = 0; r < 3; ++r) {
          const std::vector<double> row(x.begin() + r * n, x.begin() + (r + 1) * n);
          const std::vector<double> want = Normed(kind, row.data(), gain, bias);
          for (int64_t i = 0; i < n; ++i) {
            ASSERT_NEAR(out[r * n + i], want[i], 3e-6 * (1 + std::abs(want[i])))
                << n << " " << r << " " << i;
          }
        }
      }
    }
  }
}

// Small values among large ones: the relative error stays small.
TEST_P(ElementwiseTest, RmsNormKeepsSmallValues) {
  constexpr int64_t kWidth = 80;
  std::vector<float> x = RandomFloats(kWidth, 3), out(kWidth);
  x[5] = 1e-6f, x[6] = -3e-7f;
  const std::vector<float> gain = RandomFloats(kWidth, 4);
  RmsNorm(single_.get(), &x, gain, &out);
  const std::vector<double> row(x.begin(), x.end());
  const std::vector<double> want = Normed(NormKind::kRms, row.data(), gain, {});
  for (int64_t i = 0; i < kWidth; ++i)
    ASSERT_NEAR(out[i], want[i], 3e-6 * std::abs(want[i]) + 1e-12);
}

TEST_P(ElementwiseTest, NormsMayWorkInPlace) {
  for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
    std::vector<float> x = RandomFloats(2 * 45, 1), out(2 * 45);
    const std::vector<float> gain = RandomFloats(45, 2), bias = RandomFloats(45, 3);
    AddNorm(single_.get(), TensorOf(&x, 45), {}, kind, gain, bias, TensorOf(&out, 45));
    AddNorm(single_.get(), TensorOf(&x, 45), {}, kind, gain, bias, TensorOf(&x, 45));
    EXPECT_EQ(x, out);
  }
}

TEST_P(ElementwiseTest, WithoutANormTheSumIsTheOutput) {
  std::vector<float> x = RandomFloats(3 * 45, 1), y = RandomFloats(3 * 45, 2), out(3 * 45);
  std::vector<float> want(3 * 45);
  for (size_t i = 0; i < want.size(); ++i) want[i] = x[i] + y[i] * 0.5f;
  RunOps(single_.get(), PlanOfRows(3), [&](Ops* ops) {
    ops->AddNorm(TensorOf(&x, 45), {TensorOf(&y, 45), {}, 0.5f}, {}, TensorOf(&out, 45));
  });
  EXPECT_EQ(x, want);
  EXPECT_EQ(out, want);
}

// The sum is stored in the residual, and the norm is that of the sum, bit for bit.
TEST_P(ElementwiseTest, AddNormAddsThenNorms) {
  constexpr int64_t kRows = 130, kWidth = 1003;
  const std::vector<float> x = RandomFloats(kRows * kWidth, 1), gain = RandomFloats(kWidth, 3);
  std::vector<float> y = RandomFloats(kRows * kWidth, 2), normed(x.size()), expected(x.size());
  for (Backend* backend : {single_.get(), team_.get()}) {
    std::vector<float> sum = x;
    AddNorm(backend, TensorOf(&sum, kWidth), {TensorOf(&y, kWidth)}, NormKind::kRms, gain, {},
            TensorOf(&normed, kWidth));
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(sum[i], x[i] + y[i]);
    RmsNorm(backend, &sum, gain, &expected);
    EXPECT_EQ(normed, expected);
  }
}

// What is added may have a norm of its own, and a scale.
TEST_P(ElementwiseTest, AddNormNormsTheAddend) {
  constexpr int64_t kWidth = 203;
  const std::vector<float> gain = RandomFloats(kWidth, 3), inner = RandomFloats(kWidth, 4);
  for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
    std::vector<float> x = RandomFloats(kWidth, 1), y = RandomFloats(kWidth, 2), out(kWidth);
    std::vector<double> sum(x.begin(), x.end());
    const std::vector<double> added(y.begin(), y.end());
    const std::vector<double> normed = Normed(kind, added.data(), inner, {});
    for (int64_t i = 0; i < kWidth; ++i) sum[i] += 0.22 * normed[i];
    const auto of_addend = single_->PackGain(inner).value();
    AddNorm(single_.get(), TensorOf(&x, kWidth),
            {TensorOf(&y, kWidth), {of_addend.get(), kind, kEpsilon}, 0.22f}, kind, gain, {},
            TensorOf(&out, kWidth));
    const std::vector<double> want = Normed(kind, sum.data(), gain, {});
    for (int64_t i = 0; i < kWidth; ++i) {
      ASSERT_NEAR(x[i], sum[i], 1e-6 * (1 + std::abs(sum[i])));
      ASSERT_NEAR(out[i], want[i], 5e-6 * (1 + std::abs(want[i])));
    }
  }
}

TEST_P(ElementwiseTest, ActivationsMatchDoublePrecision) {
  for (const Activation f : kActivations) {
    for (const bool gated : {true, false}) {
      for (const int64_t n : {1, 5, 8, 21, 64}) {
        const int64_t width = gated ? 2 * n : n;
        std::vector<float> in = RandomFloats(2 * width, n);
        for (float& value : in) value *= 20.0f;
        std::vector<float> out(2 * n);
        Activate(single_.get(), f, gated, in.data(), 2, n, out.data());
        // erf has an absolute error, the others a relative one.
        const double absolute = f == Activation::kGelu ? 2e-7 : 1e-30;
        const double relative = f == Activation::kGeluTanh ? 4e-6 : 2e-6;
        for (int64_t r = 0; r < 2; ++r) {
          for (int64_t i = 0; i < n; ++i) {
            const double x = in[r * width + i], up = gated ? in[r * width + n + i] : 1.0;
            const double want = Activated(f, x) * up;
            ASSERT_NEAR(out[r * n + i], want,
                        relative * std::abs(want) + absolute * std::abs(x * up) + 1e-30)
                << x << " " << up << ", activation " << static_cast<int>(f);
          }
        }
      }
    }
  }
}

TEST_P(ElementwiseTest, ActivationsOfExtremesAreFinite) {
  const std::vector<float> values = {-1e30f, -200.0f, -0.0f, 200.0f, 1e30f};
  for (const Activation f : kActivations) {
    std::vector<float> gate_up = values, out(5);
    gate_up.resize(10, 1);
    Activate(single_.get(), f, true, gate_up.data(), 1, 5, out.data());
    EXPECT_EQ(out, (std::vector<float>{0.0f, 0.0f, 0.0f, 200.0f, 1e30f})) << static_cast<int>(f);
    gate_up[2] = NAN;
    Activate(single_.get(), f, true, gate_up.data(), 1, 5, out.data());
    EXPECT_TRUE(std::isnan(out[2])) << static_cast<int>(f);
  }
}

TEST_P(ElementwiseTest, SoftCapMatchesDoublePrecision) {
  std::vector<float> x = RandomFloats(3 * 53, 1);
  for (float& value : x) value *= 100.0f;
  x[0] = 1e30f, x[1] = -1e30f, x[2] = 0;
  const std::vector<float> before = x;
  RunOps(single_.get(), PlanOfRows(3), [&](Ops* ops) { ops->SoftCap(TensorOf(&x, 53), 30.0f); });
  for (size_t i = 0; i < x.size(); ++i)
    ASSERT_NEAR(x[i], 30.0 * std::tanh(before[i] / 30.0), 1e-5) << before[i];
}

TEST_P(ElementwiseTest, BitsOfARowDoNotDependOnBatchOrThreads) {
  constexpr int64_t kRows = 300, kWidth = 515;
  const std::vector<float> gain = RandomFloats(kWidth, 4), bias = RandomFloats(kWidth, 5);
  std::vector<float> x = RandomFloats(kRows * 2 * kWidth, 3);
  std::vector<float> all(kRows * kWidth), row(kWidth);
  const auto same = [&](int64_t r, const std::string& what) {
    ASSERT_EQ(std::memcmp(row.data(), all.data() + r * kWidth, kWidth * sizeof(float)), 0)
        << what << ", row " << r;
  };
  for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
    AddNorm(team_.get(), TensorOf(x.data(), kRows, kWidth), {}, kind, gain, bias,
            TensorOf(&all, kWidth));
    for (int64_t r = 0; r < kRows; ++r) {
      AddNorm(single_.get(), TensorOf(x.data() + r * kWidth, 1, kWidth), {}, kind, gain, bias,
              TensorOf(&row, kWidth));
      same(r, "norm");
    }
  }
  for (const Activation f : kActivations) {
    Activate(team_.get(), f, true, x.data(), kRows, kWidth, all.data());
    for (int64_t r = 0; r < kRows; ++r) {
      Activate(single_.get(), f, true, x.data() + r * 2 * kWidth, 1, kWidth, row.data());
      same(r, absl::StrCat("activation ", static_cast<int>(f)));
    }
  }
}

// exp must not depend on the lane: the same gate is used at every place of a vector and in the
// remainder.
TEST_P(ElementwiseTest, ActivationsGiveTheSameBitsInEveryLane) {
  constexpr int64_t kWidth = 29;
  for (const Activation f : kActivations) {
    for (const float gate : RandomFloats(50, 9)) {
      std::vector<float> gate_up(2 * kWidth, gate * 10.0f), out(kWidth);
      Activate(single_.get(), f, true, gate_up.data(), 1, kWidth, out.data());
      for (int64_t i = 1; i < kWidth; ++i) ASSERT_EQ(out[i], out[0]) << gate << " lane " << i;
    }
  }
}

// Learned positions, and embeddings with a scale.
TEST_P(ElementwiseTest, EmbeddingsAreScaledAndPositionsAdded) {
  constexpr int64_t kWidth = 37, kTokens = 20, kPlaces = 12;
  const std::vector<float> matrix = RandomFloats(kTokens * kWidth, 1);
  const std::vector<float> places = RandomFloats(kPlaces * kWidth, 2);
  const auto embedding =
      PackOne(single_.get(), {matrix.data(), DType::kF32, kTokens, kWidth, kWidth}, DType::kF32);
  const auto positions =
      PackOne(single_.get(), {places.data(), DType::kF32, kPlaces, kWidth, kWidth}, DType::kF32);
  StepPlan plan = PlanOfRows(3);
  plan.token = {7, 19, 0};
  plan.position = {0, 9, 4};
  std::vector<float> x(3 * kWidth, NAN);
  RunOps(single_.get(), plan, [&](Ops* ops) {
    ops->Embed(*embedding, 0, 1.5f, TensorOf(&x, kWidth));
    ops->AddPositions(*positions, 2, TensorOf(&x, kWidth));
  });
  for (int64_t r = 0; r < 3; ++r) {
    for (int64_t i = 0; i < kWidth; ++i) {
      const float want =
          matrix[plan.token[r] * kWidth + i] * 1.5f + places[(plan.position[r] + 2) * kWidth + i];
      ASSERT_EQ(x[r * kWidth + i], want) << r << " " << i;
    }
  }
}

COPPICE_ON_ALL_TARGETS(ElementwiseTest);

}  // namespace
}  // namespace coppice::kernels
