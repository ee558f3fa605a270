#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/element.h"
#include "tests/kernels/kernel_fixture.h"

namespace coppice::kernels {
namespace {

class MatMulTest : public KernelTest {
 protected:
  struct Problem {
    int64_t outputs;
    int64_t inputs;
    DType dtype;
    std::vector<float> weights;  // as stored: rounded to dtype
    std::vector<float> bias;
    std::unique_ptr<Weight> packed;
  };

  Problem MakeProblem(int64_t outputs, int64_t inputs, DType dtype, std::vector<float> bias = {}) {
    Problem problem = {outputs, inputs,
                       dtype,   RandomFloats(outputs * inputs, outputs * 1000 + inputs),
                       bias,    nullptr};
    const MatrixSource source = {problem.weights.data(), DType::kF32, outputs, inputs, inputs};
    problem.packed = team_->Pack(absl::MakeConstSpan(&source, 1), dtype, bias).value();
    if (dtype == DType::kBF16) {
      for (float& weight : problem.weights) weight = Bf16ToFloat(FloatToBf16(weight));
    }
    return problem;
  }

  // x as the products of the target take it.
  static std::vector<float> Rounded(const Problem& problem, std::vector<float> x) {
    if (problem.dtype == DType::kBF16 && GetParam() == cpu::KernelTarget::kAvx512Bf16) {
      for (float& value : x) value = Bf16ToFloat(FloatToBf16(value));
    }
    return x;
  }

  // y (+)= x[first .. first + rows) w^T + bias.
  static void MatMul(Backend* backend, const Problem& problem, std::vector<float>* x, int64_t first,
                     int64_t rows, float* y, bool accumulate) {
    const Tensor input = TensorOf(x->data() + first * problem.inputs, rows, problem.inputs);
    RunOps(backend, PlanOfRows(rows), [&](Ops* ops) {
      ops->MatMul(*problem.packed, input, TensorOf(y, rows, problem.outputs), accumulate);
    });
  }

  // Compares with double precision. The tolerance is the bound for a chain of n roundings,
  // (n + 2) 2^-24 sum |x w|.
  static void ExpectCloseToReference(const Problem& problem, const std::vector<float>& x,
                                     int64_t rows, const std::vector<float>& y) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t n = 0; n < problem.outputs; ++n) {
        double sum = problem.bias.empty() ? 0.0 : problem.bias[n], size = std::abs(sum);
        for (int64_t k = 0; k < problem.inputs; ++k) {
          const double term =
              double{x[r * problem.inputs + k]} * problem.weights[n * problem.inputs + k];
          sum += term;
          size += std::abs(term);
        }
        const double tolerance = std::ldexp(static_cast<double>(problem.inputs + 2), -24) * size;
        ASSERT_NEAR(y[r * problem.outputs + n], sum, tolerance)
            << "rows " << rows << " row " << r << " output " << n << " of " << problem.outputs
            << " x " << problem.inputs << " " << DTypeName(problem.dtype);
      }
    }
  }
};

TEST_P(MatMulTest, MatchesDoublePrecisionAtOddSizes) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t outputs : {1, 15, 16, 17, 131}) {
      for (const int64_t inputs : {1, 2, 33, 128}) {
        const Problem problem = MakeProblem(outputs, inputs, dtype);
        for (int64_t rows = 1; rows <= 40; rows += rows < 14 ? 1 : 13) {
          std::vector<float> x = RandomFloats(rows * inputs, rows);
          std::vector<float> y(rows * outputs, NAN);
          MatMul(single_.get(), problem, &x, 0, rows, y.data(), false);
          ExpectCloseToReference(problem, Rounded(problem, x), rows, y);
        }
      }
    }
  }
}

TEST_P(MatMulTest, AddsBiasAndAccumulates) {
  for (const int64_t outputs : {16, 37}) {
    const Problem problem = MakeProblem(outputs, 29, DType::kF32, RandomFloats(outputs, 5));
    std::vector<float> x = RandomFloats(2 * 29, 6);
    std::vector<float> y(2 * outputs);
    MatMul(single_.get(), problem, &x, 0, 2, y.data(), false);
    ExpectCloseToReference(problem, x, 2, y);

    std::vector<float> twice = y;
    MatMul(single_.get(), problem, &x, 0, 2, twice.data(), true);
    for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(twice[i], 2 * y[i]) << i;
  }
}

TEST_P(MatMulTest, BitsOfARowDoNotDependOnBatchOrThreads) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI8}) {
    const Problem problem = MakeProblem(1000, 301, dtype);
    constexpr int64_t kRows = 40;
    std::vector<float> x = RandomFloats(kRows * problem.inputs, 7);
    std::vector<float> alone(kRows * problem.outputs);
    for (int64_t r = 0; r < kRows; ++r)
      MatMul(single_.get(), problem, &x, r, 1, alone.data() + r * problem.outputs, false);
    for (int64_t rows = 1; rows <= kRows; rows += rows < 14 ? 1 : 13) {
      for (Backend* backend : {single_.get(), team_.get()}) {
        for (const int64_t first : {int64_t{0}, kRows - rows}) {
          std::vector<float> y(rows * problem.outputs, NAN);
          MatMul(backend, problem, &x, first, rows, y.data(), false);
          ASSERT_EQ(std::memcmp(y.data(), alone.data() + first * problem.outputs,
                                y.size() * sizeof(float)),
                    0)
              << rows << " rows from " << first << ", " << backend->description();
        }
      }
    }
  }
}

// Values whose magnitudes differ by powers of four between groups of 64 columns, so that a scale of
// another group is far off.
std::vector<float> GroupedFloats(int64_t rows, int64_t columns, uint64_t seed) {
  std::vector<float> values = RandomFloats(rows * columns, seed);
  for (int64_t i = 0; i < rows * columns; ++i) {
    const int64_t group = i % columns / 64 + i / columns;
    values[i] = std::ldexp(values[i], static_cast<int>(group * 7 % 5) * 2 - 4);
  }
  return values;
}

class Int8MatMulTest : public MatMulTest {
 protected:
  static constexpr int64_t kGroup = 64;

  static float LargestOfGroup(const float* row, int64_t columns, int64_t k) {
    float largest = 0;
    for (int64_t i = k / kGroup * kGroup; i < std::min(columns, (k / kGroup + 1) * kGroup); ++i)
      largest = std::max(largest, std::abs(row[i]));
    return largest;
  }
  std::unique_ptr<Weight> PackInt8(const std::vector<float>& values, int64_t rows,
                                   std::vector<float> bias = {}) {
    const int64_t columns = static_cast<int64_t>(values.size()) / rows;
    const MatrixSource source = {values.data(), DType::kF32, rows, columns, columns};
    return team_->Pack(absl::MakeConstSpan(&source, 1), DType::kI8, std::move(bias)).value();
  }
  // The weights as stored, read back as embeddings.
  std::vector<float> Stored(const Weight& weight) {
    std::vector<float> values(weight.rows * weight.columns);
    StepPlan plan = PlanOfRows(weight.rows);
    for (int64_t row = 0; row < weight.rows; ++row) plan.token[row] = static_cast<TokenId>(row);
    RunOps(single_.get(), plan,
           [&](Ops* ops) { ops->Embed(weight, 0, TensorOf(&values, weight.columns)); });
    return values;
  }
};

TEST_P(Int8MatMulTest, WeightsAreWithinHalfAStepOfTheirGroup) {
  for (const int64_t outputs : {1, 16, 37}) {
    for (const int64_t inputs : {1, 63, 64, 65, 200}) {
      const std::vector<float> values = GroupedFloats(outputs, inputs, outputs + inputs);
      const std::vector<float> stored = Stored(*PackInt8(values, outputs));
      for (int64_t i = 0; i < outputs * inputs; ++i) {
        const float* row = values.data() + i / inputs * inputs;
        const float step = LargestOfGroup(row, inputs, i % inputs) / 127;
        ASSERT_NEAR(stored[i], values[i], 0.501 * step)
            << i << " of " << outputs << " x " << inputs;
        if (std::abs(values[i]) == 127 * step) {
          EXPECT_NEAR(stored[i], values[i], 1e-6 * std::abs(values[i]));
        }
      }
    }
  }
}

// The input is rounded to steps of its groups, at most half a step each; the rest is rounding of f32.
TEST_P(Int8MatMulTest, IsTheProductOfTheStoredWeights) {
  for (const int64_t outputs : {1, 15, 17, 131}) {
    for (const int64_t inputs : {1, 63, 64, 65, 300}) {
      const std::vector<float> bias = RandomFloats(outputs, 3);
      const auto weight = PackInt8(GroupedFloats(outputs, inputs, outputs), outputs, bias);
      const std::vector<float> w = Stored(*weight);
      for (int64_t rows = 1; rows <= 40; rows += rows < 14 ? 1 : 13) {
        std::vector<float> x = GroupedFloats(rows, inputs, rows), y(rows * outputs, NAN);
        RunOps(single_.get(), PlanOfRows(rows), [&](Ops* ops) {
          ops->MatMul(*weight, TensorOf(&x, inputs), TensorOf(&y, outputs), false);
        });
        for (int64_t i = 0; i < rows * outputs; ++i) {
          const float* row = x.data() + i / outputs * inputs;
          double sum = bias[i % outputs], steps = 0, size = std::abs(sum);
          for (int64_t k = 0; k < inputs; ++k) {
            const double weight_k = w[i % outputs * inputs + k];
            sum += row[k] * weight_k;
            size += std::abs(row[k] * weight_k);
            steps += LargestOfGroup(row, inputs, k) / 127 * std::abs(weight_k);
          }
          ASSERT_NEAR(y[i], sum, 0.501 * steps + 1e-5 * size)
              << i << " of " << rows << " rows, " << outputs << " x " << inputs;
        }
      }
    }
  }
}

// Inputs that are whole steps lose nothing, so only f32 rounding is left.
TEST_P(Int8MatMulTest, IsExactForWholeSteps) {
  constexpr int64_t kOutputs = 33, kInputs = 192, kRows = 9;
  std::vector<float> w(kOutputs * kInputs), x(kRows * kInputs), y(kRows * kOutputs);
  uint32_t seed = 1;
  const auto step = [&](int64_t k) {
    seed = seed * 1664525u + 1013904223u;
    return k % kGroup == 0 ? 127.0f
                           : static_cast<float>(static_cast<int>(seed >> 24) - 127) *
                                 (seed >> 24 == 255 ? 0.0f : 1.0f);
  };
  for (size_t i = 0; i < w.size(); ++i) w[i] = step(i % kInputs);
  for (size_t i = 0; i < x.size(); ++i) x[i] = step(i % kInputs);
  const auto weight = PackInt8(w, kOutputs);
  RunOps(team_.get(), PlanOfRows(kRows), [&](Ops* ops) {
    ops->MatMul(*weight, TensorOf(&x, kInputs), TensorOf(&y, kOutputs), false);
  });
  for (int64_t i = 0; i < kRows * kOutputs; ++i) {
    int64_t sum = 0;
    for (int64_t k = 0; k < kInputs; ++k) {
      sum += static_cast<int64_t>(x[i / kOutputs * kInputs + k]) *
             static_cast<int64_t>(w[i % kOutputs * kInputs + k]);
    }
    EXPECT_EQ(y[i], static_cast<float>(sum)) << i;
  }
}

TEST_P(Int8MatMulTest, VectorTargetsGiveTheSameBits) {
  constexpr int64_t kOutputs = 100, kInputs = 333, kRows = 7;
  const auto weight = PackInt8(GroupedFloats(kOutputs, kInputs, 1), kOutputs);
  std::vector<float> x = GroupedFloats(kRows, kInputs, 2), y(kRows * kOutputs), first;
  const auto run = [&](cpu::KernelTarget target) {
    cpu::SetKernelTarget(target);
    RunOps(single_.get(), PlanOfRows(kRows), [&](Ops* ops) {
      ops->MatMul(*weight, TensorOf(&x, kInputs), TensorOf(&y, kOutputs), false);
    });
    return y;
  };
  for (const cpu::KernelTarget target : cpu::SupportedKernelTargets()) {
    const std::vector<float> result = run(target);
    if (target == cpu::KernelTarget::kScalar) continue;  // has no fused multiply-add
    if (first.empty()) first = result;
    EXPECT_EQ(std::memcmp(first.data(), result.data(), result.size() * sizeof(float)), 0)
        << cpu::KernelTargetName(target);
  }
}

TEST_P(Int8MatMulTest, WhatIsNotFiniteStaysSo) {
  const auto weight = PackInt8(GroupedFloats(16, 128, 1), 16);
  std::vector<float> x(128, 1.0f), y(16);
  x[100] = INFINITY;
  RunOps(single_.get(), PlanOfRows(1),
         [&](Ops* ops) { ops->MatMul(*weight, TensorOf(&x, 128), TensorOf(&y, 16), false); });
  for (const float value : y) EXPECT_FALSE(std::isfinite(value));
}

COPPICE_ON_ALL_TARGETS(MatMulTest);
COPPICE_ON_ALL_TARGETS(Int8MatMulTest);

}  // namespace
}  // namespace coppice::kernels
