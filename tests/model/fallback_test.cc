// What this machine lacks is said in one line of the log, and the model loads all the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "model/load_transformer.h"
#include "model/model_runner.h"
#include "tests/testing/captured_log.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/thread_communicator.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::model {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The CPU backend of a machine that has no products with integer weights.
class WithoutIntegers : public kernels::Backend {
 public:
  explicit WithoutIntegers(comm::Communicator* communicator) {
    kernels::BackendOptions options{.threads = &threads_, .communicator = communicator};
    cpu_ = kernels::MakeBackend(options).value();
  }
  bool stores(kernels::DType dtype) const override {
    return dtype == kernels::DType::kF32 || dtype == kernels::DType::kBF16;
  }
  const char* name() const override { return "plain"; }
  std::string description() const override { return cpu_->description(); }
  bool batch_invariant() const override { return cpu_->batch_invariant(); }
  absl::StatusOr<kernels::MemoryFacts> Memory() const override { return cpu_->Memory(); }
  absl::StatusOr<std::unique_ptr<kernels::Weight>> Pack(
      absl::Span<const kernels::MatrixSource> stacked, kernels::DType dtype,
      std::vector<float> bias) override {
    EXPECT_TRUE(stores(dtype));
    return cpu_->Pack(stacked, dtype, std::move(bias));
  }
  absl::StatusOr<std::unique_ptr<kernels::Weight>> PackGain(std::vector<float> gain,
                                                            std::vector<float> bias) override {
    return cpu_->PackGain(std::move(gain), std::move(bias));
  }
  absl::StatusOr<std::unique_ptr<kernels::Weight>> PackScatter(std::vector<int32_t> ids,
                                                               int64_t places) override {
    return cpu_->PackScatter(std::move(ids), places);
  }
  absl::StatusOr<std::unique_ptr<kernels::KvPool>> MakeKvPool(
      const kernels::KvPoolShape& shape) override {
    return cpu_->MakeKvPool(shape);
  }
  absl::StatusOr<std::shared_ptr<const kernels::RopeTable>> MakeRope(
      const kernels::RopeConfig& config) override {
    return cpu_->MakeRope(config);
  }
  absl::StatusOr<kernels::Tensor> Allocate(int64_t rows, int64_t columns,
                                           kernels::DType dtype) override {
    return cpu_->Allocate(rows, columns, dtype);
  }
  kernels::DType activation_dtype() const override { return cpu_->activation_dtype(); }
  absl::Status Submit(const StepPlan& plan, kernels::Pass* pass) override {
    return cpu_->Submit(plan, pass);
  }
  bool HeadReached() override { return cpu_->HeadReached(); }
  absl::StatusOr<const kernels::StepRows*> Wait() override { return cpu_->Wait(); }

 private:
  ThreadTeam threads_{1};
  std::unique_ptr<kernels::Backend> cpu_;
};

class ModelFallbackTest : public testing::Test {
 protected:
  ModelFallbackTest() { test::WriteTinyLlama(test::MakeTinyLlama({.dtype = "BF16"}), dir_.path()); }
  ModelRunnerOptions WithThreads(int threads) const {
    ModelRunnerOptions options;
    options.dir = dir_.path();
    options.kv_bytes = 1 << 20;
    options.threads = threads;
    options.max_rows = 8;
    return options;
  }

  const test::TempDir dir_;
  const std::unique_ptr<comm::Communicator> single_ = comm::MakeSingleCommunicator();
};

TEST_F(ModelFallbackTest, WeightsThatTheBackendLacksKeepTheTypeOfTheModel) {
  for (const std::string asked : {"int8", "int4"}) {
    const test::CapturedLog log;
    test::RunRanks(2, [&](comm::Communicator* communicator) {
      WithoutIntegers backend(communicator);
      const auto load = [&](const std::string& weight_dtype) {
        return LoadTransformer({.dir = dir_.path(), .weight_dtype = weight_dtype, .max_rows = 8},
                               &backend, communicator);
      };
      const auto parts = load(asked), plain = load("auto");
      ASSERT_TRUE(parts.ok()) << parts.status();
      ASSERT_TRUE(plain.ok()) << plain.status();
      EXPECT_EQ(parts->weight_dtype, kernels::DType::kBF16);
      EXPECT_EQ(parts->fingerprint, plain->fingerprint);  // the same model
    });
    EXPECT_EQ(log.text(),
              absl::StrCat("warning ", dir_.path(), ": weight_dtype: ", asked,
                           ", but the plain backend has no such weights; keeps them as ",
                           kernels::DTypeName(kernels::DType::kBF16), "\n"));
  }
}

TEST_F(ModelFallbackTest, MoreThreadsThanCoresAreUsedWithAWarning) {
  const int cores = AvailableCores();
  const test::CapturedLog log;
  auto runner = ModelRunner::Load(WithThreads(cores + 1), single_.get());
  ASSERT_TRUE(runner.ok()) << runner.status();
  EXPECT_EQ((*runner)->threads()->count(), cores + 1);
  EXPECT_THAT(log.text(), HasSubstr(absl::StrCat("warning threads: ", cores + 1,
                                                 ", but this process may use ", cores, " core")));
}

TEST_F(ModelFallbackTest, AsManyThreadsAsCoresAreUsedInSilence) {
  for (const int threads : {0, AvailableCores()}) {
    const test::CapturedLog log;
    ASSERT_TRUE(ModelRunner::Load(WithThreads(threads), single_.get()).ok());
    EXPECT_THAT(log.text(), Not(HasSubstr("warning")));
  }
}

TEST_F(ModelFallbackTest, RefusesThreadsWithoutNumber) {
  for (const int threads : {-1, 1 << 20}) {
    const auto runner = ModelRunner::Load(WithThreads(threads), single_.get());
    EXPECT_EQ(runner.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(runner.status().message()), HasSubstr(absl::StrCat(threads)));
  }
}

}  // namespace
}  // namespace coppice::model
