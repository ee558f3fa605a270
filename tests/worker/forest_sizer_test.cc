#include "worker/forest_sizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/worker/forest_sizer_fixture.h"

namespace coppice::worker {
namespace {

// The weights take as long as eight rows.
double Knee(int rows) { return 0.010 * std::max(8, rows) / 8; }

TEST(ForestSizerTest, FreeRowsGiveLargeForests) {
  ForestSizer sizer;
  Replica replica{FreeRows};
  replica.Run(&sizer, Limits(4), 300);
  const DraftShape usual = replica.Usual(&sizer, Limits(4), 300);
  EXPECT_GE(usual.width, 4);
  EXPECT_GE(usual.depth, 4);
}

TEST(ForestSizerTest, RowsThatCostInFullStopTheDrafting) {
  ForestSizer sizer;
  Replica replica{DearRows, 0.001, 0.6};
  replica.Run(&sizer, Limits(4), 300);
  EXPECT_EQ(replica.Usual(&sizer, Limits(4), 300).depth, 0);
}

// The first layer alone would suggest four layers: 1 + 0.9 + ... layers for little more time.
TEST(ForestSizerTest, DeepLayersThatAreSeldomCoveredAreLeftOut) {
  const auto cost = [](int rows) { return 0.010 + 0.001 * rows; };
  for (const double deep : {0.9, 0.1}) {
    ForestSizer sizer;
    Replica replica{cost, 0.001, 0.9, deep};
    replica.Run(&sizer, Limits(4), 300);
    const DraftShape usual = replica.Usual(&sizer, Limits(4), 300);
    if (deep > 0.5) {
      EXPECT_GE(usual.depth, 3);
    } else {
      EXPECT_EQ(usual.depth, 1);
    }
  }
}

TEST(ForestSizerTest, NarrowDraftsWhereALevelTakesLongerWithMoreNodes) {
  ForestSizer narrow, wide;
  for (int i = 0; i < 200; ++i) {
    for (const DraftShape shape : {DraftShape{1, 4}, DraftShape{8, 4}}) {
      narrow.costs()->RecordDraft(shape, 0, 0.0004 + 0.002 * shape.width, 1);
      wide.costs()->RecordDraft(shape, 0, 0.0024, 1);
    }
  }
  Replica dear{FreeRows}, cheap{FreeRows};
  dear.coverage = cheap.coverage = 0.5;
  for (Replica* replica : {&dear, &cheap}) replica->level_s = 0;  // drafts are recorded above
  dear.Run(&narrow, Limits(4), 60);
  cheap.Run(&wide, Limits(4), 60);
  EXPECT_LT(narrow.Choose("m", Limits(4)).width, wide.Choose("m", Limits(4)).width);
}

// All rows of a step count, so shapes shrink as sequences join.
TEST(ForestSizerTest, ManySequencesInOneStepGetSmallerForests) {
  ForestSizer sizer;
  Replica replica{[](int rows) { return 0.010 * std::max(32, rows) / 32; }};
  std::vector<int> nodes;
  for (const int running : {1, 4, 16}) {
    replica.next = {};
    replica.Run(&sizer, Limits(4, running), 300);
    const DraftShape usual = replica.Usual(&sizer, Limits(4, running), 300);
    nodes.push_back(usual.width * usual.depth);
  }
  EXPECT_GT(nodes[0], nodes[1]);
  EXPECT_GT(nodes[1], nodes[2]);
  EXPECT_LE(16 * (1 + nodes[2]), 64);
}

// ---- What no cost shows

// Layers suggest 1.9 times the speed. What hides takes it all, and a tenth more.
TEST(ForestSizerTest, HiddenCostsPauseDrafts) {
  ForestSizer sizer;
  Replica replica{Knee, 0.0002, 0.9};
  replica.hidden_s = 0.040;
  replica.Run(&sizer, Limits(1), 40000);
  EXPECT_LT(replica.drafted_share(), 0.04);
  EXPECT_GT(replica.drafted_share(), 0.002) << "it has never been tried";
  Replica without{Knee, 0.0002, 0.9};
  ForestSizer other;
  without.Run(&other, Limits(1), 4000);
  EXPECT_GT(without.drafted_share(), 0.9);
}

TEST(ForestSizerTest, DraftsComeBackWhenNothingIsHiddenAnyMore) {
  ForestSizer sizer;
  Replica replica{Knee, 0.0002, 0.9};
  replica.hidden_s = 0.040;
  replica.Run(&sizer, Limits(1), 500);
  replica.hidden_s = 0;
  replica.Run(&sizer, Limits(1), 20000);
  EXPECT_GT(replica.Usual(&sizer, Limits(1), 300).depth, 0);
}

// Another load has no part in it.
TEST(ForestSizerTest, APauseIsOfOneLoad) {
  ForestSizer sizer;
  Replica crowd{FreeRows};
  crowd.hidden_s = 0.040;
  crowd.Run(&sizer, Limits(1, 8), 300);
  EXPECT_EQ(crowd.Usual(&sizer, Limits(1, 8), 300).depth, 0);
  Replica alone{FreeRows};
  EXPECT_GT(alone.Usual(&sizer, Limits(1), 300).depth, 0);
}

// While all draft, steps without drafts become so fast that drafts no longer pay. Only such a step
// shows it.
TEST(ForestSizerTest, NowAndThenAStepWithoutDraftsShowsWhatItTakes) {
  ForestSizer sizer;
  bool fast = false;
  Replica replica{[&](int rows) { return fast && rows == 1 ? 0.001 : 0.010; }, 0.001, 0.7};
  replica.Run(&sizer, Limits(1), 500);
  EXPECT_GT(replica.Usual(&sizer, Limits(1), 100).depth, 0);
  fast = true;
  replica.Run(&sizer, Limits(1), 1500);
  EXPECT_EQ(replica.Usual(&sizer, Limits(1), 300).depth, 0);
}

// ---- Trials

// Drafts cover nothing.
TEST(ForestSizerTest, UselessDraftsAreTriedSeldom) {
  ForestSizer sizer;
  Replica replica{Knee, 0.0005, 0.02};
  replica.Run(&sizer, Limits(2), 1200);
  replica.chosen.clear();
  replica.Run(&sizer, Limits(2), 6000);
  EXPECT_LE(6000 - (replica.chosen[{0, 0}]), 6000 / 512 * 17 + 17);
}

// What a step with drafts takes was measured, and no longer holds.
TEST(ForestSizerTest, ATrialShowsThatRowsHaveBecomeCheap) {
  ForestSizer sizer;
  bool dear = true;
  Replica replica{[&](int rows) { return dear ? 0.002 * rows : 0.002; }, 0.0002, 0.7};
  replica.Run(&sizer, Limits(1), 300);
  EXPECT_EQ(replica.Usual(&sizer, Limits(1), 100).depth, 0);
  dear = false;
  replica.Run(&sizer, Limits(1), 15000);
  EXPECT_GT(replica.Usual(&sizer, Limits(1), 300).depth, 0);
}

// One sequence of sixteen takes the trial. That steps are slow meanwhile is not the drafts' fault.
TEST(ForestSizerTest, ATrialInACrowdDoesNotJudgeDraftsForAll) {
  ForestSizer sizer;
  Replica replica{FreeRows, 0.0002, 0.9};
  const SizerLimits limits = Limits(1, 16);
  replica.Run(&sizer, limits, 20);
  for (int i = 0; i < 40; ++i) {
    for (int s = 0; s < 16; ++s)
      sizer.RecordRound("m", 1, limits.draft, s == 0 ? DraftShape{2, 2} : DraftShape{}, 1);
    sizer.RecordStep({20, 0, 16, 16, false, 0.010, 0.100});
  }
  EXPECT_GT(sizer.Choose("m", limits).depth, 0);
}

// ---- Limits and requests

TEST(ForestSizerTest, KeepsToTheRequestsNumbersAndToTheRoom) {
  ForestSizer sizer;
  SizerLimits limits = Prescribed(5, 7);
  DraftShape shape = sizer.Choose("m", limits);
  EXPECT_EQ(shape.width, 5);
  EXPECT_EQ(shape.depth, 7);
  limits.max_nodes = 12;
  EXPECT_EQ(sizer.Choose("m", limits).depth, 2);
  limits.max_depth = 1;
  EXPECT_EQ(sizer.Choose("m", limits).depth, 1);
  limits.max_depth = 0;
  EXPECT_EQ(sizer.Choose("m", limits).depth, 0);
}

// It drafts from its first round on, and also while drafts are paused for the others.
TEST(ForestSizerTest, APrescribedShapeIsNeitherJudgedNorPaused) {
  ForestSizer sizer;
  Replica replica{DearRows, 0.001, 0.02};
  const SizerLimits own = Prescribed(2, 3);
  replica.next = sizer.Choose("m", own);
  replica.Run(&sizer, own, 500);
  EXPECT_EQ(replica.chosen.size(), 1u);
  EXPECT_EQ((replica.chosen[{2, 3}]), 500);
}

TEST(ForestSizerTest, APathHasOneNodeALayerAndMayBeLeftOut) {
  SizerLimits limits = Limits(1);
  limits.draft.width = 1;  // from the method's form, since the request leaves the shape open
  ForestSizer paying, wasting;
  Replica cheap{FreeRows}, dear{DearRows, 0.1, 0.02};
  cheap.Run(&paying, limits, 200);
  for (const auto& [shape, count] : cheap.chosen) EXPECT_LE(shape.first, 1);
  EXPECT_GE(cheap.Usual(&paying, limits, 200).depth, 2);
  dear.Run(&wasting, limits, 300);
  EXPECT_EQ(dear.Usual(&wasting, limits, 300).depth, 0);
}

TEST(ForestSizerTest, AStaticTreeIsCutToWholeLayersThatFit) {
  ForestSizer sizer;
  SizerLimits limits = Limits(1);
  limits.draft.chosen = true;
  limits.draft.tree = *decoding::ParseTopology("4-2-1");  // layers of 4, 8 and 8 nodes
  limits.draft.width = 4;
  limits.draft.depth = 3;
  const auto expect = [&](int width, int depth) {
    const DraftShape shape = sizer.Choose("m", limits);
    EXPECT_EQ(shape.width, width);
    EXPECT_EQ(shape.depth, depth);
  };
  expect(4, 3);
  limits.max_nodes = 19;
  expect(4, 2);
  limits.max_nodes = 3;
  expect(0, 0);
  limits.max_nodes = 20;
  limits.max_depth = 1;
  expect(4, 1);
  limits.draft.tree = *decoding::ParseTopology("chain");
  limits.draft.width = 1;
  limits.draft.depth = 0;
  limits.max_depth = 3;
  EXPECT_EQ(sizer.Choose("m", limits).width, 1);
}

TEST(ForestSizerTest, AMethodThatDraftsNothingGetsNoForest) {
  SizerLimits limits = Limits(1);
  limits.draft.drafts = false;
  ForestSizer sizer;
  Replica replica{FreeRows};
  replica.Run(&sizer, limits, 300);
  EXPECT_EQ(sizer.Choose("m", limits).depth, 0);
}

// Drafts that are nearly always right would pay beyond 200 rows, too, though hardly: what is known of
// rows and layers is not so exact. A request that prescribes its draft has it.
TEST(ForestSizerTest, AllForestsTogetherStayLeftOfTheRidge) {
  const auto cost = [](int rows) { return 0.0035 * std::max(1.0, rows / 200.0); };
  std::vector<kernels::RowCost> products;
  for (const int rows : {1, 64, 128, 192, 256, 320, 512}) products.push_back({rows, cost(rows)});
  for (const int running : {4, 64, 250}) {
    for (const bool told : {true, false}) {
      ForestSizer sizer;
      if (told) sizer.costs()->Expect(products);
      Replica replica{cost, 0.00001, 0.99};
      const SizerLimits limits = Limits(1, running);
      int most = 0, drafted = 0;
      for (int step = 0; step < 400; ++step) {
        const DraftShape shape = replica.next;
        most = std::max(most, running * (1 + shape.width * shape.depth));
        drafted += shape.depth > 0;
        replica.Step(&sizer, limits, shape);
      }
      if (!told) {
        EXPECT_EQ(most > 200, running > 4);
        continue;
      }
      EXPECT_LE(most, running > 200 ? running : 200);
      EXPECT_EQ(drafted > 100, running < 200) << drafted;
      SizerLimits prescribed = Prescribed(8, 8);
      prescribed.running = prescribed.roots = prescribed.plain_rows = running;
      EXPECT_EQ(sizer.Choose("m", prescribed).depth, 8);
    }
  }
}

}  // namespace
}  // namespace coppice::worker
