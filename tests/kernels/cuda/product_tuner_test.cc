// What the tuner measures, keeps in its file and reads from it, over the simulated device.
#include "kernels/cuda/products/product_tuner.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>

#include "kernels/cuda/ops/row_bucket.h"
#include "kernels/cuda/products/product_timer.h"
#include "kernels/cuda/products/tuning_lock.h"
#include "tests/kernels/cuda/product_tuner_fixture.h"

namespace coppice::kernels::cuda {
namespace {

using testing::HasSubstr;

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
