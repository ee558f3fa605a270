// The life of a step: how rows are served, what is refused, and what runs when. On both backends
// where both promise the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/ops/row_bucket.h"
#include "tests/kernels/block_samples.h"
#include "tests/kernels/cuda/test_backend.h"
#include "tests/kernels/kernel_fixture.h"
#include "tests/kernels/row_pass.h"
#include "tests/testing/thread_communicator.h"

namespace coppice::kernels {
namespace {

using testing::ElementsAreArray;
using testing::HasSubstr;

constexpr int64_t kVocab = 600;

class BackendStepTest : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<TestBackend> plain_ = TestBackend::Make(GetParam());
  std::unique_ptr<TestBackend> listing_ = TestBackend::Make(GetParam(), /*always_list=*/true);
};

INSTANTIATE_TEST_SUITE_P(Kinds, BackendStepTest, testing::Values("cpu", "cuda"),
                         [](const auto& info) { return info.param; });

// The head gives logits of the backend's own memory to Select.
struct LogitsPass : Pass {
  LogitsPass(TestBackend* backend, int needs, uint64_t seed)
      : values(RandomFloats(needs * kVocab, seed)),
        tensor(backend->Put(values, kVocab, DType::kF32)) {}
  void Body(Ops*) override { ++bodies; }
  void Head(Ops* ops) override { ops->Select(tensor, 0, kVocab); }
  std::vector<float> Row(int need) const {
    return {values.begin() + need * kVocab, values.begin() + (need + 1) * kVocab};
  }

  std::vector<float> values;
  Tensor tensor;
  int bodies = 0;
};

TEST_P(BackendStepTest, ServesWholeRowsWhereTheyCostNothing) {
  LogitsPass pass(plain_.get(), 3, 1);
  const StepRows* rows = RunStep(plain_->get(), TopPlan(3, 4), &pass).value();
  for (int need = 0; need < 3; ++need) {
    EXPECT_THAT(rows->Whole(need), ElementsAreArray(pass.Row(need)));
    EXPECT_EQ(rows->Listed(need), nullptr);
  }
}

TEST_P(BackendStepTest, EachStepHasItsOwnRows) {
  for (const int needs : {3, 1, 40, 2}) {
    LogitsPass pass(plain_.get(), needs, needs);
    const StepRows* rows = RunStep(plain_->get(), TopPlan(needs, 4), &pass).value();
    for (int need = 0; need < needs; ++need)
      EXPECT_THAT(rows->Whole(need), ElementsAreArray(pass.Row(need)));
  }
}

TEST_P(BackendStepTest, ListsWhereAskedToAndFetches) {
  LogitsPass pass(listing_.get(), 3, 3);
  StepPlan plan = TopPlan(3, 4);
  plan.needs[1].form = RowNeed::Form::kWhole;
  const StepRows* rows = RunStep(listing_->get(), plan, &pass).value();
  EXPECT_THAT(rows->Whole(1), ElementsAreArray(pass.Row(1)));
  for (const int need : {0, 2}) {
    ASSERT_NE(rows->Listed(need), nullptr);
    ExpectListsTop(*rows->Listed(need), pass.Row(need), 4);
  }
  StepPlan fetch;
  fetch.fetch = {2};
  ASSERT_EQ(RunStep(listing_->get(), fetch, nullptr).value(), rows);
  EXPECT_THAT(rows->Whole(2), ElementsAreArray(pass.Row(2)));
  ExpectListsTop(*rows->Listed(0), pass.Row(0), 4);
  fetch.fetch = {3};
  EXPECT_THAT((*listing_)->Submit(fetch, nullptr).message(), HasSubstr("had 3 needs"));
}

TEST_P(BackendStepTest, CommitsAloneForgetNoRows) {
  LogitsPass pass(listing_.get(), 1, 3);
  ASSERT_TRUE(RunStep(listing_->get(), TopPlan(1, 4), &pass).ok());
  RunOps(listing_->get(), StepPlan(), [](Ops* ops) { EXPECT_FALSE(ops->has_rows()); });
  StepPlan fetch;
  fetch.fetch = {0};
  const StepRows* rows = RunStep(listing_->get(), fetch, nullptr).value();
  EXPECT_THAT(rows->Whole(0), ElementsAreArray(pass.Row(0)));
  RunOps(listing_->get(), PlanOfRows(1), [](Ops*) {});
  EXPECT_THAT((*listing_)->Submit(fetch, nullptr).message(), HasSubstr("had 0 needs"));
}

TEST_P(BackendStepTest, TheHeadIsReachedInTheEnd) {
  LogitsPass pass(plain_.get(), 2, 1);
  const StepPlan plan = TopPlan(2, 4);
  ASSERT_TRUE((*plain_)->Submit(plan, &pass).ok());
  EXPECT_EQ(pass.bodies, 1);
  while (!(*plain_)->HeadReached()) {
  }
  EXPECT_TRUE((*plain_)->HeadReached());
  EXPECT_THAT((*plain_)->Wait().value()->Whole(1), ElementsAreArray(pass.Row(1)));
}

TEST_P(BackendStepTest, RefusesWhatDoesNotFitTogether) {
  const std::vector<float> source(100);
  const MatrixSource good = {source.data(), DType::kF32, 10, 10, 10};
  const MatrixSource narrow = {source.data(), DType::kF32, 10, 9, 10};
  Backend* backend = plain_->get();
  for (const auto& status : {backend->Pack({}, DType::kF32, {}).status(),
                             backend->Pack({good, good}, DType::kF32, source).status(),
                             backend->Pack({good, narrow}, DType::kF32, {}).status(),
                             backend->MakeKvPool({1, 1, 0, 4, DType::kF32}).status(),
                             backend->Allocate(0, 4, DType::kF32).status()})
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  const KvPoolShape endless = {1, 1, 8, int64_t{1} << 40, DType::kF32};
  EXPECT_EQ(backend->MakeKvPool(endless).status().code(), absl::StatusCode::kResourceExhausted);
}

// ---- What is of CUDA alone

class CudaStepTest : public testing::Test {
 protected:
  std::unique_ptr<TestBackend> cuda_ = TestBackend::Make("cuda");
};

TEST_F(CudaStepTest, SaysWhatItIs) {
  EXPECT_STREQ((*cuda_)->name(), "cuda");
  EXPECT_THAT((*cuda_)->description(),
              testing::MatchesRegex("cuda .*, [0-9]+ GiB(, device 0 of [0-9]+)?"));
  EXPECT_FALSE((*cuda_)->batch_invariant());
}

TEST_F(CudaStepTest, ActivationsHaveTheTypeOfTheMatrices) {
  const std::vector<float> source(6, 1.0f);
  const MatrixSource matrix = {source.data(), DType::kF32, 2, 3, 3};
  ASSERT_TRUE((*cuda_)->Pack({matrix}, DType::kBF16, {}).ok());
  EXPECT_EQ((*cuda_)->activation_dtype(), DType::kBF16);
  const auto other = (*cuda_)->Pack({matrix}, DType::kF32, {});
  EXPECT_EQ(other.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(other.status().message(), HasSubstr("F32 after BF16"));
}

// What each backend says of f16, and does.
TEST_P(BackendStepTest, StoresF16OrRefusesIt) {
  const std::vector<float> source(100, 1.0f);
  Backend* backend = plain_->get();
  const absl::StatusCode want =
      backend->stores(DType::kF16) ? absl::StatusCode::kOk : absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(backend->stores(DType::kF16), GetParam() == "cuda");
  const MatrixSource matrix = {source.data(), DType::kF32, 10, 10, 10};
  EXPECT_EQ(backend->Pack({matrix}, DType::kF16, {}).status().code(), want);
  EXPECT_EQ(backend->MakeKvPool({1, 1, 8, 4, DType::kF16}).status().code(), want);
  EXPECT_EQ(backend->Allocate(1, 4, DType::kF16).status().code(), want);
}

// Other blocks than those of backend_blocks_test become another type; kept as they are, they are
// refused by name.
TEST_F(CudaStepTest, OtherBlockFormatsAreTakenInButNotStored) {
  const BlockMatrix blocks(DType::kQ4_K, 4, 256, 1), others(DType::kQ6_K, 4, 256, 2);
  for (const BlockFormat& format : BlockFormats()) {
    if (format.dtype == DType::kQ8_0 || format.dtype == DType::kQ4_0) continue;
    EXPECT_FALSE((*cuda_)->stores(format.dtype));
    const BlockMatrix matrix(format.dtype, 2, 256, 1);
    const auto kept = (*cuda_)->Pack({matrix.source()}, format.dtype, {});
    EXPECT_EQ(kept.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(kept.status().message(), HasSubstr(absl::StrCat("not as ", format.name)));
  }
  const MatrixSource stack[] = {blocks.source(), others.source()};
  const auto mixed = (*cuda_)->PackEach(stack, {DType::kF32, DType::kBF16}, {});
  EXPECT_EQ(mixed.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(mixed.status().message(), HasSubstr("the cuda backend stacks no BF16 on F32"));
  const auto packed = (*cuda_)->PackEach(stack, {DType::kF32, DType::kF32}, {});
  ASSERT_TRUE(packed.ok()) << packed.status();
  std::vector<float> want = blocks.Values();
  for (const float value : others.Values()) want.push_back(value);
  const Tensor x = cuda_->Poisoned(8, 256, DType::kF32);
  StepPlan plan = PlanOfRows(8);
  std::iota(plan.token.begin(), plan.token.end(), 0);
  RunOps(cuda_->get(), plan, [&](Ops* ops) { ops->Embed(**packed, 0, 1.0f, x); });
  EXPECT_EQ(cuda_->Read(x), want);
}

TEST_F(CudaStepTest, WeightsBeyondF16AreRefused) {
  std::vector<float> source(100, 65519.0f);  // rounds to the largest
  const MatrixSource matrix = {source.data(), DType::kF32, 10, 10, 10};
  ASSERT_TRUE((*cuda_)->Pack({matrix}, DType::kF16, {}).ok());
  source[57] = -65520.0f;
  const auto packed = (*cuda_)->Pack({matrix}, DType::kF16, {});
  EXPECT_EQ(packed.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(packed.status().message(),
              HasSubstr("a weight of 10 x 10 F16 from F32: a value is beyond 65504"));
}

TEST_F(CudaStepTest, HeadsThatTheKernelsDoNotTakeAreRefusedBeforeAnyStep) {
  for (const int head_dim : {4, 12, 264}) {
    const auto pool = (*cuda_)->MakeKvPool({1, 1, head_dim, 4, DType::kF32});
    EXPECT_EQ(pool.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(pool.status().message(), HasSubstr(absl::StrCat("heads of ", head_dim)));
  }
}

TEST(MakeCudaBackendTest, NeedsThreadsAndACommunicator) {
  EXPECT_THAT(MakeBackend({.kind = "cuda"}).status().message(), HasSubstr("needs threads"));
}

TEST(MakeCpuBackendTest, RefusesWhatIsForGpus) {
  BackendOptions options;
  options.collectives.kind = "nccl";
  EXPECT_THAT(MakeBackend(options).status().message(),
              HasSubstr("--communicator=nccl: NCCL is for GPUs"));
  options.collectives.kind = "oneshot";
  EXPECT_THAT(MakeBackend(options).status().message(),
              HasSubstr("--communicator=oneshot: one-shot sums are for GPUs"));
}

// Ranks as threads that share the device. Sums larger and smaller than the one before, with work
// before and behind them that must not overtake.
class CudaRanksTest : public testing::TestWithParam<int> {};

TEST_P(CudaRanksTest, SumInRankOrderThroughTheHost) {
  const int ranks = GetParam();
  constexpr int64_t kColumns = 1000;
  const auto values = [](int rank, int64_t rows) {
    return RandomFloats(rows * kColumns, 100 * rows + rank);
  };
  test::RunRanks(ranks, [&](comm::Communicator* communicator) {
    const auto backend = TestBackend::MakeRank(communicator);
    EXPECT_THAT((*backend)->description(), HasSubstr("sums through the host"));
    for (const int64_t rows : {3, 40, 1}) {
      std::vector<float> want = values(0, rows);
      for (int rank = 1; rank < ranks; ++rank) {
        const std::vector<float> more = values(rank, rows);
        for (size_t i = 0; i < want.size(); ++i) want[i] += more[i];
      }
      const Tensor once = backend->Put(values(communicator->rank(), rows), kColumns, DType::kF32);
      const Tensor twice =
          backend->Put(std::vector<float>(rows * kColumns, 1.0f), kColumns, DType::kF32);
      RunOps(backend->get(), PlanOfRows(rows), [&](Ops* ops) {
        ops->AllReduce(once);
        ops->AllReduce(twice);
        ops->AllReduce(twice);
      });
      EXPECT_THAT(backend->Read(once), ElementsAreArray(want));
      EXPECT_THAT(backend->Read(twice), testing::Each(static_cast<float>(ranks * ranks)));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, CudaRanksTest, testing::Values(2, 4));

}  // namespace
}  // namespace coppice::kernels
