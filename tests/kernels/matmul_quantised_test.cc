// Products with weights that Pack quantises: int8 (Q8_0) and int4 (Q4_0).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <utility>

#include "kernels/cpu/int8.h"
#include "tests/kernels/kernel_fixture.h"

namespace coppice::kernels {
namespace {

// Values whose magnitudes differ by powers of four between groups of 32 columns, so that a scale of
// another group is far off.
std::vector<float> GroupedFloats(int64_t rows, int64_t columns, uint64_t seed) {
  std::vector<float> values = RandomFloats(rows * columns, seed);
  for (int64_t i = 0; i < rows * columns; ++i) {
    const int64_t group = i % columns / 32 + i / columns;
    values[i] = std::ldexp(values[i], static_cast<int>(group * 7 % 5) * 2 - 4);
  }
  return values;
}

class QuantisedMatMulTest : public KernelTest {
 protected:
  static constexpr int64_t kGroup = 32;  // of inputs, and of weights

  // Both types of weights with each of the values.
  template <class T>
  static std::vector<std::pair<DType, T>> Of(std::initializer_list<T> values) {
    std::vector<std::pair<DType, T>> pairs;
    for (const DType dtype : {DType::kQ8_0, DType::kQ4_0}) {
      for (const T& value : values) pairs.emplace_back(dtype, value);
    }
    return pairs;
  }
  static float LargestOfGroup(const float* row, int64_t columns, int64_t k) {
    float largest = 0;
    for (int64_t i = k / kGroup * kGroup; i < std::min(columns, (k / kGroup + 1) * kGroup); ++i)
      largest = std::max(largest, std::abs(row[i]));
    return largest;
  }
  std::unique_ptr<Weight> PackAs(DType dtype, const std::vector<float>& values, int64_t rows,
                                 std::vector<float> bias = {}) {
    const int64_t columns = static_cast<int64_t>(values.size()) / rows;
    const MatrixSource source = {values.data(), DType::kF32, rows, columns, columns};
    return team_->Pack(absl::MakeConstSpan(&source, 1), dtype, std::move(bias)).value();
  }
  // The weights as stored, read back as embeddings.
  std::vector<float> Stored(const Weight& weight) {
    std::vector<float> values(weight.rows * weight.columns);
    StepPlan plan = PlanOfRows(weight.rows);
    for (int64_t row = 0; row < weight.rows; ++row) plan.token[row] = static_cast<TokenId>(row);
    RunOps(single_.get(), plan,
           [&](Ops* ops) { ops->Embed(weight, 0, 1.0f, TensorOf(&values, weight.columns)); });
    return values;
  }
};

// The same bits on all targets: halves are rounded away from zero, and sums are those of the q.
TEST_P(QuantisedMatMulTest, InputsAreQuantisedAlikeEverywhere) {
  for (const int64_t columns : {1, 31, 64, 65, 100, 192}) {
    std::vector<float> x = GroupedFloats(1, columns, 5);
    x[0] = 127;  // so that the first group has steps of 1
    for (int64_t i = 1; i < std::min<int64_t>(columns, 12); ++i)
      x[i] = static_cast<float>(i % 2 == 0 ? i : -i) * 0.5f;
    if (columns > 20) x[20] = -0.0f, x[21] = 1e-41f;
    for (const DType dtype : {DType::kQ8_0, DType::kQ4_0}) {
      cpu::Int8Rows rows;
      rows.Resize(2, columns, dtype);
      rows.Set(1, x.data(), columns);
      for (int64_t g = 0; g < 2 * cpu::InputBlocks(columns); ++g) {
        const int64_t at = (g / 2 * 2 + 1) * 2 + g % 2;
        const float scale = LargestOfGroup(x.data(), columns, g * kGroup) / 127;
        ASSERT_EQ(rows.scale[at], scale) << columns << " inputs, group " << g;
        const float per_step = 1 / scale;
        int sum = 0;
        for (int64_t k = 0; k < kGroup; ++k) {
          const int64_t i = g * kGroup + k;
          const int want = i < columns ? static_cast<int>(std::round(x[i] * per_step)) : 0;
          const auto* q = reinterpret_cast<const int8_t*>(rows.words.data()) + at * kGroup;
          ASSERT_EQ(int{q[k]}, want) << columns << " inputs, input " << i;
          sum += want;
        }
        EXPECT_EQ(rows.correction[at], (dtype == DType::kQ8_0 ? -128 : -8) * sum);
      }
    }
  }
}

TEST_P(QuantisedMatMulTest, InputsThatAreNotFiniteHaveNoScale) {
  cpu::Int8Rows rows;
  rows.Resize(1, kGroup, DType::kQ8_0);
  const auto scale = [&](std::initializer_list<float> begin) {
    std::vector<float> x(kGroup);
    std::copy(begin.begin(), begin.end(), x.begin());
    rows.Set(0, x.data(), kGroup);
    return rows.scale[0];
  };
  EXPECT_TRUE(std::isnan(scale({1, NAN, 2})));
  EXPECT_TRUE(std::isnan(scale({1, -INFINITY})));
  EXPECT_EQ(scale({0, 1e-44f, -0.0f}), 0);
  EXPECT_EQ(rows.words[0], 0u);
}

TEST_P(QuantisedMatMulTest, WeightsAreWithinHalfAStepOfTheirGroup) {
  for (const int64_t outputs : {1, 16, 37}) {
    for (const int64_t inputs : {1, 63, 64, 65, 200}) {
      const std::vector<float> values = GroupedFloats(outputs, inputs, outputs + inputs);
      const std::vector<float> stored = Stored(*PackAs(DType::kQ8_0, values, outputs));
      for (int64_t i = 0; i < outputs * inputs; ++i) {
        const float* row = values.data() + i / inputs * inputs;
        const float step = LargestOfGroup(row, inputs, i % inputs) / 127;
        // The scale is the next f16.
        ASSERT_NEAR(stored[i], values[i], 0.501 * step)
            << i << " of " << outputs << " x " << inputs;
      }
    }
  }
}

// The squared error of each group of 32 is at most that of the rule "the largest value is 8 steps",
// but for the rounding of the scale; that of all groups is well below it.
TEST_P(QuantisedMatMulTest, Int4WeightsHaveLessErrorThanWithTheLargestValueAsScale) {
  for (const int64_t outputs : {16, 37}) {
    for (const int64_t inputs : {32, 200, 256}) {
      const std::vector<float> values = GroupedFloats(outputs, inputs, outputs + inputs);
      const std::vector<float> stored = Stored(*PackAs(DType::kQ4_0, values, outputs));
      double squares = 0, error = 0, simple_error = 0;
      for (int64_t row = 0; row < outputs; ++row) {
        for (int64_t begin = 0; begin < inputs; begin += kGroup) {
          const int64_t count = std::min(kGroup, inputs - begin);
          const float* value = values.data() + row * inputs + begin;
          const float* kept = stored.data() + row * inputs + begin;
          const float largest = *std::max_element(
              value, value + count, [](float a, float b) { return std::abs(a) < std::abs(b); });
          const double step = largest / -8.0;
          double of_group = 0, simple = 0, group_squares = 0;
          for (int64_t k = 0; k < count; ++k) {
            const double q = std::clamp(std::round(value[k] / step), -8.0, 7.0);
            simple += std::pow(value[k] - q * step, 2);
            of_group += std::pow(double{value[k]} - kept[k], 2);
            group_squares += std::pow(value[k], 2);
          }
          ASSERT_LE(of_group, 1.02 * simple + 1e-5 * group_squares) << row << ", " << begin;
          squares += group_squares / (step * step);
          error += of_group / (step * step);
          simple_error += simple / (step * step);
        }
      }
      EXPECT_LT(error, 0.95 * simple_error) << outputs << " x " << inputs;
      EXPECT_LT(error, 0.01 * squares);
    }
  }
}

// The input is rounded to steps of its groups, at most half a step each; the rest is rounding of f32.
TEST_P(QuantisedMatMulTest, IsTheProductOfTheStoredWeights) {
  for (const auto& [dtype, outputs] : Of<int64_t>({1, 15, 17, 131})) {
    for (const int64_t inputs : {1, 31, 33, 63, 64, 65, 300}) {
      const std::vector<float> bias = RandomFloats(outputs, 3);
      const auto weight = PackAs(dtype, GroupedFloats(outputs, inputs, outputs), outputs, bias);
      const std::vector<float> w = Stored(*weight);
      for (int64_t rows = 1; rows <= 40; rows += rows < 14 ? 1 : 13) {
        std::vector<float> x = GroupedFloats(rows, inputs, rows), y(rows * outputs, NAN), step;
        for (int64_t i = 0; i < rows * inputs; ++i)
          step.push_back(LargestOfGroup(x.data() + i / inputs * inputs, inputs, i % inputs) / 127);
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
            steps += step[i / outputs * inputs + k] * std::abs(weight_k);
          }
          ASSERT_NEAR(y[i], sum, 0.501 * steps + 1e-5 * size)
              << i << " of " << rows << " rows, " << outputs << " x " << inputs << " "
              << DTypeName(dtype);
        }
      }
    }
  }
}

// Whole numbers of which each group has the most negative one, `least`.
std::vector<float> WholeSteps(int64_t count, int64_t group, int least, uint32_t seed) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    const int step = static_cast<int>((seed >> 8) % static_cast<uint32_t>(-2 * least)) + least;
    values[i] = static_cast<float>(i % group == 0 ? least : step);
  }
  return values;
}

// Values that are whole steps lose nothing, so only f32 rounding is left.
TEST_P(QuantisedMatMulTest, IsExactForWholeSteps) {
  constexpr int64_t kOutputs = 33, kInputs = 192, kRows = 9;
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_0}) {
    const int least = dtype == DType::kQ8_0 ? -127 : -8;
    const std::vector<float> w = WholeSteps(kOutputs * kInputs, kGroup, least, 1);
    std::vector<float> x = WholeSteps(kRows * kInputs, kGroup, -127, 2), y(kRows * kOutputs);
    const auto weight = PackAs(dtype, w, kOutputs);
    EXPECT_EQ(Stored(*weight), w) << DTypeName(dtype);
    RunOps(team_.get(), PlanOfRows(kRows), [&](Ops* ops) {
      ops->MatMul(*weight, TensorOf(&x, kInputs), TensorOf(&y, kOutputs), false);
    });
    for (int64_t i = 0; i < kRows * kOutputs; ++i) {
      int64_t sum = 0;
      for (int64_t k = 0; k < kInputs; ++k) {
        sum += static_cast<int64_t>(x[i / kOutputs * kInputs + k]) *
               static_cast<int64_t>(w[i % kOutputs * kInputs + k]);
      }
      EXPECT_EQ(y[i], static_cast<float>(sum)) << i << " " << DTypeName(dtype);
    }
  }
}

// Where AVX2 is the only one, there is nothing to compare.
TEST_P(QuantisedMatMulTest, VectorTargetsGiveTheSameBits) {
  constexpr int64_t kOutputs = 100, kInputs = 333;
  for (const auto& [dtype, rows] : Of<int64_t>({1, 7})) {
    const auto weight = PackAs(dtype, GroupedFloats(kOutputs, kInputs, 1), kOutputs);
    std::vector<float> x = GroupedFloats(rows, kInputs, 2), y(rows * kOutputs), first;
    for (const cpu::KernelTarget target : cpu::SupportedKernelTargets()) {
      cpu::SetKernelTarget(target);
      RunOps(single_.get(), PlanOfRows(rows), [&](Ops* ops) {
        ops->MatMul(*weight, TensorOf(&x, kInputs), TensorOf(&y, kOutputs), false);
      });
      if (target == cpu::KernelTarget::kScalar) continue;  // has no fused multiply-add
      if (first.empty()) first = y;
      EXPECT_EQ(std::memcmp(first.data(), y.data(), y.size() * sizeof(float)), 0)
          << cpu::KernelTargetName(target) << " " << DTypeName(dtype);
    }
  }
}

// Tiles of few rows and of many have loops of different forms.
TEST_P(QuantisedMatMulTest, BitsOfARowDoNotDependOnItsTile) {
  constexpr int64_t kOutputs = 40, kInputs = 200, kMost = 25;
  const std::vector<float> inputs = GroupedFloats(kMost, kInputs, 3);
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_0}) {
    const auto weight = PackAs(dtype, GroupedFloats(kOutputs, kInputs, 1), kOutputs);
    const auto product = [&](int64_t first, int64_t rows) {
      std::vector<float> x(inputs.begin() + first * kInputs,
                           inputs.begin() + (first + rows) * kInputs);
      std::vector<float> y(rows * kOutputs);
      RunOps(single_.get(), PlanOfRows(rows), [&](Ops* ops) {
        ops->MatMul(*weight, TensorOf(&x, kInputs), TensorOf(&y, kOutputs), false);
      });
      return y;
    };
    std::vector<float> alone;
    for (int64_t row = 0; row < kMost; ++row) {
      const std::vector<float> y = product(row, 1);
      alone.insert(alone.end(), y.begin(), y.end());
    }
    for (int64_t rows = 2; rows <= kMost; ++rows) {
      const std::vector<float> y = product(0, rows);
      EXPECT_EQ(std::memcmp(y.data(), alone.data(), y.size() * sizeof(float)), 0)
          << rows << " rows " << DTypeName(dtype);
    }
  }
}

// Inputs and int4 weights of the largest steps, so that the sums of a group are as large as they can
// be: 7 steps but for one of -8 in each group.
TEST_P(QuantisedMatMulTest, TheLargestSumsDoNotOverflow) {
  constexpr int64_t kOutputs = 17, kInputs = 192, kRows = 5;
  constexpr float kSum = kInputs / 32 * (31 * 7 - 8);
  for (const auto& [dtype, sign] : Of<float>({-1.0f, 1.0f})) {
    std::vector<float> w(kOutputs * kInputs, 7.0f), x(kRows * kInputs, sign), y(kRows * kOutputs);
    for (size_t i = 0; i < w.size(); i += 32) w[i] = -8;
    const auto weight = PackAs(dtype, w, kOutputs);
    RunOps(single_.get(), PlanOfRows(kRows), [&](Ops* ops) {
      ops->MatMul(*weight, TensorOf(&x, kInputs), TensorOf(&y, kOutputs), false);
    });
    for (const float value : y) EXPECT_NEAR(value, sign * kSum, 0.002 * kSum) << DTypeName(dtype);
  }
}

TEST_P(QuantisedMatMulTest, WhatIsNotFiniteStaysSo) {
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_0}) {
    std::vector<float> w = GroupedFloats(16, 128, 1), x(128, 1.0f), y(16);
    const auto product = [&] {
      const auto weight = PackAs(dtype, w, 16);
      RunOps(single_.get(), PlanOfRows(1),
             [&](Ops* ops) { ops->MatMul(*weight, TensorOf(&x, 128), TensorOf(&y, 16), false); });
    };
    x[100] = INFINITY;
    product();
    for (const float value : y) EXPECT_FALSE(std::isfinite(value));
    x[100] = 1;
    for (const float value : {INFINITY, -INFINITY, NAN}) {
      w[3 * 128 + 70] = value;
      product();
      for (int i = 0; i < 16; ++i) EXPECT_EQ(std::isfinite(y[i]), i != 3) << DTypeName(dtype);
    }
  }
}

// Scales are f16. Small weights are kept to within its smallest steps.
TEST_P(QuantisedMatMulTest, ScalesReachAsFarAsF16) {
  const std::vector<float> steps = WholeSteps(128, 32, -8, 3);
  const auto stored = [&](DType dtype, float unit) {
    std::vector<float> values;
    for (const float step : steps) values.push_back(step * unit);
    return Stored(*PackAs(dtype, values, 1));
  };
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_0}) {
    for (const float unit : {0.0f, 1e-44f, 1e-36f, 1e-7f, 1e-5f, 1e-3f, 6e4f}) {
      const std::vector<float> values = stored(dtype, unit);
      const double tolerance = 0.07 * unit + (dtype == DType::kQ8_0 ? 3e-8 : 3e-7);
      for (size_t k = 0; k < values.size(); ++k) {
        ASSERT_NEAR(values[k], steps[k] * unit, tolerance) << unit << " " << DTypeName(dtype);
      }
    }
    for (const float value : stored(dtype, 2e6f)) EXPECT_FALSE(std::isfinite(value));
  }
}

COPPICE_ON_ALL_TARGETS(QuantisedMatMulTest);

}  // namespace
}  // namespace coppice::kernels
