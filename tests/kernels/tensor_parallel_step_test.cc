// Steps of several ranks, which are threads of this process: rows are joined from shards, and
// collectives fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/kernels/kernel_fixture.h"
#include "tests/kernels/row_pass.h"
#include "tests/testing/thread_communicator.h"

namespace coppice::kernels {
namespace {

using testing::Each;
using testing::HasSubstr;

constexpr int64_t kOddVocab = 611;  // not a multiple of the chunk size or of a number of ranks

// Fails the collective with this number, counted from 1. Passes on the others.
class FailingCommunicator : public comm::Communicator {
 public:
  FailingCommunicator(comm::Communicator* inner, int failing) : inner_(inner), failing_(failing) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  absl::Status AllReduceSum(absl::Span<float> data) override {
    return Fails() ? Failure() : inner_->AllReduceSum(data);
  }
  absl::Status Gather(absl::Span<const float> mine, absl::Span<float> all) override {
    return Fails() ? Failure() : inner_->Gather(mine, all);
  }
  absl::Status Broadcast(std::string* data) override { return inner_->Broadcast(data); }
  absl::Status Barrier() override { return inner_->Barrier(); }

 private:
  bool Fails() { return ++calls_ == failing_; }
  static absl::Status Failure() { return absl::UnavailableError("the line is cut"); }

  comm::Communicator* inner_;
  int failing_;
  int calls_ = 0;
};

class TensorParallelStep : public testing::TestWithParam<int> {
 protected:
  // Runs body(backend, rank) on each rank. The collective number `failing` fails on all; 0: none.
  static void OnEveryRank(int failing, const std::function<void(Backend*, int)>& body) {
    test::RunRanks(GetParam(), [&](comm::Communicator* inner) {
      FailingCommunicator communicator(inner, failing);
      ThreadTeam threads(2);
      const auto backend =
          MakeBackend({.threads = &threads, .communicator = &communicator}).value();
      body(backend.get(), inner->rank());
    });
  }
};

TEST_P(TensorParallelStep, GathersWholeRows) {
  const std::vector<float> logits = RandomFloats(5 * kOddVocab, 1);
  OnEveryRank(0, [&](Backend* backend, int rank) {
    RowPass pass(logits, kOddVocab, rank, GetParam());
    const float* first = nullptr;
    for (const int needs : {5, 1, 3}) {
      StepPlan plan = PlanOfRows(needs);
      for (int row = 0; row < needs; ++row) plan.needs.push_back({.row = row});
      const StepRows* rows = RunStep(backend, plan, &pass).value();
      ASSERT_EQ(rows == nullptr, rank != 0);
      for (int need = 0; rank == 0 && need < needs; ++need) {
        EXPECT_THAT(rows->Whole(need), testing::ElementsAreArray(pass.Row(need)));
        EXPECT_EQ(rows->Listed(need), nullptr);
      }
      if (rank != 0) continue;
      if (first == nullptr) first = rows->Whole(0).data();
      EXPECT_EQ(rows->Whole(0).data(), first);  // the memory is reused
    }
  });
}

// The sums have the same bits as on one rank, and the lists are as long.
TEST_P(TensorParallelStep, JoinsCandidateListsBesideWholeRows) {
  std::vector<float> logits = RandomFloats(4 * kOddVocab, 2);
  StepPlan plan = TopPlan(4, 6);
  plan.needs[2].form = RowNeed::Form::kWhole;
  plan.bias = {{7, 3.0}};
  plan.needs[3].bias_end = 1;
  logits[3 * kOddVocab + 7] = 0.5f;  // its bias makes it the first
  ThreadTeam threads(1);
  const auto one = comm::MakeSingleCommunicator();
  const auto alone =
      MakeBackend({.threads = &threads, .communicator = one.get(), .always_list = true}).value();
  RowPass alone_pass(logits, kOddVocab, 0, 1);
  const StepRows* expected = RunStep(alone.get(), plan, &alone_pass).value();
  OnEveryRank(0, [&](Backend* backend, int rank) {
    RowPass pass(logits, kOddVocab, rank, GetParam());
    const StepRows* rows = RunStep(backend, plan, &pass).value();
    if (rank != 0) return;
    EXPECT_THAT(rows->Whole(2), testing::ElementsAreArray(pass.Row(2)));
    EXPECT_EQ(rows->Listed(2), nullptr);
    for (const int need : {0, 1, 3}) {
      EXPECT_TRUE(rows->Whole(need).empty());
      ASSERT_NE(rows->Listed(need), nullptr);
      const CandidateRow &row = *rows->Listed(need), &other = *expected->Listed(need);
      EXPECT_EQ(std::memcmp(&row.sums, &other.sums, sizeof row.sums), 0);
      for (const TokenId token : other.lists[0].tokens)
        EXPECT_THAT(row.lists[0].tokens, testing::Contains(token));
      if (need != 3) ExpectListsTop(row, pass.Row(need), 6);
    }
    EXPECT_THAT(rows->Listed(3)->lists[0].tokens, testing::Contains(7));
  });
}

TEST_P(TensorParallelStep, FetchesListedRowsWhole) {
  const std::vector<float> logits = RandomFloats(4 * kOddVocab, 3);
  OnEveryRank(0, [&](Backend* backend, int rank) {
    RowPass pass(logits, kOddVocab, rank, GetParam());
    const StepRows* rows = RunStep(backend, TopPlan(4, 6), &pass).value();
    StepPlan fetch;
    fetch.fetch = {1, 3};
    const StepRows* after = RunStep(backend, fetch, nullptr).value();
    EXPECT_EQ(after, rows);
    if (rank != 0) return;
    for (const int need : {1, 3}) {
      EXPECT_THAT(rows->Whole(need), testing::ElementsAreArray(pass.Row(need)));
      EXPECT_EQ(rows->Listed(need), nullptr);
    }
    for (const int need : {0, 2}) {
      EXPECT_TRUE(rows->Whole(need).empty());
      ExpectListsTop(*rows->Listed(need), pass.Row(need), 6);
    }
  });
}

TEST_P(TensorParallelStep, SumsOverTheRanksInRankOrder) {
  std::vector<float> expected = RandomFloats(3 * 5, 10);
  for (int rank = 1; rank < GetParam(); ++rank) {
    const std::vector<float> term = RandomFloats(3 * 5, 10 + rank);
    for (size_t i = 0; i < term.size(); ++i) expected[i] += term[i];
  }
  OnEveryRank(0, [&](Backend* backend, int rank) {
    std::vector<float> x = RandomFloats(3 * 5, 10 + rank);
    x.resize(4 * 5, -1.0f);
    RunOps(backend, PlanOfRows(3), [&](Ops* ops) { ops->AllReduce(TensorOf(&x, 5)); });
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), x.begin()));
    EXPECT_EQ(x.back(), -1.0f);  // a row that the step does not have
  });
}

// A pass with one all-reduce, followed by ops that overwrite every output.
struct ReducingPass : Pass {
  explicit ReducingPass(Backend* backend) {
    gain = backend->PackGain(std::vector<float>(8, 1.0f)).value();
    const MatrixSource source = {matrix.data(), DType::kF32, 8, 8, 8};
    weight = backend->Pack({source}, DType::kF32, {}).value();
    pool = backend->MakeKvPool({1, 1, 2, 3, DType::kF32}).value();
    rope = backend->MakeRope({4, {1.0}}).value();
  }
  void Body(Ops* ops) override {
    ops->AllReduce(TensorOf(&x, 8));
    ops->AddNorm(TensorOf(&x, 8), {}, {gain.get(), NormKind::kRms, 1e-5f}, TensorOf(&out[0], 8));
    ops->MatMul(*weight, TensorOf(&x, 8), TensorOf(&out[1], 8), false);
    ops->Activate(Activation::kSilu, TensorOf(&x, 8), TensorOf(&out[2], 4));
    ops->SoftCap(TensorOf(&out[2], 4), 3.0f);
    ops->Embed(*weight, 0, 1.0f, TensorOf(&out[3], 8));
    ops->AddPositions(*weight, 0, TensorOf(&out[3], 8));
    ops->RopeAndStoreKv(0, {.rope = rope.get()}, TensorOf(&qkv, 8), pool.get());
    ops->Attention(0, {.scale = 1}, TensorOf(&qkv, 8), *pool, TensorOf(&out[4], 4));
    ops->AllReduce(TensorOf(&out[5], 8));
    ops->GatherRows({TensorOf(&kept, 8)});
  }
  void Head(Ops* ops) override {
    ++heads;
    ops->Select(TensorOf(&out[6], sampling::VocabularyShard(16, rank, ranks).size()),
                sampling::VocabularyShard(16, rank, ranks).begin, 16);
  }

  int rank = 0, ranks = 1, heads = 0;
  std::vector<float> matrix = RandomFloats(64, 1), x = RandomFloats(16, 2),
                     qkv = RandomFloats(16, 3);
  std::vector<float> kept = RandomFloats(16, 4);
  std::vector<std::vector<float>> out = std::vector(7, std::vector<float>(32, -7.0f));
  std::unique_ptr<Weight> gain, weight;
  std::unique_ptr<KvPool> pool;
  std::shared_ptr<const RopeTable> rope;
};

TEST_P(TensorParallelStep, AFailedCollectiveStopsTheStepAndIsTold) {
  OnEveryRank(/*failing=*/1, [&](Backend* backend, int rank) {
    ReducingPass pass(backend);
    pass.rank = rank;
    pass.ranks = GetParam();
    StepPlan plan = PlanOfRows(2);
    plan.position = {0, 1};
    plan.slot = {16, 17};
    plan.table = {1};
    plan.table_begin = {0, 1};
    plan.needs = {{.row = 1}};
    ASSERT_TRUE(backend->Submit(plan, &pass).ok());
    const absl::Status status = backend->Wait().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(status.message(), "the line is cut");
    for (const std::vector<float>& out : pass.out) EXPECT_THAT(out, Each(-7.0f));
    EXPECT_EQ(pass.x, RandomFloats(16, 2));
    EXPECT_EQ(pass.qkv, RandomFloats(16, 3));
    EXPECT_EQ(pass.kept, RandomFloats(16, 4));
    EXPECT_EQ(pass.heads, 0);
    // The next step starts without an error, and each of those ops writes its output.
    ASSERT_TRUE(backend->Submit(plan, &pass).ok());
    EXPECT_TRUE(backend->Wait().ok());
    for (const std::vector<float>& out : absl::MakeConstSpan(pass.out).first(6))
      EXPECT_NE(out[0], -7.0f);
    EXPECT_NE(pass.qkv, RandomFloats(16, 3));
    EXPECT_NE(pass.kept, RandomFloats(16, 4));
    EXPECT_EQ(pass.heads, 1);
  });
}

TEST_P(TensorParallelStep, AFailedGatherLeavesNoRows) {
  const std::vector<float> logits = RandomFloats(2 * kOddVocab, 4);
  OnEveryRank(/*failing=*/1, [&](Backend* backend, int rank) {
    RowPass pass(logits, kOddVocab, rank, GetParam());
    const StepPlan plan = TopPlan(2, 6);
    ASSERT_TRUE(backend->Submit(plan, &pass).ok());
    EXPECT_EQ(backend->Wait().status().message(), "the line is cut");
    StepPlan fetch;
    fetch.fetch = {0};
    EXPECT_THAT(backend->Submit(fetch, nullptr).message(), HasSubstr("had 0 needs"));
  });
}

TEST_P(TensorParallelStep, AFailedFetchIsTold) {
  const std::vector<float> logits = RandomFloats(2 * kOddVocab, 5);
  OnEveryRank(/*failing=*/2, [&](Backend* backend, int rank) {
    RowPass pass(logits, kOddVocab, rank, GetParam());
    ASSERT_TRUE(RunStep(backend, TopPlan(2, 6), &pass).ok());
    StepPlan fetch;
    fetch.fetch = {0};
    ASSERT_TRUE(backend->Submit(fetch, nullptr).ok());
    EXPECT_EQ(backend->Wait().status().message(), "the line is cut");
    EXPECT_THAT(backend->Submit(fetch, nullptr).message(), HasSubstr("had 0 needs"));
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, TensorParallelStep, testing::Values(2, 3, 5));

}  // namespace
}  // namespace coppice::kernels
