// The tuner over the simulated device, whose clock says what each algorithm costs.
#include "kernels/cuda/products/product_tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>

#include "kernels/cuda/ops/row_bucket.h"
#include "kernels/cuda/products/product_timer.h"
#include "kernels/cuda/products/tuning_lock.h"
#include "kernels/cuda/runtime/cuda_weights.h"
#include "kernels/cuda/simulator/fake/fake_device.h"
#include "tests/testing/temp_dir.h"

namespace coppice::kernels::cuda {
namespace {

using testing::HasSubstr;
constexpr int64_t kRows = 72, kRoom = 96;  // of the tensors, and what they have memory for

int64_t TimingCalls() { return fake::CountCallsOf("cudaEventElapsedTime"); }

class ProductTunerTest : public testing::Test {
 protected:
  ProductTunerTest() {
    settings_.protect = true;
    settings_.work_us = 1000;  // of the skinny kernel, too: it never wins
    settings_.product_us = [this](const fake::FakeProduct& product) {
      asked_.push_back(product);
      return cost_(product);
    };
    fake::Configure(settings_);
    products_ = MatrixProducts::Create(&stream_).value();
  }
  ~ProductTunerTest() override {
    products_.reset();
    EXPECT_THAT(fake::Violations(), testing::IsEmpty());
    fake::Configure({});
    fake::Recover();
  }

  void Configure() { fake::Configure(settings_); }

  // A product of the pass with `layers` weights.
  void Add(int layers, int64_t outputs, int64_t inputs, DType y_type, bool accumulate = false,
           bool bias = false, DType type = DType::kBF16) {
    const Tensor x = Make(inputs, type), y = Make(outputs, y_type);
    for (int layer = 0; layer < layers; ++layer) {
      auto w = std::make_unique<CudaWeight>();
      w->rows = outputs;
      w->columns = inputs;
      w->dtype = type;
      w->values = DeviceBuffer::Allocate(outputs * inputs * DTypeSize(type), "a test").value();
      if (bias) w->bias = DeviceBuffer::Allocate(outputs * sizeof(float), "a test").value();
      pass_.push_back({w.get(), x, y, accumulate});
      weights_.push_back(std::move(w));
    }
  }
  Tensor Make(int64_t columns, DType dtype) {
    buffers_.push_back(
        DeviceBuffer::Allocate(kRoom * columns * DTypeSize(dtype), "a test").value());
    return {buffers_.back().data(), dtype, kRows, columns};
  }

  std::vector<RowCost> Tune() {
    asked_.clear();
    const auto costs =
        TuneProducts({pass_, folder_, [this] { ++moves_; }}, device_, &stream_, products_.get());
    EXPECT_TRUE(costs.ok()) << costs.status();
    return costs.value_or(std::vector<RowCost>());
  }
  // As after a start of the process.
  void StartAnew() { products_ = MatrixProducts::Create(&stream_).value(); }
  std::string Path() const {
    return TuningFilePath(TuningFolder(folder_), {device_.name, device_.multiprocessors, 130100,
                                                  products_->workspace_bytes()});
  }
  ProductTable Kept() const {
    return ReadTuningFile(Path(), {device_.name, device_.multiprocessors, 130100,
                                   products_->workspace_bytes()})
        .value();
  }
  // The algorithm and the rows that a step takes.
  fake::FakeProduct InAStep(int product, int64_t rows) {
    asked_.clear();
    EXPECT_TRUE(products_->Enqueue(ArgsOf(pass_[product], rows)).ok());
    EXPECT_TRUE(stream_.Synchronize("a test").ok());
    return asked_.empty() ? fake::FakeProduct{-1, rows} : asked_.back();
  }

  test::TempDir dir_;
  std::string folder_ = dir_.path() + "/cache";
  fake::DeviceSettings settings_;
  std::function<double(const fake::FakeProduct&)> cost_ = [](const fake::FakeProduct&) {
    return 10.0;
  };
  std::vector<fake::FakeProduct> asked_;
  const DeviceFacts device_ = UseDevice().value();
  DeviceStream stream_ = DeviceStream::Create("a test").value();
  std::vector<std::unique_ptr<CudaWeight>> weights_;
  std::vector<DeviceBuffer> buffers_;
  std::vector<PassProduct> pass_;
  std::unique_ptr<MatrixProducts> products_;
  int moves_ = 0;
};

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

TEST_F(ProductTunerTest, TheFastestOfEachBucketIsTakenInSteps) {
  Add(3, 24, 16, DType::kBF16);
  Add(1, 40, 16, DType::kF32);
  cost_ = [](const fake::FakeProduct& p) {
    return p.algorithm == (p.rows / 8 + p.outputs / 8) % 3 ? 9.0 : 10.0;
  };
  Tune();
  EXPECT_EQ(moves_, 2 * 11);  // 1, 2, 4, 8, ... 64, 96
  for (const int64_t rows : RowBucketsUpTo(kRoom)) {
    EXPECT_EQ(InAStep(0, rows).algorithm, (rows / 8 + 3) % 3) << rows;
    EXPECT_EQ(InAStep(3, rows).algorithm, (rows / 8 + 5) % 3) << rows;
  }
}

TEST_F(ProductTunerTest, RowsArePaddedToTheBucketWhereThereIsRoom) {
  Add(1, 24, 16, DType::kBF16);
  Tune();
  for (int64_t rows = 1; rows <= kRoom; ++rows)
    EXPECT_EQ(InAStep(0, rows).rows, std::min(RowBucket(rows), kRoom)) << rows;
}

TEST_F(ProductTunerTest, TheSecondStartReadsTheFileAndMeasuresNothing) {
  Add(2, 24, 16, DType::kBF16);
  Add(1, 40, 24, DType::kF32, true, true);
  cost_ = [](const fake::FakeProduct& p) { return p.algorithm == 2 ? 7.0 + p.rows : 100.0; };
  const std::vector<RowCost> first = Tune();
  StartAnew();
  const int64_t timed = TimingCalls();
  cost_ = [](const fake::FakeProduct& p) { return p.algorithm == 1 ? 5.0 : 100.0; };
  const std::vector<RowCost> second = Tune();
  EXPECT_EQ(TimingCalls(), timed);
  EXPECT_TRUE(asked_.empty());
  ASSERT_EQ(second.size(), first.size());
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(second[i].rows, first[i].rows);
    EXPECT_NEAR(second[i].seconds, first[i].seconds, 1e-10);
  }
  EXPECT_EQ(InAStep(0, 9).algorithm, 2);
}

TEST_F(ProductTunerTest, AStepMeasuresNothingEvenWhereNothingIsTuned) {
  Add(1, 24, 16, DType::kBF16);
  const int64_t timed = TimingCalls();
  EXPECT_EQ(InAStep(0, 9).algorithm, 0);
  EXPECT_EQ(TimingCalls(), timed);
}

TEST_F(ProductTunerTest, CostsAreThoseOfAllProductsOfAPass) {
  Add(3, 24, 16, DType::kBF16);
  Add(2, 40, 16, DType::kBF16);
  cost_ = [](const fake::FakeProduct& p) { return p.rows + (p.outputs == 24 ? 10.0 : 50.0); };
  const std::vector<RowCost> costs = Tune();
  const std::vector<int64_t> buckets = RowBucketsUpTo(kRoom);
  ASSERT_EQ(costs.size(), buckets.size());
  for (size_t i = 0; i < costs.size(); ++i) {
    EXPECT_EQ(costs[i].rows, buckets[i]);
    EXPECT_NEAR(costs[i].seconds, (3 * (buckets[i] + 10) + 2 * (buckets[i] + 50)) * 1e-6, 1e-9);
  }
}

TEST_F(ProductTunerTest, TheSkinnyKernelWinsWhereItIsFasterAndOnlyWhereItCan) {
  settings_.work_us = 5;
  Configure();
  Add(1, 24, 16, DType::kBF16);
  Add(1, 24, 16, DType::kF32, false, false, DType::kF32);
  Add(1, 20, 16, DType::kF32);  // outputs that it does not take
  Tune();
  for (const int64_t rows : RowBucketsUpTo(kRoom)) {
    EXPECT_EQ(InAStep(0, rows).algorithm, rows <= 64 ? -1 : 0) << rows;
    EXPECT_EQ(InAStep(1, rows).algorithm, 0) << rows;
    EXPECT_EQ(InAStep(2, rows).algorithm, 0) << rows;
  }
}

// cuBLASLt's product and a kernel for the bias, against one skinny kernel that has both.
TEST_F(ProductTunerTest, TheBiasCountsInAProductsTime) {
  settings_.work_us = 30;
  Configure();
  cost_ = [](const fake::FakeProduct&) { return 25.0; };
  Add(1, 24, 16, DType::kBF16);
  Add(1, 24, 16, DType::kBF16, false, true);
  Tune();
  EXPECT_EQ(InAStep(0, 8).algorithm, 0);
  EXPECT_EQ(InAStep(1, 8).algorithm, -1);
  EXPECT_NE(InAStep(1, 72).algorithm, -1);
}

// As with a bias; and a product whose ups do not begin at 16 bytes is not gated by the skinny kernel.
TEST_F(ProductTunerTest, SwiGluCountsInAProductsTime) {
  settings_.work_us = 30;
  Configure();
  cost_ = [](const fake::FakeProduct&) { return 25.0; };
  for (const int64_t outputs : {48, 48, 40}) Add(1, outputs, 16, DType::kBF16);
  const Tensor gated = Make(24, DType::kBF16);
  pass_[1].gated = pass_[2].gated = gated;
  Tune();
  EXPECT_EQ(InAStep(0, 8).algorithm, 0);
  EXPECT_EQ(InAStep(1, 8).algorithm, -1);
  EXPECT_NE(InAStep(1, 72).algorithm, -1);
  EXPECT_NE(InAStep(2, 8).algorithm, -1);
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

TEST_F(ProductTunerTest, AnAlgorithmOfTheFileIsCheckedBeforeItIsUsed) {
  Add(1, 24, 16, DType::kBF16);
  Tune();
  const TuningPlace place = {device_.name, device_.multiprocessors, 130100,
                             products_->workspace_bytes()};
  ProductTable table = Kept();
  // In the algorithms of the simulated library: the rows that it serves, how it sums.
  const ProductKey small = MatrixProducts::KeyOf(ArgsOf(pass_[0], 8));
  const ProductKey large = MatrixProducts::KeyOf(ArgsOf(pass_[0], 72));
  table[small].algorithm[1] = 16;
  table[large].algorithm[5] |= uint64_t{CUBLASLT_REDUCTION_SCHEME_INPLACE} << 32;
  ASSERT_TRUE(WriteTuningFile(Path(), place, table).ok());
  StartAnew();
  cost_ = [](const fake::FakeProduct& p) { return p.algorithm == 1 ? 5.0 : 10.0; };
  Tune();
  EXPECT_EQ(InAStep(0, 8).algorithm, 1);
  EXPECT_EQ(InAStep(0, 72).algorithm, 1);
  EXPECT_EQ(InAStep(0, 16).algorithm, 0);  // as it was
}

TEST_F(ProductTunerTest, SplitsOfTheFileAreCheckedBeforeTheyAreUsed) {
  settings_.work_us = 5;
  Configure();
  Add(1, 24, 16, DType::kBF16);
  Tune();
  ProductTable table = Kept();
  for (auto& [key, choice] : table) {
    if (choice.kind == ProductChoice::Kind::kSkinny) choice.splits = 7;  // of one stage
  }
  ASSERT_TRUE(
      WriteTuningFile(Path(),
                      {device_.name, device_.multiprocessors, 130100, products_->workspace_bytes()},
                      table)
          .ok());
  StartAnew();
  Tune();
  for (const auto& [key, choice] : Kept()) EXPECT_LE(choice.splits, 1);
}

TEST_F(ProductTunerTest, ABrokenOrForeignFileIsMeasuredAnewAndReplaced) {
  Add(1, 24, 16, DType::kBF16);
  Tune();
  std::ostringstream whole;
  whole << std::ifstream(Path()).rdbuf();
  std::string foreign = whole.str();
  foreign.replace(foreign.find("device "), 7, "device another ");
  for (const std::string& text :
       {std::string(), std::string("text\n"), whole.str().substr(0, 300), foreign}) {
    std::ofstream(Path()) << text;
    StartAnew();
    const int64_t timed = TimingCalls();
    Tune();
    EXPECT_GT(TimingCalls(), timed);
    EXPECT_EQ(Kept().size(), 11u);
  }
}

TEST_F(ProductTunerTest, AFileThatCannotBeWrittenStopsNothing) {
  Add(1, 24, 16, DType::kBF16);
  cost_ = [](const fake::FakeProduct& p) { return p.algorithm == 2 ? 5.0 : 10.0; };
  std::ofstream(dir_.path() + "/file") << "text";
  folder_ = dir_.path() + "/file/below";
  EXPECT_FALSE(Tune().empty());
  EXPECT_EQ(InAStep(0, 8).algorithm, 2);
}

TEST_F(ProductTunerTest, ProductsOfOtherModelsStayInTheFile) {
  Add(1, 24, 16, DType::kBF16);
  Tune();
  const std::vector<PassProduct> one = std::exchange(pass_, {});
  Add(1, 40, 16, DType::kBF16);
  StartAnew();
  Tune();
  EXPECT_EQ(Kept().size(), 22u);
}

// Another process tunes the same: its results serve, once it has ended.
TEST_F(ProductTunerTest, WaitsForAnotherThatTunesAndTakesItsResults) {
  Add(1, 24, 16, DType::kBF16);
  cost_ = [](const fake::FakeProduct& p) { return p.algorithm == 2 ? 5.0 : 10.0; };
  Tune();
  const std::string others = Path() + ".others";
  std::filesystem::rename(Path(), others);
  StartAnew();
  std::optional<TuningLock> other = TuningLock::Wait(Path() + ".lock", 0, {});
  ASSERT_TRUE(other->held());
  EXPECT_FALSE(TuningLock::Wait(Path() + ".lock", 0, {}).held());
  const int64_t timed = TimingCalls();
  moves_ = 0;
  const auto other_ends = [&] {
    if (++moves_ != 3) return;
    std::filesystem::rename(others, Path());
    other.reset();
  };
  ASSERT_TRUE(TuneProducts({pass_, folder_, other_ends}, device_, &stream_, products_.get()).ok());
  EXPECT_GE(moves_, 3);
  EXPECT_EQ(TimingCalls(), timed);
  EXPECT_EQ(InAStep(0, 8).algorithm, 2);
  EXPECT_TRUE(TuningLock::Wait(Path() + ".lock", 0, {}).held()) << "it was not released";
}

TEST_F(ProductTunerTest, AnErrorOfTheDeviceIsAnError) {
  Add(1, 24, 16, DType::kBF16);
  fake::FailWork(20, cudaErrorIllegalAddress);
  const absl::Status status =
      TuneProducts({pass_, folder_, {}}, device_, &stream_, products_.get()).status();
  EXPECT_THAT(status.message(), HasSubstr("cudaErrorIllegalAddress"));
  EXPECT_FALSE(std::filesystem::exists(Path()));
  fake::Recover();
}

// No memory for what fills the cache: measured all the same.
TEST_F(ProductTunerTest, LittleMemoryIsEnough) {
  Add(1, 24, 16, DType::kBF16);
  settings_.memory = fake::CountLive().device_bytes + 1000;
  Configure();
  EXPECT_FALSE(Tune().empty());
}

TEST_F(ProductTunerTest, InputsAreNumbersNotFarFromOne) {
  const Tensor x = Make(333, DType::kBF16), wide = Make(77, DType::kF32);
  ProductTimer timer = ProductTimer::Create(device_, &stream_).value();
  for (const Tensor& tensor : {x, wide}) {
    ASSERT_TRUE(timer.FillInputs(tensor).ok());
    const size_t bytes = tensor.rows * tensor.columns * DTypeSize(tensor.dtype);
    const PinnedBuffer host = PinnedBuffer::Allocate(bytes, "a test").value();
    ASSERT_TRUE(stream_.CopyToHost(host.data(), tensor.data, bytes, "a test").ok());
    ASSERT_TRUE(stream_.Synchronize("a test").ok());
    int negative = 0;
    const int64_t count = tensor.rows * tensor.columns;
    for (int64_t i = 0; i < count; ++i) {
      uint32_t bits = 0;
      if (tensor.dtype == DType::kF32) {
        bits = reinterpret_cast<const uint32_t*>(host.data())[i];
      } else {
        bits = uint32_t{reinterpret_cast<const uint16_t*>(host.data())[i]} << 16;
      }
      const float value = std::bit_cast<float>(bits);
      ASSERT_GE(std::abs(value), 1.0f / 128);
      ASSERT_LT(std::abs(value), 2.0f);
      negative += value < 0;
    }
    EXPECT_NEAR(negative, count / 2, count / 10);
  }
}

}  // namespace
}  // namespace coppice::kernels::cuda
