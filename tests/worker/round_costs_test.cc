#include "worker/round_costs.h"

#include <gtest/gtest.h>

#include <vector>

namespace coppice::worker {
namespace {

constexpr DraftShape kShape{2, 2};

// Passes of up to 16 rows take 10 ms, above that twice as long.
RoundCosts Costs(double draft_s) {
  RoundCosts costs({{1, 0.010}, {16, 0.010}, {32, 0.020}});
  costs.RecordDraft(kShape, draft_s);
  return costs;
}

TEST(RoundCostsTest, OneSequenceWaitsForItsDraftAndForItsPass) {
  EXPECT_NEAR(Costs(0.003).Turn(1, 8, kShape), 0.013, 1e-9);
  EXPECT_NEAR(Costs(0.003).Turn(1, 8, {}), 0.010, 1e-9);
}

TEST(RoundCostsTest, SeveralShareAPassIfThatIsFaster) {
  EXPECT_NEAR(Costs(0.003).Turn(2, 16, kShape), 0.013, 1e-9);
  EXPECT_NEAR(Costs(0.003).Turn(2, 16, {}), 0.010, 1e-9);
}

// Two passes of 16 rows take as long as one of 32. The draft of one group comes during the pass of
// the other, unless it takes longer than that.
TEST(RoundCostsTest, OtherwiseTwoGroupsTakeTurns) {
  EXPECT_NEAR(Costs(0.003).Turn(4, 32, kShape), 0.020, 1e-9);
  EXPECT_NEAR(Costs(0.015).Turn(4, 32, kShape), 0.025, 1e-9);
  EXPECT_NEAR(Costs(0.003).Turn(3, 24, kShape), 0.020, 1e-9);  // groups of two and one
  EXPECT_NEAR(Costs(0.003).Turn(4, 32, {}), 0.020, 1e-9);      // without drafts all share
}

// A pass of 10 ms and 2 ms for each row.
TEST(RoundCostsTest, APassHasAsManyRowsAsTakeTheTimeItMay) {
  RoundCosts costs({});
  EXPECT_EQ(costs.RowsWithin(0.1, 512), 512);  // nothing is known
  for (const int rows : {1, 8, 32, 128, 512}) costs.RecordPass(rows, 0.010 + 0.002 * rows);
  EXPECT_EQ(costs.RowsWithin(2, 512), 512);
  EXPECT_EQ(costs.RowsWithin(2, 300), 300);
  EXPECT_NEAR(costs.RowsWithin(0.1, 512), 45, 8);  // sizes are known by steps of a quarter
  EXPECT_NEAR(costs.RowsWithin(0.5, 512), 245, 32);
  // A pass of one row takes 12 ms, and one of twice that long is allowed.
  EXPECT_NEAR(costs.RowsWithin(0.001, 512), 7, 1);
}

// Only large passes are known. They get smaller until they are short enough.
TEST(RoundCostsTest, PassesGetSmallerUntilOneIsShortEnough) {
  RoundCosts costs({});
  costs.RecordPass(512, 0.010 + 0.002 * 512);
  std::vector<int> sizes;
  for (int i = 0; i < 6; ++i) {
    const int rows = costs.RowsWithin(0.1, 512);
    sizes.push_back(rows);
    costs.RecordPass(rows, 0.010 + 0.002 * rows);
  }
  EXPECT_EQ(sizes[0], 256);
  EXPECT_EQ(sizes[1], 128);
  EXPECT_NEAR(sizes[5], 45, 8);
}

// A draft node that serves more sequences answers each later.
TEST(RoundCostsTest, DraftsTakeLongerWhenMoreSequencesHaveThem) {
  RoundCosts costs({{1, 0.010}, {64, 0.010}});
  for (int i = 0; i < 100; ++i) {
    costs.RecordDraft(kShape, 0.002, 1);
    costs.RecordDraft(kShape, 0.009, 16);
  }
  EXPECT_NEAR(costs.Draft(kShape), 0.002, 2e-4);
  EXPECT_NEAR(costs.Draft(kShape, 16), 0.009, 5e-4);
  EXPECT_EQ(costs.Draft(kShape, 9), costs.Draft(kShape, 16));  // 9 to 16 are one load
  EXPECT_NEAR(costs.Turn(1, 2, kShape), 0.012, 4e-4);
  EXPECT_NEAR(costs.Turn(16, 32, kShape), 0.019, 9e-4);
}

// A draft that came during a pass was seen at its end.
TEST(RoundCostsTest, ADraftThatNobodySawComeCountsWithItsOwnTimeAndMessages) {
  RoundCosts costs({});
  costs.RecordMessages(0.0004);
  for (int i = 0; i < 50; ++i) costs.RecordUnseenDraft(kShape, 0.010, 0.002);
  EXPECT_NEAR(costs.Draft(kShape), 0.0024, 1e-6);
  RoundCosts quick({});  // seen soon after it came
  quick.RecordMessages(0.0004);
  quick.RecordUnseenDraft(kShape, 0.0021, 0.002);
  EXPECT_NEAR(quick.Draft(kShape), 0.0021, 1e-6);
  RoundCosts unknown({});  // no draft was taken at once yet
  unknown.RecordUnseenDraft(kShape, 0.010, 0.002);
  EXPECT_NEAR(unknown.Draft(kShape), 0.002, 1e-6);
}

TEST(RoundCostsTest, MessagesFollowTheirMean) {
  RoundCosts costs({});
  costs.RecordMessages(0.001);
  for (int i = 0; i < 100; ++i) costs.RecordMessages(0.0002);
  costs.RecordMessages(-0.5);  // the node says it worked longer than the draft took: no messages
  costs.RecordUnseenDraft(kShape, 1, 0.002);
  EXPECT_NEAR(costs.Draft(kShape), 0.00218, 1e-5);
}

// What was asked before a record does not answer for it.
TEST(RoundCostsTest, EveryRecordCounts) {
  RoundCosts costs({});
  EXPECT_EQ(costs.Pass(4), 0);
  EXPECT_EQ(costs.Draft(kShape), 0);
  costs.RecordPass(4, 0.010);
  EXPECT_NEAR(costs.Pass(4), 0.010, 1e-9);
  costs.RecordPass(8, 0.016);
  EXPECT_NEAR(costs.Pass(6), 0.013, 1e-4);
  costs.RecordDraft(kShape, 0.003);
  EXPECT_NEAR(costs.Draft(kShape), 0.003, 1e-9);
  costs.RecordDraft({}, 7);  // no draft
  EXPECT_NEAR(costs.Draft(kShape), 0.003, 1e-9);
}

}  // namespace
}  // namespace coppice::worker
