#include "worker/round_costs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace coppice::worker {
namespace {

constexpr DraftShape kShape{2, 2};

// A step of 10 ms and 2 ms for each row.
double Affine(int rows) { return 0.010 + 0.002 * rows; }

TEST(RoundCostsTest, AStepHasAsManyRowsAsTakeTheTimeItMay) {
  RoundCosts costs;
  EXPECT_EQ(costs.RowsWithin(0.1, 512), 512);  // nothing is known
  for (const int rows : {1, 8, 32, 128, 512}) costs.RecordStep(rows, Affine(rows), true);
  EXPECT_EQ(costs.RowsWithin(2, 512), 512);
  EXPECT_EQ(costs.RowsWithin(2, 300), 300);
  EXPECT_NEAR(costs.RowsWithin(0.1, 512), 45, 12);  // sizes are known by steps of a quarter
  EXPECT_NEAR(costs.RowsWithin(0.5, 512), 245, 32);
  // A step of one row takes 12 ms, and one of twice that long is allowed.
  EXPECT_NEAR(costs.RowsWithin(0.001, 512), 7, 1);
}

// Only large steps are known. They get smaller until they are short enough.
TEST(RoundCostsTest, StepsGetSmallerUntilOneIsShortEnough) {
  RoundCosts costs;
  costs.RecordStep(512, Affine(512), true);
  std::vector<int> sizes;
  for (int i = 0; i < 6; ++i) {
    const int rows = costs.RowsWithin(0.1, 512);
    sizes.push_back(rows);
    costs.RecordStep(rows, Affine(rows), true);
  }
  EXPECT_EQ(sizes[0], 256);
  EXPECT_EQ(sizes[1], 128);
  EXPECT_NEAR(sizes[5], 45, 8);
}

// One row and a prompt are known. Eight rows take no longer than one, or their share of the prompt.
TEST(RoundCostsTest, ASizeThatIsNotKnownIsNeverTakenForADearOne) {
  RoundCosts costs;
  EXPECT_EQ(costs.Step(4, true), 0);
  costs.RecordStep(1, 0.010, true);
  costs.RecordStep(256, 0.160, true);
  EXPECT_NEAR(costs.Step(8, true), 0.010, 1e-9);
  EXPECT_NEAR(costs.Step(64, true), 0.040, 1e-9);
  EXPECT_NEAR(costs.Step(512, true), 0.160, 1e-9);
  EXPECT_NEAR(costs.Step(1024, true), 0.320, 1e-9);
}

// In every second stretch of 40 steps the machine takes 1.5 times as long. Size 5 is measured only
// there. With a separate mean for each size, it would seem 1.8 times as expensive as size 3.
TEST(RoundCostsTest, TheRatioOfSizesSurvivesADriftingMachine) {
  const auto cost = [](int rows) { return rows == 5 ? 0.012 : 0.010; };
  RoundCosts costs;
  for (int i = 0; i < 30; ++i) costs.RecordStep(i % 2 == 0 ? 3 : 5, cost(i % 2 == 0 ? 3 : 5), true);
  double worst = 0;
  for (int i = 0; i < 2000; ++i) {
    const bool slow = i / 40 % 2 == 1;
    const int rows = slow && i % 10 == 0 ? 5 : 3;
    costs.RecordStep(rows, cost(rows) * (slow ? 1.5 : 1.0), true);
    worst = std::max(worst, std::abs(costs.Step(5, true) / costs.Step(3, true) / 1.2 - 1));
    if (i % 40 == 39) {
      EXPECT_NEAR(costs.Step(3, true), slow ? 0.015 : 0.010, 0.0008) << i;
    }
  }
  EXPECT_LT(worst, 0.25);
}

// Draft nodes on the same cores slow the target. That is no slower machine, and a step of the same
// rows without drafts takes what it took.
TEST(RoundCostsTest, AStepBesideDraftsSaysNothingAboutOnesWithout) {
  RoundCosts costs;
  for (int i = 0; i < 20; ++i) costs.RecordStep(4, 0.010, /*alone=*/true);
  for (int i = 0; i < 20; ++i) costs.RecordStep(4, 0.015, /*alone=*/false);
  for (int i = 0; i < 200; ++i) {
    costs.RecordStep(4, 0.020, /*alone=*/false);
    costs.RecordStep(8, 0.024, /*alone=*/false);
  }
  EXPECT_NEAR(costs.Step(4, true), 0.010, 1e-4);
  EXPECT_NEAR(costs.Step(4, false), 0.020, 1e-4);
  EXPECT_NEAR(costs.Step(8, true), 0.024, 1e-3) << "not measured without drafts";
}

TEST(RoundCostsTest, OneStallIsNotBelieved) {
  RoundCosts costs;
  for (int i = 0; i < 100; ++i) costs.RecordStep(3, 0.010, true);
  costs.RecordStep(3, 10.0, true);
  EXPECT_LT(costs.Step(3, true), 0.013);
  costs.RecordStep(3, 0, true);  // a time of 0 is ignored
  EXPECT_LT(costs.Step(3, true), 0.013);
  EXPECT_GT(costs.Step(3, true), 0.009);
}

// 1 ms a level and 0.1 ms for each of its nodes.
TEST(RoundCostsTest, ADraftTakesLongerWithItsLevelsAndWithTheNodesOfAllThatDraft) {
  RoundCosts costs;
  EXPECT_EQ(costs.Draft({}, 1), 0);
  const auto node_s = [](DraftShape shape, int drafting) {
    return shape.depth * (0.001 + 0.0001 * shape.width * drafting);
  };
  for (int i = 0; i < 300; ++i) {
    for (const int drafting : {1, 8}) {
      for (const DraftShape shape : {kShape, DraftShape{4, 3}}) {
        const double s = node_s(shape, drafting);
        costs.RecordDraft(shape, s, s, drafting);
      }
    }
  }
  for (const DraftShape shape : {DraftShape{1, 1}, DraftShape{3, 2}, DraftShape{4, 6}}) {
    for (const int drafting : {1, 4, 8}) {
      EXPECT_NEAR(costs.Draft(shape, drafting) / node_s(shape, drafting), 1, 0.06)
          << shape.width << " x " << shape.depth << ", " << drafting;
    }
  }
}

// A draft that came during a step was seen at its end.
TEST(RoundCostsTest, ADraftThatIsSeenLateCountsWithItsOwnTimeAndThatOfMessages) {
  RoundCosts costs;
  for (int i = 0; i < 50; ++i) costs.RecordDraft(kShape, i % 10 == 0 ? 0.0024 : 0.010, 0.002, 1);
  EXPECT_NEAR(costs.Draft(kShape, 1), 0.0024, 1e-4);
  costs.RecordDraft(kShape, 0.001, 0.002, 1);  // the node says that it worked longer than it took
  EXPECT_NEAR(costs.Draft(kShape, 1), 0.002, 1e-4);
}

// Products take 3 ms up to 200 rows and their share beyond, but for a size that is slow.
std::vector<kernels::RowCost> Products() {
  std::vector<kernels::RowCost> products;
  for (const int rows : {1, 8, 32, 48, 64, 128, 192, 256, 320, 512})
    products.push_back({rows, rows == 48 ? 0.0042 : 0.003 * std::max(1.0, rows / 200.0)});
  return products;
}

// A pass takes 1 ms besides its products.
TEST(RoundCostsTest, SizesThatWereNotMeasuredDifferAsTheirProducts) {
  RoundCosts costs;
  costs.Expect(Products());
  EXPECT_EQ(costs.Step(1, true), 0);  // no step has run
  costs.RecordStep(30, 0.004, true);
  EXPECT_NEAR(costs.Step(32, true), 0.004, 1e-9);
  EXPECT_NEAR(costs.Step(1, true), 0.004, 1e-9);
  EXPECT_NEAR(costs.Step(40, true), 0.0052, 1e-9);
  EXPECT_NEAR(costs.Step(192, true), 0.004, 1e-9);
  EXPECT_NEAR(costs.Step(193, true), 0.00484, 1e-9);  // as 256 rows
  EXPECT_NEAR(costs.Step(512, true), 0.00868, 1e-9);
  costs.RecordStep(300, 0.007, true);  // slower than was expected
  EXPECT_NEAR(costs.Step(320, true), 0.007, 1e-9);
  EXPECT_NEAR(costs.Step(512, true), 0.00988, 1e-9);
  EXPECT_NEAR(costs.Step(256, true), 0.00484, 1e-9);
}

TEST(RoundCostsTest, TheRidgeIsWhereRowsBeginToCost) {
  const int none = std::numeric_limits<int>::max();
  RoundCosts costs;
  EXPECT_EQ(costs.ridge(), none);
  costs.Expect(Products());
  EXPECT_EQ(costs.ridge(), 192);
  RoundCosts flat, dear;
  flat.Expect(std::vector<kernels::RowCost>{{1, 0.003}, {64, 0.003}, {512, 0.0031}});
  EXPECT_EQ(flat.ridge(), 512);
  dear.Expect(std::vector<kernels::RowCost>{{1, 0.001}, {2, 0.002}, {4, 0.004}});
  EXPECT_EQ(dear.ridge(), 1);
}

}  // namespace
}  // namespace coppice::worker
