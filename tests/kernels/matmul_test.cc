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
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kQ8_0, DType::kQ4_0}) {
    const Problem problem = MakeProblem(1000, 301, dtype);
    constexpr int64_t kRows = 64;
    std::vector<float> x = RandomFloats(kRows * problem.inputs, 7);
    std::vector<float> alone(kRows * problem.outputs);
    for (int64_t r = 0; r < kRows; ++r)
      MatMul(single_.get(), problem, &x, r, 1, alone.data() + r * problem.outputs, false);
    for (int64_t rows = 1; rows <= kRows; rows += rows < 14 ? 1 : rows == 14 ? 26 : 24) {
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

// A product takes over the norm before it, of few rows or of many. Its bits are those of a norm that is
// computed first, and whatever else happens to its input or output comes after the norm.
TEST_P(MatMulTest, OfANormHasTheBitsOfTheNorm) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kQ8_0, DType::kQ4_0}) {
    constexpr int64_t kWidth = 304;
    const Problem problem = MakeProblem(kWidth, kWidth, dtype);
    const std::vector<float> gains = RandomFloats(kWidth, 11);
    for (const int64_t rows : {1, 2, 7, 107, 108, 150}) {
      for (Backend* backend : {single_.get(), team_.get()}) {
        const NormKind kind = rows % 2 == 0 ? NormKind::kLayer : NormKind::kRms;
        const auto gain = backend->PackGain(gains, gains).value();
        const std::vector<float> x = RandomFloats(rows * kWidth, rows);
        const auto run = [&](absl::FunctionRef<void(Ops*)> body) {
          RunOps(backend, PlanOfRows(rows), body);
        };
        const auto norm = [&](Ops* ops, std::vector<float>* of, std::vector<float>* out) {
          ops->AddNorm(TensorOf(of, kWidth), {}, {gain.get(), kind, 1e-5f}, TensorOf(out, kWidth));
        };
        const auto multiply = [&](Ops* ops, std::vector<float>* of, std::vector<float>* out) {
          ops->MatMul(*problem.packed, TensorOf(of, kWidth), TensorOf(out, kWidth), false);
        };
        std::vector<float> input = x, normed(x.size(), NAN), want(x.size(), NAN);
        run([&](Ops* ops) { norm(ops, &input, &normed); });
        run([&](Ops* ops) { multiply(ops, &normed, &want); });
        EXPECT_EQ(input, x);

        std::vector<float> between(x.size()), got(x.size(), NAN);
        run([&](Ops* ops) { norm(ops, &input, &between), multiply(ops, &between, &got); });
        EXPECT_EQ(got, want) << rows << " rows, " << DTypeName(dtype);
        run([&](Ops* ops) { norm(ops, &input, &between), multiply(ops, &between, &input); });
        EXPECT_EQ(input, want) << "into the input of the norm, " << rows << " rows";

        // The input changes between norm and product, and another norm comes between them.
        input = x;
        std::vector<float> other(x.size());
        run([&](Ops* ops) {
          norm(ops, &input, &between);
          norm(ops, &input, &other);
          multiply(ops, &other, &input);
          multiply(ops, &between, &got);
        });
        EXPECT_EQ(got, want) << "two norms, " << rows << " rows";
        EXPECT_EQ(input, want) << "two norms, " << rows << " rows";
      }
    }
  }
}

COPPICE_ON_ALL_TARGETS(MatMulTest);

}  // namespace
}  // namespace coppice::kernels
