// Candidate lists that the device chooses are those that the CPU backend makes of the same logits,
// bit for bit: tokens, logits, sums, overflows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "sampling/candidate_list.h"
#include "tests/kernels/cuda/list_needs.h"
#include "tests/kernels/cuda/test_backend.h"
#include "tests/kernels/kernel_fixture.h"
#include "tests/kernels/row_pass.h"

namespace coppice::kernels {
namespace {

using testing::ElementsAreArray;

// Gives logits in the backend's memory to Select.
struct ListPass : Pass {
  ListPass(TestBackend* backend, const std::vector<float>& values, int64_t vocab_size)
      : tensor(backend->Put(values, vocab_size, DType::kF32)), vocab(vocab_size) {}
  void Body(Ops*) override {}
  void Head(Ops* ops) override { ops->Select(tensor, 0, vocab); }

  Tensor tensor;
  int64_t vocab;
};

class BackendListsTest : public testing::Test {
 protected:
  // *complete counts the lists that decide without their row.
  void ExpectSame(const StepPlan& plan, const std::vector<float>& logits, int64_t vocab,
                  int* complete = nullptr) {
    ListPass cpu_pass(cpu_.get(), logits, vocab), cuda_pass(cuda_.get(), logits, vocab);
    const StepRows* want = RunStep(cpu_->get(), plan, &cpu_pass).value();
    const StepRows* got = RunStep(cuda_->get(), plan, &cuda_pass).value();
    for (int i = 0; i < static_cast<int>(plan.needs.size()); ++i) {
      SCOPED_TRACE(testing::Message() << "need " << i << " of " << vocab << " tokens");
      if (got->Listed(i) == nullptr) {
        EXPECT_THAT(got->Whole(i),
                    ElementsAreArray(absl::MakeConstSpan(logits).subspan(i * vocab, vocab)));
        continue;
      }
      ASSERT_NE(want->Listed(i), nullptr);
      ExpectSameList(plan.needs[i], *got->Listed(i), *want->Listed(i));
      const auto bias = absl::MakeConstSpan(plan.bias).subspan(
          plan.needs[i].bias_begin, plan.needs[i].bias_end - plan.needs[i].bias_begin);
      if (complete != nullptr)
        *complete += sampling::IsComplete(plan.needs[i], *got->Listed(i), bias);
    }
  }

  std::unique_ptr<TestBackend> cpu_ = TestBackend::Make("cpu", /*always_list=*/true);
  std::unique_ptr<TestBackend> cuda_ = TestBackend::Make("cuda", /*always_list=*/true);
};

TEST_F(BackendListsTest, EveryFormInOneStep) {
  int complete = 0;
  for (const int64_t vocab : {1000, 1003, 9000, 32000}) {
    for (uint64_t seed = 0; seed < 3; ++seed)
      ExpectSame(MixedPlan(seed), RandomLogits(12 * vocab, seed + vocab), vocab, &complete);
  }
  EXPECT_EQ(complete, 9 * 12);  // nothing had to be fetched
}

TEST_F(BackendListsTest, AWholeVocabularyOf128256) {
  StepPlan plan = PlanOfRows(3);
  plan.needs = {Top(0, 64, 1, true), GumbelNeed(1, 1, 1, 0xf), Top(2, 1024, 1, true)};
  int complete = 0;
  ExpectSame(plan, RandomLogits(3 * 128256, 1), 128256, &complete);
  EXPECT_EQ(complete, 2);  // the 1024th of the last row has more ties than a list has room
}

TEST_F(BackendListsTest, Counts) {
  constexpr int64_t kVocab = 32000;
  StepPlan plan = PlanOfRows(6);
  plan.needs = {Top(0, 1, 1, true),     Top(1, 2, 1, true),    Top(2, 64, 1, true),
                Top(3, 1024, 1, false), Top(4, 2000, 1, true), Top(5, 4000, 1, true)};
  for (uint64_t seed = 0; seed < 2; ++seed) {
    std::vector<float> logits = RandomLogits(6 * kVocab, seed);
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal(0, 3);
    for (float& logit : logits) logit = seed == 0 ? logit : normal(random);  // ties are rare
    int complete = 0;
    ExpectSame(plan, logits, kVocab, &complete);
    if (seed == 1) {
      EXPECT_EQ(complete, 5);  // the last goes whole
    }
  }
}

// Ties at the border of a list, up to all tokens; few finite tokens; none.
TEST_F(BackendListsTest, Ties) {
  constexpr int64_t kVocab = 9000;
  StepPlan plan = PlanOfRows(7);
  std::vector<float> logits;
  for (int row = 0; row < 7; ++row) {
    plan.needs.push_back(Top(row, 8, row % 2 == 0 ? 1 : 1e4, true));
    std::vector<float> values = RandomLogits(kVocab, row);
    for (int v = 0; v < kVocab; ++v) {
      if (row == 0) values[v] = -1.5f;                                   // all equal
      if (row == 1) values[v] = v % 400 == 7 ? 3.0f : -1.0f;             // 23 ties on top: they fit
      if (row == 2) values[v] = v % 300 == 7 ? 3.0f : -1.0f;             // 30: they do not
      if (row == 3) values[v] = 1.0f + static_cast<float>(v) * 1.2e-7f;  // quotients tie
      if (row == 4) values[v] = v % 4000 == 1 ? 2.0f : -kInfiniteLogit;  // three finite tokens
      if (row == 5) values[v] = -kInfiniteLogit;
      if (row == 6) values[v] = v % 2 == 0 ? 0.0f : -0.0f;
    }
    logits.insert(logits.end(), values.begin(), values.end());
  }
  // Rows 1, 3 (or an overflow as well), 4 and 5 are complete or overflow as on the CPU.
  ExpectSame(plan, logits, kVocab);
}

TEST_F(BackendListsTest, SlackDecidesWhatIsListed) {
  constexpr int64_t kVocab = 3000;
  StepPlan plan = PlanOfRows(4);
  plan.needs = {Top(0, 4, 1, true), Top(1, 4, 1, true), Top(2, 4, 3, true), GumbelNeed(3, 5, 1, 1)};
  plan.needs[0].slack = 0.05;
  plan.needs[1].slack = 0.5;  // may overflow
  plan.needs[2].slack = 0.2;
  for (uint64_t seed = 0; seed < 20; ++seed)
    ExpectSame(plan, RandomLogits(4 * kVocab, seed, /*spread=*/1), kVocab);
}

TEST_F(BackendListsTest, BadLogitsAreNamedAndNeverListed) {
  constexpr int64_t kVocab = 20000;
  StepPlan plan = PlanOfRows(4);
  plan.needs = {Top(0, 4, 1, true), GumbelNeed(1, 1, 1, 0x5), Top(2, 4, 1, true),
                GumbelNeed(3, 1, 1, 0x1)};
  std::vector<float> logits = RandomLogits(4 * kVocab, 3);
  logits[0 * kVocab + 19999] = std::numeric_limits<float>::quiet_NaN();
  logits[1 * kVocab + 8192] = kInfiniteLogit;
  logits[1 * kVocab + 8193] = -std::numeric_limits<float>::quiet_NaN();
  logits[2 * kVocab] = kInfiniteLogit;
  ExpectSame(plan, logits, kVocab);
}

// Huge, denormal and cancelling values.
TEST_F(BackendListsTest, ExtremeLogits) {
  constexpr int64_t kVocab = 2000;
  StepPlan plan = PlanOfRows(4);
  plan.needs = {Top(0, 4, 1, true), GumbelNeed(1, 1, 1, 1), Top(2, 4, 1e-3, true),
                GumbelNeed(3, 1, 0.5, 1)};
  std::vector<float> logits;
  for (int row = 0; row < 4; ++row) {
    for (const float value : RandomLogits(kVocab, row)) {
      const float scale = row == 0 ? 1e-40f : row == 1 ? 1e-38f : row == 2 ? 1e37f : 1e4f;
      logits.push_back(value * scale);
    }
  }
  ExpectSame(plan, logits, kVocab);
}

// What is in no list is proven to be behind: with keys that are too coarse, the row is fetched.
TEST_F(BackendListsTest, CoarseNoisyKeysAreNotTrusted) {
  constexpr int64_t kVocab = 2000;
  StepPlan plan = PlanOfRows(1);
  plan.needs = {GumbelNeed(0, 1, 1, 1)};
  std::vector<float> logits = RandomLogits(kVocab, 1, /*spread=*/0.1f);
  for (float& logit : logits) logit = std::max(logit, -1.0f) + 16777216.0f;  // in units of 2
  ListPass pass(cuda_.get(), logits, kVocab);
  const StepRows* rows = RunStep(cuda_->get(), plan, &pass).value();
  ASSERT_NE(rows->Listed(0), nullptr);
  EXPECT_FALSE(sampling::IsComplete(plan.needs[0], *rows->Listed(0), {}));
}

TEST_F(BackendListsTest, FetchedRowsComeFromTheDevice) {
  constexpr int64_t kVocab = 5000;
  const std::vector<float> logits = RandomLogits(5 * kVocab, 9);
  StepPlan plan = TopPlan(5, 4);
  plan.needs[3] = RowNeed();
  plan.needs[3].row = 3;
  ListPass pass(cuda_.get(), logits, kVocab);
  const StepRows* rows = RunStep(cuda_->get(), plan, &pass).value();
  const auto row = [&](int need) {
    return std::vector<float>(logits.begin() + need * kVocab, logits.begin() + (need + 1) * kVocab);
  };
  for (const std::vector<int32_t>& needs :
       {std::vector<int32_t>{0}, std::vector<int32_t>{1, 3, 4}}) {
    StepPlan fetch;
    fetch.fetch = needs;
    ASSERT_EQ(RunStep(cuda_->get(), fetch, nullptr).value(), rows);
  }
  for (const int need : {0, 1, 3, 4}) EXPECT_THAT(rows->Whole(need), ElementsAreArray(row(need)));
  ASSERT_NE(rows->Listed(2), nullptr);
  ExpectListsTop(*rows->Listed(2), row(2), 4);
}

// Few small rows are not worth the launches.
TEST(CudaListsTest, SmallRowsGoWholeUnlessListsAreForced) {
  const auto backend = TestBackend::Make("cuda");
  for (const int64_t vocab : {1000, 100000}) {
    ListPass pass(backend.get(), RandomLogits(vocab, 1), vocab);
    const StepRows* rows = RunStep(backend->get(), TopPlan(1, 4), &pass).value();
    EXPECT_EQ(rows->Listed(0) != nullptr, vocab == 100000);
  }
}

}  // namespace
}  // namespace coppice::kernels
