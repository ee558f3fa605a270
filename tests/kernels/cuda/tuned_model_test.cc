// A model whose products are tuned while it is loaded: its rows are those of the model that is not,
// and whatever fails meanwhile, nothing hangs and nothing stays allocated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/status.h"
#include "kernels/cuda/simulator/fake/fake_device.h"
#include "model/model_runner.h"
#include "tests/kernels/cuda/test_backend.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_family.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::model {
namespace {

namespace fake = kernels::cuda::fake;

class TunedModelTest : public testing::Test {
 protected:
  TunedModelTest() {
    test::TinyLlamaOptions tiny;
    tiny.layers = 2;
    tiny.attention_bias = true;
    test::WriteTinyLlama(test::MakeTinyLlama(tiny), dir_.path());
    fake::Recover();
  }
  ~TunedModelTest() override {
    fake::Configure({});
    fake::Recover();
  }

  ModelRunnerOptions Options(const std::string& cache) {
    ModelRunnerOptions options;
    options.dir = dir_.path();
    options.backend = "cuda";
    options.dtype = "bf16";
    options.kv_bytes = 1 << 18;
    options.threads = 1;
    options.max_rows = 12;
    options.tuning_cache = cache;
    options.on_progress = [this] { ++progress_; };
    return options;
  }

  // The rows of five tokens, one after the other in one step.
  static absl::StatusOr<std::vector<float>> Logits(ModelRunner* runner) {
    BlockManager* blocks = runner->blocks();
    int cached = 0;
    const SequenceHandle sequence = blocks->Open({4, 5, 6, 7, 8}, &cached);
    StepBuilder step = runner->NewStep();
    KvNode parent = kPrefixEnd;
    for (const TokenId token : {4, 5, 6, 7, 8}) {
      COPPICE_ASSIGN_OR_RETURN(parent, blocks->AddNode(sequence, parent, token));
      step.AddNodeRow(sequence, parent, token, RowNeed());
    }
    COPPICE_RETURN_IF_ERROR(runner->Submit(std::move(step)));
    runner->WaitForHead();
    COPPICE_ASSIGN_OR_RETURN(const kernels::StepRows* rows, runner->Wait());
    std::vector<float> all;
    for (int i = 0; i < 5; ++i) all.insert(all.end(), rows->Whole(i).begin(), rows->Whole(i).end());
    return all;
  }

  test::TempDir dir_, cache_;
  std::unique_ptr<comm::Communicator> one_ = comm::MakeSingleCommunicator();
  int progress_ = 0;
};

TEST_F(TunedModelTest, GivesTheRowsOfAModelThatIsNotTuned) {
  const auto plain = ModelRunner::Load(Options(""), one_.get()).value();
  EXPECT_TRUE(plain->row_costs().empty());
  const std::vector<float> want = Logits(plain.get()).value();
  const int loads = progress_;
  // Of cuBLASLt's products everywhere, of skinny kernels everywhere.
  for (const double product_us : {1.0, 1000.0}) {
    fake::Configure({.protect = true, .work_us = 30, .product_us = [=](const fake::FakeProduct&) {
                       return product_us;
                     }});
    const std::string cache = cache_.path() + "/" + std::to_string(product_us);
    progress_ = 0;
    const auto tuned = ModelRunner::Load(Options(cache), one_.get()).value();
    EXPECT_GT(progress_, loads);
    ASSERT_EQ(tuned->row_costs().size(), 5u);  // 1, 2, 4, 8, 16
    EXPECT_EQ(tuned->row_costs().back().rows, 16);
    EXPECT_GT(tuned->row_costs()[0].seconds, 9 * std::min(product_us, 30.0) * 1e-6 * 0.99);
    const std::vector<float> got = Logits(tuned.get()).value();
    ASSERT_EQ(got.size(), want.size());
    EXPECT_LT(kernels::RelativeDistance(got, want),
              0.01);  // the skinny kernel adds the bias in f32
  }
  EXPECT_THAT(fake::Violations(), testing::IsEmpty());
}

// There is one product for weights in blocks; its times are measured and kept all the same.
TEST_F(TunedModelTest, WeightsInBlocksHaveCostsAndTheSameBits) {
  for (const bool exact : {false, true}) {
    ModelRunnerOptions options = Options("");
    options.weight_dtype = "int4";
    options.exact = exact;
    const auto plain = ModelRunner::Load(options, one_.get()).value();
    options.tuning_cache = cache_.path();
    const auto tuned = ModelRunner::Load(options, one_.get()).value();
    ASSERT_EQ(tuned->row_costs().size(), 5u);
    EXPECT_GT(tuned->row_costs()[0].seconds, 0);
    EXPECT_EQ(Logits(tuned.get()).value(), Logits(plain.get()).value());
    const int64_t timed = fake::CountCallsOf("cudaEventElapsedTime");
    EXPECT_EQ(ModelRunner::Load(options, one_.get()).value()->row_costs().size(), 5u);
    EXPECT_EQ(fake::CountCallsOf("cudaEventElapsedTime"), timed);
  }
}

// What is measured of a model with experts leaves their products out, so it is no cost of a step.
TEST_F(TunedModelTest, WithExpertsNoCostOfRowsIsKnown) {
  test::WriteTinyLlama(test::MakeTinyFamily("mixtral", {.layers = 2}), dir_.path());
  const auto tuned = ModelRunner::Load(Options(cache_.path()), one_.get()).value();
  EXPECT_GT(fake::CountCallsOf("cudaEventElapsedTime"), 0);
  EXPECT_TRUE(tuned->row_costs().empty());
}

TEST_F(TunedModelTest, ASecondLoadMeasuresNothing) {
  ASSERT_TRUE(ModelRunner::Load(Options(cache_.path()), one_.get()).ok());
  const int64_t timed = fake::CountCallsOf("cudaEventElapsedTime");
  const auto again = ModelRunner::Load(Options(cache_.path()), one_.get()).value();
  EXPECT_EQ(fake::CountCallsOf("cudaEventElapsedTime"), timed);
  EXPECT_EQ(again->row_costs().size(), 5u);
}

TEST_F(TunedModelTest, CallsThatFailWhileItTunes) {
  const auto load_and_run = [&] {
    std::filesystem::remove_all(cache_.path());
    const auto runner = ModelRunner::Load(Options(cache_.path()), one_.get());
    return runner.ok() ? Logits(runner->get()).status() : runner.status();
  };
  const int64_t begin = fake::CountCalls();
  ASSERT_TRUE(load_and_run().ok());
  const int64_t calls = fake::CountCalls() - begin;
  int errors = 0, tried = 0;
  for (int64_t n = 11; n < calls; n += calls / 60 * 2 + 1, ++tried) {
    fake::FailCall(n, cudaErrorLaunchFailure);
    const absl::Status status = load_and_run();
    errors += !status.ok();
    EXPECT_NE(fake::FailedCall(), "") << n;
    EXPECT_EQ(fake::CountLive().total(), 0) << fake::FailedCall() << " " << n;
    EXPECT_THAT(fake::Violations(), testing::IsEmpty()) << fake::FailedCall() << " " << n;
    fake::Recover();
  }
  EXPECT_GT(errors, tried / 4);  // a candidate of which a call fails is left out
}

}  // namespace
}  // namespace coppice::model
