// A step on one rank: what runs when, which rows the ops work on, and how rows are delivered.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "tests/kernels/kernel_fixture.h"
#include "tests/kernels/row_pass.h"

namespace coppice::kernels {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kVocab = 600;

class StepTest : public testing::Test {
 protected:
  std::unique_ptr<Backend> Make(bool always_list) {
    return MakeBackend(
               {.threads = &threads_, .communicator = one_.get(), .always_list = always_list})
        .value();
  }

  ThreadTeam threads_{2};
  std::unique_ptr<comm::Communicator> one_ = comm::MakeSingleCommunicator();
  std::unique_ptr<Backend> plain_ = Make(false), listing_ = Make(true);
};

// Logs the calls.
class LoggedPass : public Pass {
 public:
  void Body(Ops* ops) override {
    log.push_back(std::string("body") + (ops->has_rows() ? " rows" : "") +
                  (ops->has_needs() ? " needs" : ""));
  }
  void Head(Ops*) override { log.push_back("head"); }

  std::vector<std::string> log;
};

TEST_F(StepTest, HeadRunsWhenTheStepIsWaitedFor) {
  LoggedPass pass;
  StepPlan plan = PlanOfRows(2);
  plan.needs.resize(1);
  ASSERT_TRUE(plain_->Submit(plan, &pass).ok());
  EXPECT_TRUE(plain_->HeadReached());
  EXPECT_THAT(pass.log, ElementsAre("body rows needs"));
  ASSERT_TRUE(plain_->Wait().ok());
  EXPECT_THAT(pass.log, ElementsAre("body rows needs", "head"));
}

TEST_F(StepTest, APlanWithoutNeedsHasNoHead) {
  LoggedPass pass;
  for (const StepPlan& plan : {PlanOfRows(2), StepPlan()}) {
    ASSERT_TRUE(plain_->Submit(plan, &pass).ok());
    ASSERT_TRUE(plain_->Wait().ok());
  }
  EXPECT_THAT(pass.log, ElementsAre("body rows", "body"));
}

TEST_F(StepTest, OpsWorkOnTheRowsOfThePlanThenOnThoseWithNeeds) {
  std::vector<float> x = RandomFloats(6 * 4, 1), wide = RandomFloats(6 * 10, 2);
  const std::vector<float> x_before = x, wide_before = wide;
  std::vector<float> before(6 * 5, -1.0f), after(6 * 5, -1.0f);
  StepPlan plan = PlanOfRows(5);
  plan.needs = {{.row = 1}, {.row = 4}};
  RunOps(plain_.get(), plan, [&](Ops* ops) {
    ops->Activate(Activation::kSilu, TensorOf(&wide, 10), TensorOf(&before, 5));
    ops->GatherRows({TensorOf(&x, 4), TensorOf(&wide, 10)});
    ops->Activate(Activation::kSilu, TensorOf(&wide, 10), TensorOf(&after, 5));
  });
  for (int place = 0; place < 2; ++place) {
    const int row = plan.needs[place].row;
    EXPECT_EQ(std::memcmp(&x[place * 4], &x_before[row * 4], 4 * sizeof(float)), 0);
    EXPECT_EQ(std::memcmp(&wide[place * 10], &wide_before[row * 10], 10 * sizeof(float)), 0);
    EXPECT_EQ(std::memcmp(&after[place * 5], &before[row * 5], 5 * sizeof(float)), 0);
  }
  for (int i = 5 * 5; i < 6 * 5; ++i) EXPECT_EQ(before[i], -1.0f);
  for (int i = 2 * 5; i < 6 * 5; ++i) EXPECT_EQ(after[i], -1.0f);
}

// Many rows, so that the threads share them.
TEST_F(StepTest, ScattersShortRowsOverTheirPlaces) {
  constexpr int kRows = 40, kPlaces = 20'000;
  std::vector<int32_t> ids;
  for (int32_t id = 3; id < kPlaces; id += 1 + id % 5) ids.push_back(id);
  const auto kept_columns = static_cast<int64_t>(ids.size());
  const auto scatter = plain_->PackScatter(ids, kPlaces).value();
  std::vector<float> kept = RandomFloats(kRows * kept_columns, 5);
  std::vector<float> wide((kRows + 1) * kPlaces, 7.0f), expected(wide);
  std::fill_n(expected.begin(), kRows * kPlaces, -std::numeric_limits<float>::infinity());
  for (int row = 0; row < kRows; ++row) {
    for (size_t i = 0; i < ids.size(); ++i)
      expected[row * kPlaces + ids[i]] = kept[row * kept_columns + i];
  }
  RunOps(plain_.get(), PlanOfRows(kRows), [&](Ops* ops) {
    ops->Scatter(*scatter, TensorOf(&kept, kept_columns), TensorOf(&wide, kPlaces));
  });
  EXPECT_EQ(wide, expected);
}

TEST_F(StepTest, ServesTheLogitsThemselvesAsWholeRows) {
  RowPass pass(RandomFloats(3 * kVocab, 3), kVocab, 0, 1);
  const StepRows* rows = RunStep(plain_.get(), TopPlan(3, 4), &pass).value();
  for (int need = 0; need < 3; ++need) {
    EXPECT_EQ(rows->Whole(need).data(), pass.logits.data() + need * kVocab);
    EXPECT_EQ(rows->Whole(need).size(), size_t{kVocab});
    EXPECT_EQ(rows->Listed(need), nullptr);
  }
}

TEST_F(StepTest, ListsWhereAskedTo) {
  RowPass pass(RandomFloats(3 * kVocab, 3), kVocab, 0, 1);
  StepPlan plan = TopPlan(3, 4);
  plan.needs[1].form = RowNeed::Form::kWhole;
  const StepRows* rows = RunStep(listing_.get(), plan, &pass).value();
  EXPECT_THAT(rows->Whole(1), testing::ElementsAreArray(pass.Row(1)));
  EXPECT_EQ(rows->Listed(1), nullptr);
  for (const int need : {0, 2}) {
    EXPECT_TRUE(rows->Whole(need).empty());
    ASSERT_NE(rows->Listed(need), nullptr);
    ExpectListsTop(*rows->Listed(need), pass.Row(need), 4);
  }
}

TEST_F(StepTest, FetchMakesListedRowsWholeAndKeepsTheOthers) {
  RowPass pass(RandomFloats(3 * kVocab, 3), kVocab, 0, 1);
  const StepRows* rows = RunStep(listing_.get(), TopPlan(3, 4), &pass).value();
  StepPlan fetch;
  fetch.fetch = {2};
  ASSERT_EQ(RunStep(listing_.get(), fetch, nullptr).value(), rows);
  EXPECT_EQ(rows->Listed(2), nullptr);
  const absl::Span<const float> fetched = rows->Whole(2);
  EXPECT_THAT(fetched, testing::ElementsAreArray(pass.Row(2)));
  ExpectListsTop(*rows->Listed(0), pass.Row(0), 4);

  fetch.fetch = {0, 2};  // one that was fetched before, and one that is already whole
  ASSERT_TRUE(RunStep(listing_.get(), fetch, nullptr).ok());
  EXPECT_THAT(rows->Whole(0), testing::ElementsAreArray(pass.Row(0)));
  EXPECT_EQ(rows->Whole(2).data(), fetched.data());
  EXPECT_THAT(rows->Whole(2), testing::ElementsAreArray(pass.Row(2)));
}

TEST_F(StepTest, FetchNamesANeedThatTheStepBeforeDidNotHave) {
  RowPass pass(RandomFloats(3 * kVocab, 3), kVocab, 0, 1);
  ASSERT_TRUE(RunStep(listing_.get(), TopPlan(3, 4), &pass).ok());
  StepPlan fetch;
  for (const int need : {3, -1}) {
    fetch.fetch = {need};
    const absl::Status status = listing_->Submit(fetch, nullptr);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(absl::StrCat("need ", need)));
    EXPECT_THAT(status.message(), HasSubstr("had 3 needs"));
  }
  // A step with only commits keeps the rows of the last one. A step with rows does not.
  fetch.fetch = {0};
  RunOps(listing_.get(), StepPlan(), [](Ops*) {});
  EXPECT_TRUE(RunStep(listing_.get(), fetch, nullptr).ok());
  RunOps(listing_.get(), PlanOfRows(1), [](Ops*) {});
  EXPECT_THAT(listing_->Submit(fetch, nullptr).message(), HasSubstr("had 0 needs"));
}

TEST_F(StepTest, CommitsNeedNoRows) {
  const auto pool = plain_->MakeKvPool({1, 1, 8, 4, DType::kF32}).value();
  std::vector<float> qkv = RandomFloats(3 * 8, 1), seen(8);
  StepPlan store = PlanOfRows(1);
  store.slot = {20};
  RunOps(plain_.get(), store,
         [&](Ops* ops) { ops->RopeAndStoreKv(0, {}, TensorOf(&qkv, 24), pool.get()); });
  StepPlan commit;
  commit.commits = {{20, 48}};
  RunOps(plain_.get(), commit, [&](Ops* ops) { ops->CommitKv(pool.get()); });
  StepPlan read = PlanOfRows(1);  // sees only the token that was moved, so it returns its value
  read.table = {3};
  read.table_begin = {0, 1};
  RunOps(plain_.get(), read, [&](Ops* ops) {
    ops->Attention(0, {.scale = 1}, TensorOf(&qkv, 24), *pool, TensorOf(&seen, 8));
  });
  EXPECT_THAT(seen, testing::ElementsAreArray(qkv.begin() + 16, qkv.end()));
}

TEST_F(StepTest, AllocatesF32Alone) {
  const Tensor tensor = plain_->Allocate(3, 5, DType::kF32).value();
  EXPECT_EQ(tensor.rows, 3);
  EXPECT_EQ(tensor.columns, 5);
  EXPECT_FALSE(tensor.empty());
  EXPECT_THAT(plain_->Allocate(3, 5, DType::kBF16).status().message(), HasSubstr("BF16 [3, 5]"));
  EXPECT_FALSE(plain_->Allocate(0, 5, DType::kF32).ok());
}

}  // namespace
}  // namespace coppice::kernels
