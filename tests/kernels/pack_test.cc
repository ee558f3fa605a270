#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "kernels/element.h"
#include "tests/kernels/kernel_fixture.h"

namespace coppice::kernels {
namespace {

class PackTest : public KernelTest {
 protected:
  // Row `row` as the backend stores it.
  std::vector<float> ReadRow(const Weight& matrix, TokenId row) {
    std::vector<float> out(matrix.columns);
    StepPlan plan = PlanOfRows(1);
    plan.token = {row};
    RunOps(single_.get(), plan,
           [&](Ops* ops) { ops->Embed(matrix, 0, 1.0f, TensorOf(&out, matrix.columns)); });
    return out;
  }
};

// The value of an IEEE half from its fields.
double HalfValue(uint16_t half) {
  const int exponent = half >> 10 & 31, fraction = half & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return half & 0x8000 ? -magnitude : magnitude;
}

TEST_P(PackTest, EveryFiniteHalfIsExactInF32) {
  std::vector<uint16_t> halves;
  for (int bits = 0; bits < 0x10000; ++bits) {
    if ((bits & 0x7c00) != 0x7c00) halves.push_back(static_cast<uint16_t>(bits));
  }
  const int64_t columns = 128, rows = static_cast<int64_t>(halves.size()) / columns;
  const auto packed =
      PackOne(team_.get(), {halves.data(), DType::kF16, rows, columns, columns}, DType::kF32);
  for (int64_t row = 0; row < rows; ++row) {
    const std::vector<float> values = ReadRow(*packed, static_cast<TokenId>(row));
    for (int64_t k = 0; k < columns; ++k)
      ASSERT_EQ(values[k], HalfValue(halves[row * columns + k])) << row << " " << k;
  }
}

TEST_P(PackTest, RoundsToNearestEvenBf16) {
  // 1 + 2^-8 is halfway between 1 and 1 + 2^-7, so it rounds to even, down. 1 + 3 2^-8 rounds up.
  const std::vector<float> source = {1.0f + 0x1p-8f, 1.0f + 3 * 0x1p-8f, 1.0f + 0x1.1p-8f, -2.5f,
                                     0.0f};
  const auto packed = PackOne(single_.get(), {source.data(), DType::kF32, 1, 5, 5}, DType::kBF16);
  EXPECT_THAT(ReadRow(*packed, 0),
              testing::ElementsAre(1.0f, 1.0f + 0x1p-6f, 1.0f + 0x1p-7f, -2.5f, 0.0f));
}

TEST_P(PackTest, StacksStridedUnalignedSources) {
  const int64_t columns = 77, stride = 80;
  std::vector<uint8_t> bytes(50 * stride * 2 + 1);
  std::vector<uint16_t> values(50 * stride);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = FloatToBf16(static_cast<float>(i % 251) - 100.0f);
  std::memcpy(bytes.data() + 1, values.data(), values.size() * 2);
  const std::vector<MatrixSource> sources = {
      {bytes.data() + 1, DType::kBF16, 5, columns, stride},
      {bytes.data() + 1 + 5 * stride * 2, DType::kBF16, 45, columns, stride}};
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const auto packed = team_->Pack(sources, dtype, {}).value();
    EXPECT_EQ(packed->rows, 50);
    EXPECT_EQ(packed->columns, columns);
    EXPECT_EQ(packed->dtype, dtype);
    for (int64_t row = 0; row < 50; ++row) {
      const std::vector<float> got = ReadRow(*packed, static_cast<TokenId>(row));
      for (int64_t k = 0; k < columns; ++k)
        ASSERT_EQ(got[k], Bf16ToFloat(values[row * stride + k])) << row;
    }
  }
}

TEST_P(PackTest, HoldsThePaddedWeightsAndNoMore) {
  const std::vector<float> values(1000 * 100);
  const MatrixSource source = {values.data(), DType::kF32, 1000, 100, 100};
  EXPECT_EQ(PackOne(single_.get(), source, DType::kBF16)->bytes, 1008u * 100 * 2);
  EXPECT_EQ(PackOne(single_.get(), source, DType::kF32)->bytes, 1008u * 100 * 4);
  EXPECT_EQ(PackOne(single_.get(), source, DType::kQ8_0)->bytes, 1008u * 4 * 34);
  EXPECT_EQ(PackOne(single_.get(), source, DType::kQ4_0)->bytes, 1008u * 4 * 18);
  const std::vector<float> bias(1000);
  EXPECT_EQ(single_->Pack({source}, DType::kF32, bias).value()->bytes, 1008u * 100 * 4 + 1000 * 4);
  EXPECT_EQ(single_->PackGain(bias).value()->bytes, 1000u * 4);
}

TEST_P(PackTest, RefusesWhatDoesNotFitTogether) {
  const std::vector<float> source(100);
  const MatrixSource good = {source.data(), DType::kF32, 10, 10, 10};
  const MatrixSource narrow = {source.data(), DType::kF32, 10, 9, 10};
  EXPECT_EQ(single_->Pack({good}, DType::kF16, {}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(single_->Pack({}, DType::kF32, {}).status().code(), absl::StatusCode::kInvalidArgument);
  const auto biased = single_->Pack({good, good}, DType::kF32, std::vector<float>(10));
  EXPECT_EQ(biased.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(biased.status().message()),
              testing::HasSubstr("a bias of 10 values for 20 rows"));
  const auto mixed = single_->Pack({good, narrow}, DType::kF32, {});
  EXPECT_EQ(mixed.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(mixed.status().message()),
              testing::HasSubstr("columns 10 F32 and 9 F32"));
}

TEST_P(PackTest, EmbeddingOfAbsentTokensIsZero) {
  std::vector<float> source(20 * 3);
  std::iota(source.begin(), source.end(), 1.0f);
  const auto packed = PackOne(single_.get(), {source.data(), DType::kF32, 20, 3, 3}, DType::kF32);
  std::vector<float> out(5 * 3, NAN);
  StepPlan plan = PlanOfRows(5);
  plan.token = {99, 100, 119, 120, 118};
  RunOps(single_.get(), plan,
         [&](Ops* ops) { ops->Embed(*packed, /*first_row=*/100, 1.0f, TensorOf(&out, 3)); });
  EXPECT_THAT(out, testing::ElementsAre(0, 0, 0, 1, 2, 3, 58, 59, 60, 0, 0, 0, 55, 56, 57));
}

// Nothing behind the rows is read, however far behind them the token is: of a large vocabulary most
// tokens are other ranks'.
TEST_P(PackTest, EmbeddingOfATokenFarBehindTheRowsIsZero) {
  const int64_t rows = 32, columns = 4096;  // whole panels: no padding behind the rows
  const std::vector<float> source(rows * columns, 1.0f);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const auto packed =
        PackOne(single_.get(), {source.data(), DType::kF32, rows, columns, columns}, dtype);
    const std::vector<TokenId> behind = {32, 48, 1 << 20, std::numeric_limits<TokenId>::max()};
    std::vector<float> out(behind.size() * columns, NAN);
    StepPlan plan = PlanOfRows(static_cast<int64_t>(behind.size()));
    plan.token = behind;
    RunOps(single_.get(), plan,
           [&](Ops* ops) { ops->Embed(*packed, 0, 1.0f, TensorOf(&out, columns)); });
    EXPECT_THAT(out, testing::Each(0.0f));
  }
}

COPPICE_ON_ALL_TARGETS(PackTest);

}  // namespace
}  // namespace coppice::kernels
