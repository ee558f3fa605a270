// Products and embeddings of weights in the block formats of GGUF.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/int8.h"
#include "kernels/cpu/packed_matrix.h"
#include "tests/kernels/block_samples.h"
#include "tests/kernels/kernel_fixture.h"

namespace coppice::kernels {
namespace {

using testing::HasSubstr;

constexpr int64_t kGroup = 32;  // inputs that share a scale

// Inputs whose magnitudes differ by powers of four between groups.
std::vector<float> GroupedInputs(int64_t rows, int64_t columns, uint64_t seed) {
  std::vector<float> values = RandomFloats(rows * columns, seed);
  for (int64_t i = 0; i < rows * columns; ++i) {
    const int64_t group = i % columns / kGroup + i / columns;
    values[i] = std::ldexp(values[i], static_cast<int>(group * 7 % 5) * 2 - 4);
  }
  return values;
}

// Half a step of the input's group.
float HalfStep(const float* row, int64_t columns, int64_t k) {
  float largest = 0;
  for (int64_t i = k / kGroup * kGroup; i < std::min(columns, (k / kGroup + 1) * kGroup); ++i)
    largest = std::max(largest, std::abs(row[i]));
  return 0.501f * largest / 127;
}

class BlockMatMulTest : public KernelTest {
 protected:
  static std::vector<float> Multiply(Backend* backend, const Weight& weight, std::vector<float> x) {
    const auto rows = static_cast<int64_t>(x.size()) / weight.columns;
    std::vector<float> y(rows * weight.rows, NAN);
    RunOps(backend, PlanOfRows(rows), [&](Ops* ops) {
      ops->MatMul(weight, TensorOf(&x, weight.columns), TensorOf(&y, weight.rows), false);
    });
    return y;
  }

  // Each output is the product with the decoded weights, w [outputs, inputs], but for half a step of
  // each input and the rounding of sums of f32.
  static void ExpectProduct(const std::vector<float>& y, const std::vector<float>& x,
                            const std::vector<float>& w, const std::vector<float>& bias,
                            const std::string& what) {
    const auto outputs = static_cast<int64_t>(bias.size());
    const int64_t inputs = static_cast<int64_t>(w.size()) / outputs;
    const auto rows = static_cast<int64_t>(y.size()) / outputs;
    for (int64_t row = 0; row < rows; ++row) {
      std::vector<double> half_step(inputs);
      for (int64_t k = 0; k < inputs; ++k) half_step[k] = HalfStep(&x[row * inputs], inputs, k);
      for (int64_t output = 0; output < outputs; ++output) {
        double sum = bias[output], error = 0, size = std::abs(sum);
        for (int64_t k = 0; k < inputs; ++k) {
          const double weight = w[output * inputs + k], input = x[row * inputs + k];
          sum += input * weight;
          size += std::abs(input * weight);
          error += half_step[k] * std::abs(weight);
        }
        ASSERT_NEAR(y[row * outputs + output], sum, error + 1e-5 * size + 1e-12)
            << what << ", row " << row << ", output " << output;
      }
    }
  }

  std::vector<float> Embedded(const Weight& weight) {
    std::vector<float> values(weight.rows * weight.columns, NAN);
    StepPlan plan = PlanOfRows(weight.rows);
    for (int64_t row = 0; row < weight.rows; ++row) plan.token[row] = static_cast<TokenId>(row);
    RunOps(single_.get(), plan,
           [&](Ops* ops) { ops->Embed(weight, 0, 1.0f, TensorOf(&values, weight.columns)); });
    return values;
  }
};

// 576 and 96 inputs: the last block of 64 is whole, or half.
std::vector<int64_t> InputsFor(DType dtype) {
  if (FormatOf(dtype).values == 256) return {256, 768};
  return {32, 96, 256, 576};
}

TEST_P(BlockMatMulTest, EmbeddingsAreTheValuesOfTheBlocks) {
  for (const DType dtype : AllBlockTypes()) {
    for (const int64_t outputs : {1, 16, 37}) {
      for (const int64_t inputs : InputsFor(dtype)) {
        const BlockMatrix matrix(dtype, outputs, inputs, outputs + inputs);
        const auto weight = PackOne(team_.get(), matrix.source(), dtype);
        EXPECT_EQ(weight->dtype, dtype);
        EXPECT_EQ(Embedded(*weight), matrix.Values())
            << outputs << " x " << inputs << " " << DTypeName(dtype);
      }
    }
  }
}

TEST_P(BlockMatMulTest, IsTheProductOfTheDecodedWeights) {
  for (const DType dtype : AllBlockTypes()) {
    for (const int64_t outputs : {1, 17, 131}) {
      for (const int64_t inputs : InputsFor(dtype)) {
        const BlockMatrix matrix(dtype, outputs, inputs, outputs + inputs);
        const std::vector<float> bias = RandomFloats(outputs, 3), w = matrix.Values();
        const auto weight = single_->Pack({matrix.source()}, dtype, bias).value();
        for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 40}) {
          const std::vector<float> x = GroupedInputs(rows, inputs, rows);
          ExpectProduct(Multiply(single_.get(), *weight, x), x, w, bias,
                        absl::StrCat(DTypeName(dtype), " ", outputs, " x ", inputs));
        }
      }
    }
  }
}

// Inputs that are whole steps lose nothing, so the integer sums are seen as they are.
TEST_P(BlockMatMulTest, SumsOfWholeStepsAreExact) {
  constexpr int64_t kOutputs = 33, kInputs = 256, kRows = 9;
  for (const DType dtype : {DType::kQ4_0, DType::kQ5_0, DType::kQ8_0, DType::kIQ4_NL}) {
    BlockMatrix matrix(dtype, kOutputs, kInputs, 1);
    for (int64_t row = 0; row < kOutputs; ++row)
      for (int64_t block = 0; block < kInputs / 32; ++block) matrix.SetScale(row, block, 0x3c00);
    const std::vector<float> w = matrix.Values();
    std::vector<float> x(kRows * kInputs);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(i % 32 == 0 ? 127 : static_cast<int>(i * 7919 % 255) - 127);
    const std::vector<float> y =
        Multiply(team_.get(), *PackOne(single_.get(), matrix.source(), dtype), x);
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

// All bits of the codes are ones or zeros, all inputs the largest of either sign: no sum of 16 bits
// overflows.
TEST_P(BlockMatMulTest, TheLargestSumsDoNotOverflow) {
  constexpr int64_t kOutputs = 17, kInputs = 512;
  for (const DType dtype : AllBlockTypes()) {
    for (const uint8_t byte : {uint8_t{0xff}, uint8_t{0x00}, uint8_t{0x80}, uint8_t{0x7f}}) {
      BlockMatrix matrix(dtype, kOutputs, kInputs, 1);
      auto* const bytes = static_cast<uint8_t*>(const_cast<void*>(matrix.source().data));
      std::memset(bytes, byte, kOutputs * RowBytes(dtype, kInputs));
      for (int64_t row = 0; row < kOutputs; ++row) {
        for (int64_t block = 0; block < kInputs / FormatOf(dtype).values; ++block) {
          matrix.SetScale(row, block, 0x2e66);  // about 0.1
          if (HasMinimum(dtype)) matrix.SetMinimum(row, block, 0x3c00);
        }
      }
      const auto weight = PackOne(single_.get(), matrix.source(), dtype);
      for (const int64_t rows : {1, 5}) {
        for (const float sign : {1.0f, -1.0f}) {
          const std::vector<float> x(rows * kInputs, sign * 3);
          ExpectProduct(Multiply(single_.get(), *weight, x), x, matrix.Values(),
                        std::vector<float>(kOutputs), DTypeName(dtype));
        }
      }
    }
  }
}

// Of all targets, but the scalar one, which has no fused multiply-add.
TEST_P(BlockMatMulTest, VectorTargetsGiveTheSameBits) {
  constexpr int64_t kOutputs = 100, kInputs = 768;
  for (const DType dtype : AllBlockTypes()) {
    const BlockMatrix matrix(dtype, kOutputs, kInputs, 1);
    const auto weight = PackOne(single_.get(), matrix.source(), dtype);
    for (const int64_t rows : {1, 2, 7, 12}) {
      const std::vector<float> x = GroupedInputs(rows, kInputs, 2);
      std::vector<float> first;
      for (const cpu::KernelTarget target : cpu::SupportedKernelTargets()) {
        if (target == cpu::KernelTarget::kScalar) continue;
        cpu::SetKernelTarget(target);
        const std::vector<float> y = Multiply(single_.get(), *weight, x);
        if (first.empty()) first = y;
        EXPECT_EQ(std::memcmp(first.data(), y.data(), y.size() * sizeof(float)), 0)
            << cpu::KernelTargetName(target) << " " << DTypeName(dtype) << " " << rows << " rows";
      }
    }
  }
}

// Tiles of few rows and of many have loops of different forms; three threads share the panels.
TEST_P(BlockMatMulTest, BitsOfARowDependNeitherOnItsTileNorOnThreads) {
  constexpr int64_t kOutputs = 300, kInputs = 768, kMost = 25;
  const std::vector<float> inputs = GroupedInputs(kMost, kInputs, 3);
  for (const DType dtype : AllBlockTypes()) {
    const BlockMatrix matrix(dtype, kOutputs, kInputs, 1);
    const auto weight = PackOne(single_.get(), matrix.source(), dtype);
    std::vector<float> alone;
    for (int64_t row = 0; row < kMost; ++row) {
      const auto first = inputs.begin() + row * kInputs;
      const std::vector<float> y = Multiply(single_.get(), *weight, {first, first + kInputs});
      alone.insert(alone.end(), y.begin(), y.end());
    }
    for (int64_t rows = 2; rows <= kMost; ++rows) {
      for (Backend* backend : {single_.get(), team_.get()}) {
        const std::vector<float> y =
            Multiply(backend, *weight, {inputs.begin(), inputs.begin() + rows * kInputs});
        ASSERT_EQ(std::memcmp(y.data(), alone.data(), y.size() * sizeof(float)), 0)
            << rows << " rows " << DTypeName(dtype);
      }
    }
  }
}

// A stack as of q, k and v: parts begin at any row, and each has its own outputs, bias and type.
TEST_P(BlockMatMulTest, StacksOfSeveralTypesAreTheProductsOfTheirParts) {
  constexpr int64_t kInputs = 512;
  const std::vector<float> plain = RandomFloats(9 * kInputs, 8);
  const BlockMatrix q(DType::kQ4_K, 70, kInputs, 1), k(DType::kQ4_K, 21, kInputs, 2),
      v(DType::kQ6_K, 21, kInputs, 3), more(DType::kQ8_0, 5, kInputs, 4);
  const MatrixSource floats = {plain.data(), DType::kF32, 9, kInputs, kInputs};
  const MatrixSource sources[] = {q.source(),    k.source(), v.source(), floats,
                                  more.source(), floats,     q.source()};
  const DType types[] = {DType::kQ4_K, DType::kQ4_K, DType::kQ6_K, DType::kF32,
                         DType::kQ8_0, DType::kBF16, DType::kQ4_K};
  std::vector<std::vector<float>> want_rows;
  int64_t outputs = 0;
  size_t bytes = 0;
  std::vector<std::unique_ptr<Weight>> apart;
  for (size_t i = 0; i < std::size(sources); ++i) {
    outputs += sources[i].rows;
    apart.push_back(PackOne(single_.get(), sources[i], types[i]));
  }
  bytes = cpu::PackedBytes(DType::kQ4_K, 91, kInputs);  // one run
  for (size_t i = 2; i < apart.size(); ++i) bytes += apart[i]->bytes;
  const std::vector<float> bias = RandomFloats(outputs, 5);
  for (Backend* backend : {single_.get(), team_.get()}) {
    const auto stack = backend->PackEach(sources, types, bias);
    ASSERT_TRUE(stack.ok()) << stack.status();
    EXPECT_EQ((*stack)->rows, outputs);
    EXPECT_EQ((*stack)->dtype, DType::kQ4_K);
    EXPECT_EQ((*stack)->bytes, bytes + outputs * sizeof(float));
    const std::vector<float> all = Embedded(**stack);
    for (const int64_t rows : {1, 6, 30}) {
      const std::vector<float> x = GroupedInputs(rows, kInputs, rows);
      const std::vector<float> y = Multiply(backend, **stack, x);
      int64_t begin = 0;
      for (const auto& part : apart) {
        const std::vector<float> values = Embedded(*part);
        EXPECT_TRUE(std::equal(values.begin(), values.end(), all.begin() + begin * kInputs));
        const std::vector<float> of_part = Multiply(single_.get(), *part, x);
        for (int64_t row = 0; row < rows; ++row) {
          for (int64_t output = 0; output < part->rows; ++output) {
            ASSERT_EQ(y[row * outputs + begin + output],
                      of_part[row * part->rows + output] + bias[begin + output])
                << DTypeName(part->dtype) << " output " << output << ", row " << row;
          }
        }
        begin += part->rows;
      }
    }
  }
}

// The norm before a product and the sum after it, as in a layer.
TEST_P(BlockMatMulTest, TakesOverTheNormAndAccumulates) {
  constexpr int64_t kOutputs = 40, kInputs = 256;
  const BlockMatrix q(DType::kQ5_K, 24, kInputs, 1), v(DType::kQ6_K, 16, kInputs, 2);
  const MatrixSource sources[] = {q.source(), v.source()};
  const DType types[] = {DType::kQ5_K, DType::kQ6_K};
  const auto stack = team_->PackEach(sources, types, {}).value();
  const auto gain = team_->PackGain(RandomFloats(kInputs, 3)).value();
  for (const int64_t rows : {1, 4, 150}) {
    std::vector<float> x = RandomFloats(rows * kInputs, 4), normed(rows * kInputs), other = normed;
    std::vector<float> y = RandomFloats(rows * kOutputs, 5), joined = y;
    RunOps(team_.get(), PlanOfRows(rows), [&](Ops* ops) {
      ops->AddNorm(TensorOf(&x, kInputs), {}, {gain.get(), NormKind::kRms, 1e-5f},
                   TensorOf(&normed, kInputs));
      ops->MatMul(*stack, TensorOf(&normed, kInputs), TensorOf(&joined, kOutputs), true);
    });
    RunOps(single_.get(), PlanOfRows(rows), [&](Ops* ops) {
      ops->AddNorm(TensorOf(&x, kInputs), {}, {gain.get(), NormKind::kRms, 1e-5f},
                   TensorOf(&other, kInputs));
    });
    const std::vector<float> product = Multiply(single_.get(), *stack, other);
    for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(joined[i], y[i] + product[i]) << rows;
  }
}

TEST_P(BlockMatMulTest, HoldsHardlyMoreThanTheFile) {
  for (const DType dtype : AllBlockTypes()) {
    const BlockMatrix matrix(dtype, 64, 1024, 1);
    const auto file = static_cast<double>(64 * RowBytes(dtype, 1024));
    const size_t packed = PackOne(single_.get(), matrix.source(), dtype)->bytes;
    EXPECT_EQ(packed, cpu::PackedBytes(dtype, 64, 1024));
    EXPECT_GE(static_cast<double>(packed), file);
    EXPECT_LE(static_cast<double>(packed), 1.03 * file) << DTypeName(dtype);
  }
}

TEST_P(BlockMatMulTest, BlocksBecomeOtherTypes) {
  for (const DType dtype : AllBlockTypes()) {
    const BlockMatrix matrix(dtype, 37, 512, 1), other(DType::kQ8_0, 5, 512, 2);
    const std::vector<float> values = matrix.Values();
    const MatrixSource floats = {values.data(), DType::kF32, 37, 512, 512};
    for (const DType to : {DType::kF32, DType::kBF16, DType::kQ8_0, DType::kQ4_0}) {
      if (to == dtype) continue;  // the blocks are kept
      EXPECT_EQ(Embedded(*PackOne(team_.get(), matrix.source(), to)),
                Embedded(*PackOne(team_.get(), floats, to)))
          << DTypeName(dtype) << " as " << DTypeName(to);
    }
    std::vector<float> both = values;
    for (const float value : other.Values()) both.push_back(value);
    EXPECT_EQ(Embedded(*team_->Pack({matrix.source(), other.source()}, DType::kF32, {}).value()),
              both);
  }
}

TEST_P(BlockMatMulTest, RefusesWhatCannotBeKept) {
  BlockMatrix matrix(DType::kQ4_K, 9, 1024, 1);
  const BlockMatrix other(DType::kQ6_K, 9, 1024, 2);
  const auto message = [&](absl::Span<const MatrixSource> sources, absl::Span<const DType> types) {
    const absl::Status status = team_->PackEach(sources, types, {}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(message({matrix.source()}, {DType::kQ6_K}), HasSubstr("Q6_K from Q4_K"));
  EXPECT_THAT(message({matrix.source(), other.source()}, {DType::kQ4_K}),
              HasSubstr("1 types for 2 sources"));
  EXPECT_THAT(message({matrix.source()}, {DType::kF16}), HasSubstr("not as F16"));
  MatrixSource cut = matrix.source();
  cut.columns = 1000;
  EXPECT_THAT(
      message({cut}, {DType::kQ4_K}),
      HasSubstr("columns 1000, row stride 1024, expected multiples of 256, a block of Q4_K"));
  matrix.SetScale(7, 1, 0x7c00);
  matrix.SetMinimum(5, 3, 0xfe00);
  for (const DType dtype : {DType::kQ4_K, DType::kBF16}) {
    EXPECT_EQ(message({matrix.source()}, {dtype}), "pack: row 5, block 3: scale is not finite");
    EXPECT_EQ(message({other.source(), matrix.source()}, {DType::kQ6_K, dtype}),
              "pack: matrix 2 of 2, row 5, block 3: scale is not finite");
  }
}

TEST_P(BlockMatMulTest, InputsThatAreNotFiniteStaySo) {
  for (const DType dtype : AllBlockTypes()) {
    const BlockMatrix matrix(dtype, 16, 512, 1);
    const auto weight = PackOne(single_.get(), matrix.source(), dtype);
    for (const float value : {INFINITY, -INFINITY, NAN}) {
      std::vector<float> x(2 * 512, 1.0f);
      x[300] = value;
      const std::vector<float> y = Multiply(single_.get(), *weight, x);
      for (int i = 0; i < 32; ++i) EXPECT_EQ(std::isfinite(y[i]), i >= 16) << DTypeName(dtype);
    }
  }
}

COPPICE_ON_ALL_TARGETS(BlockMatMulTest);

}  // namespace
}  // namespace coppice::kernels
