// What cuBLASLt or the device refuses: another proposal, the row product, or no cluster instead.
#include <algorithm>
#include <filesystem>
#include <memory>

#include "kernels/cuda/products/matrix_products.h"
#include "kernels/cuda/products/product_timer.h"
#include "tests/kernels/cuda/product_tuner_fixture.h"

namespace coppice::kernels::cuda {
namespace {

using testing::HasSubstr;

TEST_F(ProductTunerTest, SplitsAreClustersUnlessTheDeviceRefusesThem) {
  Add(1, 64, 9 * 64, DType::kBF16);
  const MatMulArgs args = ArgsOf(pass_[0], 8);
  ProductChoice choice;
  choice.kind = ProductChoice::Kind::kSkinny;
  // The launches of clusters, of as many attempts.
  const auto enqueue = [&](int splits, int64_t attempts) {
    choice.splits = splits;
    const int64_t before = fake::CountWork().clustered, calls = fake::CountCallsOf("kernel launch");
    EXPECT_TRUE(products_->Enqueue(args, choice).ok());
    EXPECT_EQ(fake::CountCallsOf("kernel launch") - calls, attempts);
    EXPECT_TRUE(stream_.Synchronize("a test").ok());
    return fake::CountWork().clustered - before;
  };
  EXPECT_EQ(enqueue(8, 1), 0);  // the device is not said to have them
  products_ = MatrixProducts::Create(&stream_, /*exact=*/false, device_.has_clusters).value();
  EXPECT_EQ(enqueue(8, 1), 1);
  EXPECT_EQ(enqueue(1, 1), 0);
  EXPECT_EQ(enqueue(9, 1), 0);
  settings_.clusters = false;
  Configure();
  EXPECT_EQ(enqueue(8, 2), 0);
  EXPECT_EQ(enqueue(8, 1), 0);  // not tried again
}

TEST_F(ProductTunerTest, AlgorithmsThatDoNotSumInF32AreLeftOut) {
  Add(1, 24, 16, DType::kBF16);
  settings_.reductions = {CUBLASLT_REDUCTION_SCHEME_INPLACE, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE,
                          CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE};
  cost_ = [](const fake::FakeProduct& p) { return p.algorithm == 1 ? 20.0 : 10.0; };
  for (const bool ignores : {false, true}) {  // our own check
    settings_.ignores_reduction_mask = ignores;
    Configure();
    StartAnew();
    EXPECT_EQ(InAStep(0, 8).algorithm, 1) << "not tuned";
    std::filesystem::remove_all(folder_);
    Tune();
    EXPECT_EQ(InAStep(0, 8).algorithm, 1);
  }
}

TEST_F(ProductTunerTest, AProposalThatIsNotTakenAfterAllIsPassedOver) {
  Add(1, 24, 16, DType::kBF16, false, false, DType::kBF16);
  cost_ = [](const fake::FakeProduct& p) { return 10.0 + p.algorithm; };
  settings_.refused_algorithm = 0;
  for (const cublasStatus_t refusal : {CUBLAS_STATUS_INVALID_VALUE, CUBLAS_STATUS_EXECUTION_FAILED,
                                       CUBLAS_STATUS_ALLOC_FAILED, CUBLAS_STATUS_NOT_SUPPORTED}) {
    settings_.refusal = refusal;
    Configure();
    StartAnew();
    std::filesystem::remove_all(folder_);
    Tune();
    EXPECT_EQ(InAStep(0, 8).algorithm, 1) << refusal;
  }
  settings_.algorithms = 1;  // no other, and the skinny kernel does not take so many rows
  Configure();
  StartAnew();
  folder_ += "2";
  Tune();
  EXPECT_EQ(Kept().at(MatrixProducts::KeyOf(ArgsOf(pass_[0], 96))).kind,
            ProductChoice::Kind::kRows);
  const int64_t timings = TimingCalls();
  StartAnew();
  Tune();  // such a choice of the file is taken
  EXPECT_EQ(TimingCalls(), timings);
  EXPECT_EQ(InAStep(0, 96).algorithm, -1);
}

// ---- Steps go on where cuBLASLt does not take a product

TEST_F(ProductTunerTest, WhatTheLibraryRefusesInAStepGoesByTheRowProduct) {
  Add(1, 24, 16, DType::kBF16);
  auto timer = ProductTimer::Create(device_, &stream_);
  ASSERT_TRUE(timer.ok());
  for (const Tensor& tensor :
       {pass_[0].x, Tensor{const_cast<void*>(ArgsOf(pass_[0], 1).w), DType::kBF16, 24, 16}})
    ASSERT_TRUE(timer->FillInputs(tensor).ok());
  const auto values = [&](MatrixProducts* products) {
    const size_t bytes = kRows * 24 * 2;
    const PinnedBuffer host = PinnedBuffer::Allocate(bytes, "a test").value();
    EXPECT_TRUE(products->Enqueue(ArgsOf(pass_[0], kRows)).ok());
    EXPECT_TRUE(stream_.CopyToHost(host.data(), pass_[0].y.data, bytes, "a test").ok());
    EXPECT_TRUE(stream_.Synchronize("a test").ok());
    return std::vector<uint8_t>(host.data(), host.data() + bytes);
  };
  const auto exact = MatrixProducts::Create(&stream_, /*exact=*/true).value();
  const std::vector<uint8_t> want = values(exact.get());
  for (const bool tuned : {false, true}) {
    settings_.refuses_all = false;
    Configure();
    StartAnew();
    if (tuned) Tune();
    settings_.refuses_all = true;
    for (const cublasStatus_t refusal :
         {CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_INVALID_VALUE, CUBLAS_STATUS_ARCH_MISMATCH}) {
      settings_.refusal = refusal;
      Configure();
      EXPECT_EQ(values(products_.get()), want) << refusal;
    }
    // The choice stays, whatever the library would take later.
    settings_.refuses_all = false;
    Configure();
    EXPECT_EQ(InAStep(0, kRows).algorithm, -1);
  }
}

// A device that fails is no refusal.
TEST_F(ProductTunerTest, WhatFailsInAStepFailsTheStep) {
  Add(1, 24, 16, DType::kBF16);
  settings_.refuses_all = true;
  settings_.refusal = CUBLAS_STATUS_EXECUTION_FAILED;
  Configure();
  EXPECT_THAT(products_->Enqueue(ArgsOf(pass_[0], 8)).message(),
              HasSubstr("CUBLAS_STATUS_EXECUTION_FAILED"));
}

TEST_F(ProductTunerTest, TheNextProposalIsTakenInAStepThatIsNotTuned) {
  Add(1, 24, 16, DType::kBF16);
  settings_.refused_algorithm = 0;
  Configure();
  EXPECT_EQ(InAStep(0, 8).algorithm, 1);
}

// Rows of 30 bytes do not begin at multiples of 256, which is what the library counts on.
TEST_F(ProductTunerTest, OddRowsAreProposedForWithTheirAlignment) {
  Add(1, 23, 15, DType::kBF16);
  settings_.proposes_only_aligned = true;
  Configure();
  EXPECT_EQ(InAStep(0, 8).algorithm, 0) << "not tuned";
  cost_ = [](const fake::FakeProduct& p) { return p.algorithm == 2 ? 5.0 : 10.0; };
  Tune();
  EXPECT_EQ(InAStep(0, 8).algorithm, 2);
}

// How it sums is not known, so it may not be used; the others may.
TEST_F(ProductTunerTest, AProposalThatCannotBeReadIsPassedOver) {
  Add(1, 24, 16, DType::kBF16);
  settings_.unreadable_algorithm = 0;
  Configure();
  EXPECT_EQ(InAStep(0, 8).algorithm, 1) << "not tuned";
  Tune();
  EXPECT_EQ(InAStep(0, 8).algorithm, 1);
  settings_.algorithms = 1;
  Configure();
  StartAnew();
  EXPECT_THAT(products_->Enqueue(ArgsOf(pass_[0], 8)).message(),
              HasSubstr("cublasLtMatmulAlgoConfigGetAttribute: CUBLAS_STATUS_INVALID_VALUE"));
}

}  // namespace
}  // namespace coppice::kernels::cuda
