// Weights in blocks on the CUDA backend: the values are those that the CPU backend has, rounded to the
// type of the activations; what cannot be kept is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "absl/strings/str_cat.h"
#include "kernels/block_format.h"
#include "tests/kernels/block_samples.h"
#include "tests/kernels/cuda/test_backend.h"
#include "tests/kernels/kernel_fixture.h"

namespace coppice::kernels {
namespace {

using testing::HasSubstr;

constexpr DType kFormats[] = {DType::kQ8_0, DType::kQ4_0};

// Rows [0, 8) of a weight, by way of the embedding.
std::vector<float> RowsOf(TestBackend* backend, const Weight& w) {
  const Tensor x = backend->Poisoned(8, w.columns, DType::kF32);
  StepPlan plan = PlanOfRows(8);
  std::iota(plan.token.begin(), plan.token.end(), 0);
  for (int i = 0; i < 8; ++i) plan.token[i] = static_cast<TokenId>((w.rows - 1) * i / 7);
  RunOps(backend->get(), plan, [&](Ops* ops) { ops->Embed(w, 0, 1.0f, x); });
  return backend->Read(x);
}

class CudaBlocksTest : public testing::Test {
 protected:
  std::unique_ptr<Weight> Pack(TestBackend* backend, absl::Span<const MatrixSource> stack,
                               DType dtype, std::vector<float> bias = {}) {
    auto packed = (*backend)->Pack(stack, dtype, std::move(bias));
    EXPECT_TRUE(packed.ok()) << packed.status();
    return *std::move(packed);
  }

  std::unique_ptr<TestBackend> cpu_ = TestBackend::Make("cpu");
  std::unique_ptr<TestBackend> cuda_ = TestBackend::Make("cuda");
};

TEST_F(CudaBlocksTest, BlocksOfAFileKeepTheirValues) {
  for (const DType activations : {DType::kBF16, DType::kF16}) {
    const auto cuda = TestBackend::Make("cuda");
    (*cuda)->SetActivations(activations);
    for (const DType format : kFormats) {
      const BlockMatrix one(format, 37, 96, 1), other(format, 35, 96, 2);
      const MatrixSource stack[] = {one.source(), other.source()};
      const auto kept = Pack(cuda.get(), stack, format);
      EXPECT_EQ((*cuda)->activation_dtype(), activations);
      EXPECT_EQ(kept->dtype, format);
      const auto want = Rounded(RowsOf(cpu_.get(), *Pack(cpu_.get(), stack, format)), activations);
      EXPECT_EQ(RowsOf(cuda.get(), *kept), want) << DTypeName(format);
    }
  }
}

// Columns that fill no block; the scales and codes are chosen as on the CPU.
TEST_F(CudaBlocksTest, QuantisesAsTheCpuDoes) {
  const std::vector<float> values = RandomFloats(40 * 200, 3);
  for (const DType format : kFormats) {
    for (const int64_t columns : {200, 160, 8}) {
      const MatrixSource source = {values.data(), DType::kF32, 40, columns, 200};
      const auto want = RowsOf(cpu_.get(), *Pack(cpu_.get(), {source}, format));
      const auto quantised = Pack(cuda_.get(), {source}, format);
      EXPECT_EQ(RowsOf(cuda_.get(), *quantised), Rounded(want, DType::kBF16));
    }
  }
}

TEST_F(CudaBlocksTest, TakesLittleMoreThanTheBitsOfTheCodes) {
  const std::vector<float> values(256 * 512, 0.5f);
  const MatrixSource source = {values.data(), DType::kF32, 256, 512, 512};
  EXPECT_EQ(Pack(cuda_.get(), {source}, DType::kQ8_0)->bytes, 256u * 512 * 34 / 32);
  EXPECT_EQ(Pack(cuda_.get(), {source}, DType::kQ4_0)->bytes, 256u * 512 * 18 / 32);
}

TEST_F(CudaBlocksTest, AStackOfSeveralFormatsKeepsAllValues) {
  const BlockMatrix four(DType::kQ4_0, 21, 64, 1), eight(DType::kQ8_0, 19, 64, 2);
  const MatrixSource stack[] = {four.source(), eight.source()};
  std::vector<float> values = four.Values();
  for (const float value : eight.Values()) values.push_back(value);
  const MatrixSource all = {values.data(), DType::kF32, 40, 64, 64};
  const auto want = RowsOf(cuda_.get(), *Pack(cuda_.get(), {all}, DType::kBF16));
  const auto both = (*cuda_)->PackEach(stack, {DType::kQ4_0, DType::kQ8_0}, {});
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ((*both)->dtype, DType::kQ8_0);
  EXPECT_EQ(RowsOf(cuda_.get(), **both), want);
  for (const auto& types : std::vector<std::vector<DType>>{{DType::kQ4_0, DType::kBF16},
                                                           {DType::kBF16, DType::kQ8_0}}) {
    const auto mixed = (*cuda_)->PackEach(stack, types, {});
    ASSERT_TRUE(mixed.ok()) << mixed.status();
    EXPECT_EQ((*mixed)->dtype, DType::kBF16);
    EXPECT_EQ(RowsOf(cuda_.get(), **mixed), want);
  }
}

// Alone, with what may be joined, and with what may not.
TEST_F(CudaBlocksTest, ProductsAreThoseWithTheValues) {
  for (const DType format : kFormats) {
    for (const int64_t outputs : {40, 96}) {
      const BlockMatrix blocks(format, outputs, 96, outputs);
      const std::vector<float> values = blocks.Values();
      const MatrixSource dense = {values.data(), DType::kF32, outputs, 96, 96};
      const auto run = [&](const Weight& w, int rows, bool accumulate) {
        const Tensor x = cuda_->Put(RandomFloats(rows * 96, rows), 96, DType::kBF16);
        const Tensor y = cuda_->Put(RandomFloats(rows * outputs, 3), outputs,
                                    accumulate ? DType::kF32 : DType::kBF16);
        const Tensor gated = cuda_->Poisoned(rows, outputs / 2, DType::kBF16);
        RunOps(cuda_->get(), PlanOfRows(rows), [&](Ops* ops) {
          ops->MatMul(w, x, y, accumulate);
          if (!accumulate) ops->Activate(Activation::kSilu, y, gated);
        });
        return cuda_->Read(accumulate ? y : gated);
      };
      const std::vector<float> bias = RandomFloats(outputs, 7);
      const auto kept = Pack(cuda_.get(), {blocks.source()}, format, bias);
      const auto widened = Pack(cuda_.get(), {dense}, DType::kBF16, bias);
      for (const int rows : {1, 9, 64, 130}) {
        for (const bool accumulate : {false, true}) {
          EXPECT_LT(RelativeDistance(run(*kept, rows, accumulate), run(*widened, rows, accumulate)),
                    1e-2)  // cuBLASLt's is rounded before the bias is added
              << DTypeName(format) << ", " << rows << " rows, " << outputs << " outputs";
        }
      }
    }
  }
}

TEST_F(CudaBlocksTest, RefusesWhatItCannotKeep) {
  const std::vector<float> values(400, 1.0f);
  const MatrixSource narrow = {values.data(), DType::kF32, 4, 12, 12};
  const auto packed = (*cuda_)->Pack({narrow}, DType::kQ8_0, {});
  EXPECT_EQ(packed.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(packed.status().message(),
              HasSubstr("4 x 12 Q8_0: its columns are no multiple of 8"));

  BlockMatrix broken(DType::kQ4_0, 4, 64, 1);
  broken.SetScale(2, 1, 0x7c00);
  EXPECT_THAT((*cuda_)->Pack({broken.source()}, DType::kQ4_0, {}).status().message(),
              HasSubstr("row 2, block 1: scale is not finite"));

  const MatrixSource plain = {values.data(), DType::kF32, 4, 16, 16};
  const auto wide = TestBackend::Make("cuda");
  ASSERT_TRUE((*wide)->Pack({plain}, DType::kF32, {}).ok());
  EXPECT_THAT((*wide)->Pack({plain}, DType::kQ8_0, {}).status().message(),
              HasSubstr("Q8_0 after F32: blocks need BF16 or F16"));

  // 127 times the largest scale of f16 is beyond f16, not beyond bf16.
  BlockMatrix large(DType::kQ8_0, 4, 64, 1);
  large.SetScale(3, 0, 0x7bff);
  EXPECT_TRUE((*cuda_)->Pack({large.source()}, DType::kQ8_0, {}).ok());
  const auto half = TestBackend::Make("cuda");
  (*half)->SetActivations(DType::kF16);
  EXPECT_THAT((*half)->Pack({large.source()}, DType::kQ8_0, {}).status().message(),
              HasSubstr("4 x 64 Q8_0 from Q8_0: a value is beyond 65504"));
}

TEST_F(CudaBlocksTest, SaysWhereItServesThem) {
  EXPECT_TRUE((*cuda_)->serves_blocks(DType::kBF16, /*experts=*/false));
  EXPECT_TRUE((*cuda_)->serves_blocks(DType::kF16, /*experts=*/false));
  EXPECT_FALSE((*cuda_)->serves_blocks(DType::kF32, /*experts=*/false));
  EXPECT_FALSE((*cuda_)->serves_blocks(DType::kBF16, /*experts=*/true));
  EXPECT_TRUE((*cpu_)->serves_blocks(DType::kF32, /*experts=*/true));
}

}  // namespace
}  // namespace coppice::kernels
