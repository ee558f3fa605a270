#include "worker/forest_sizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "tests/worker/forest_sizer_fixture.h"

namespace coppice::worker {
namespace {

DraftShape First(ForestSizer* sizer, int running) {
  SizerLimits limits = Limits(4);
  limits.running = running;
  return sizer->Choose("m", limits);
}

int Most(const std::map<std::pair<int, int>, int>& chosen, std::pair<int, int>* shape) {
  int most = 0;
  for (const auto& [key, count] : chosen) {
    if (count > most) {
      most = count;
      *shape = key;
    }
  }
  return most;
}

TEST(ForestSizerTest, StartsAtTwiceTheBeamWidthAndFourLayers) {
  ForestSizer sizer;
  const DraftShape wide = sizer.Choose("m", Limits(4));
  EXPECT_EQ(wide.width, 8);
  EXPECT_EQ(wide.depth, 4);
  const DraftShape single = ForestSizer().Choose("m", Limits(1));
  EXPECT_EQ(single.width, 4);
  EXPECT_EQ(single.depth, 4);
}

TEST(ForestSizerTest, FreeRowsGiveLargeForests) {
  ForestSizer sizer;
  std::pair<int, int> shape;
  const auto chosen = Simulate(
      &sizer, Limits(4), 600, [](int) { return 0.010; }, 0.0002, /*coverage=*/0.9);
  EXPECT_GT(Most(chosen, &shape), 150);
  EXPECT_GE(shape.second, 4);
}

TEST(ForestSizerTest, RowsThatCostInFullStopTheDrafting) {
  ForestSizer sizer;
  std::pair<int, int> shape;
  const auto chosen = Simulate(
      &sizer, Limits(4), 600, [](int rows) { return 0.001 * rows; }, 0.001,
      /*coverage=*/0.6);
  EXPECT_GT(Most(chosen, &shape), 250);
  EXPECT_EQ(shape.second, 0);
}

TEST(ForestSizerTest, ExploresNowAndThenAndComesBackWhenDraftsImprove) {
  ForestSizer sizer;
  const auto cost = [](int rows) { return rows <= 8 ? 0.010 : 0.010 * rows / 8; };
  Simulate(&sizer, Limits(2), 400, cost, 0.0005, /*coverage=*/0.02);
  std::pair<int, int> shape;
  Most(Simulate(&sizer, Limits(2), 2000, cost, 0.0005, /*coverage=*/0.95), &shape);
  EXPECT_GE(shape.second, 2);
  EXPECT_LE(shape.first * shape.second, 8);
}

// The first layer alone would suggest four layers: 1 + 0.9 + ... layers for little more time.
TEST(ForestSizerTest, DeepLayersThatAreSeldomCoveredAreLeftOut) {
  const auto cost = [](int rows) { return 0.010 + 0.001 * rows; };
  ForestSizer deep, shallow;
  std::pair<int, int> shape;
  Most(Simulate(&deep, Limits(4), 600, cost, 0.001, /*coverage=*/0.9), &shape);
  EXPECT_GE(shape.second, 3);
  Most(Simulate(&shallow, Limits(4), 600, cost, 0.001, /*coverage=*/0.9, /*deep_coverage=*/0.1),
       &shape);
  EXPECT_EQ(shape.second, 1);
}

// Times of a small pair on two cores, in milliseconds: rows and nodes of a level are far from free,
// and a narrow draft is right nearly as often as a wide one. The first `unlucky` rounds cover nothing.
// Returns the share of the rounds, and of the last third, that have a narrow deep draft.
std::pair<double, double> NarrowDrafts(int beam_width, double covered_by_one, int rounds,
                                       int unlucky = 0) {
  ForestSizer sizer;
  const SizerLimits limits = Limits(beam_width);
  unsigned state = 7;
  int narrow = 0, narrow_at_the_end = 0;
  for (int i = 0; i < rounds; ++i) {
    const DraftShape shape = sizer.Choose("m", limits);
    const double missed = (1 - covered_by_one) / std::sqrt(shape.width);
    int layers = 1;
    for (int l = 0; l < shape.depth; ++l) {
      state = state * 1664525u + 1013904223u;
      if (i < unlucky || (state >> 8) * 0x1p-24 < missed) break;
      ++layers;
    }
    sizer.RecordPass(1 + shape.width * shape.depth, 0.40 + 0.045 * shape.width * shape.depth);
    sizer.costs()->RecordDraft(shape, 0.03 + shape.depth * (0.05 + 0.02 * shape.width));
    sizer.RecordRound("m", beam_width, {shape, layers});
    if (shape.width > 2 || shape.depth < 3) continue;
    ++narrow;
    if (i >= rounds * 2 / 3) ++narrow_at_the_end;
  }
  return {static_cast<double>(narrow) / rounds, 3.0 * narrow_at_the_end / rounds};
}

// Shapes of 2 W nodes a layer, which are tried first, take more time than they save here.
TEST(ForestSizerTest, ANarrowDraftThatPaysIsFoundSoon) {
  for (const int beam_width : {1, 4}) {
    const auto [all, end] = NarrowDrafts(beam_width, /*covered_by_one=*/0.85, 180);
    EXPECT_GT(all, 0.6) << beam_width;
    EXPECT_GT(end, 0.75) << beam_width;
  }
}

TEST(ForestSizerTest, UnluckyFirstRoundsAreForgotten) {
  for (const int beam_width : {1, 4}) {
    const auto [all, end] = NarrowDrafts(beam_width, /*covered_by_one=*/0.85, 150, /*unlucky=*/40);
    EXPECT_GT(end, 0.7) << beam_width << " " << all;
  }
}

TEST(ForestSizerTest, HopeIsGivenUpWhereNarrowDraftsDoNotPay) {
  const auto [all, end] = NarrowDrafts(4, /*covered_by_one=*/0.3, 600);
  EXPECT_LT(all, 0.1);
  EXPECT_LT(end, 0.05);
}

// Rows are free. Where 4 nodes a level are much cheaper than 8, 8 do not cover enough more.
// A replica whose drafts miss the first layer with `missed` of the rounds, and with `missed_informed`
// of those that begin with the rows of an earlier forest, as do two thirds of the rounds after a miss.
// Returns the share of the last rounds that have a draft, by whether they are informed.
std::map<bool, double> InformedDrafts(double missed, double missed_informed) {
  ForestSizer sizer;
  unsigned state = 11;
  const auto chance = [&state] {
    state = state * 1664525u + 1013904223u;
    return (state >> 8) * 0x1p-24;
  };
  std::map<bool, int> rounds, drafted;
  NextShapes ahead;
  bool informed = false;
  for (int i = 0; i < 1500; ++i) {
    SizerLimits limits = Limits(4);
    limits.plain_rows = 4;
    limits.informed = informed;
    limits.roots = informed ? 1 : 4;
    const DraftShape shape = i == 0     ? sizer.Choose("m", limits)
                             : informed ? ahead.informed
                                        : ahead.uninformed;
    const bool covered = shape.depth > 0 && chance() >= (informed ? missed_informed : missed);
    const int rows = shape.depth > 0 ? limits.roots + shape.width * shape.depth : 4;
    sizer.RecordPass(rows, 0.0084 + 0.00015 * rows);
    sizer.costs()->RecordDraft(shape, 0.0022 * shape.depth);
    const bool next = shape.depth > 0 && !covered && chance() < 0.67;
    sizer.RecordRound("m", 4, {shape, covered ? 2 : 1, informed, next ? 1 : 0});
    if (i >= 1000) {
      ++rounds[informed];
      drafted[informed] += shape.depth > 0;
    }
    informed = next;
    ahead = sizer.ChooseAhead("m", limits);
  }
  std::map<bool, double> share;
  for (const auto& [of, count] : rounds) share[of] = static_cast<double>(drafted[of]) / count;
  return share;
}

// Drafts that alone would not pay inform later rounds, in which drafts pay well.
TEST(ForestSizerTest, ADraftIsWorthWhatItTellsTheNextRound) {
  const auto informing = InformedDrafts(/*missed=*/0.85, /*missed_informed=*/0.2);
  EXPECT_GT(informing.at(false), 0.8);
  EXPECT_GT(informing.at(true), 0.9);
  const auto vain = InformedDrafts(/*missed=*/0.85, /*missed_informed=*/0.85);
  EXPECT_LT(vain.at(false), 0.2);
}

// Rounds that are informed have other shapes than those that are not.
TEST(ForestSizerTest, OnlyInformedRoundsDraftWhereOnlyTheyPay) {
  const auto seldom = InformedDrafts(/*missed=*/0.99, /*missed_informed=*/0.4);
  EXPECT_GT(seldom.at(true), 0.5);
}

TEST(ForestSizerTest, TheCostOfADraftDependsOnItsWidth) {
  const std::vector<kernels::RowCost> free = {{1, 0.4}, {512, 0.4}};
  const auto choose = [&](double narrow_s) {
    ForestSizer sizer(free);
    sizer.costs()->RecordDraft({8, 4}, 0.2);
    sizer.costs()->RecordDraft({4, 4}, narrow_s);
    return First(&sizer, 1);
  };
  EXPECT_LE(choose(0.001).width, 4);
  EXPECT_EQ(choose(0.2).width, 8);
}

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

TEST(ForestSizerTest, APathHasOneNodeALayerAndMayBeLeftOut) {
  ForestSizer paying, wasting;
  SizerLimits limits = Limits(1);
  limits.draft.width = 1;  // from the method's form, since the request leaves the shape open
  const auto chosen = Simulate(
      &paying, limits, 200, [](int) { return 0.010; }, 0.0001, /*coverage=*/0.9);
  for (const auto& [shape, count] : chosen) EXPECT_LE(shape.first, 1);
  std::pair<int, int> shape;
  Most(chosen, &shape);
  EXPECT_GE(shape.second, 2);
  Most(Simulate(
           &wasting, limits, 600, [](int rows) { return 0.010 * rows; }, 0.1, /*coverage=*/0.02),
       &shape);
  EXPECT_EQ(shape.second, 0);
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
  EXPECT_EQ(ForestSizer().Choose("m", limits).depth, 0);
}

TEST(ForestSizerTest, ManySequencesInOnePassGetSmallerForests) {
  const auto cost = [](int rows) { return rows <= 32 ? 0.010 : 0.010 * rows / 32; };
  ForestSizer alone, crowded;
  std::pair<int, int> large, small;
  Most(Simulate(&alone, Limits(4), 600, cost, 0.0002, 0.75), &large);
  SizerLimits limits = Limits(4);
  limits.running = 16;
  Most(Simulate(&crowded, limits, 600, cost, 0.0002, 0.75), &small);
  EXPECT_LT(small.first * small.second, large.first * large.second);
  // The roots of all take two passes' worth of rows. One node a layer gives the most, in up to 4 layers.
  EXPECT_LE(small.first * small.second, 4);
}

// Four sequences choose in every step. A draft holds up all of them, so they try it together.
TEST(ForestSizerTest, SequencesThatShareStepsExploreInTheSameOnes) {
  ForestSizer sizer;
  SizerLimits limits = Limits(1);
  limits.running = 4;
  int mixed = 0, drafted = 0;
  for (int step = 0; step < 2000; ++step) {
    std::set<std::pair<int, int>> shapes;
    for (int i = 0; i < limits.running; ++i) {
      const DraftShape shape = sizer.Choose("m", limits);
      shapes.insert({shape.width, shape.depth});
      if (shape.depth == 0) continue;
      sizer.costs()->RecordDraft(shape, 0.02);
      sizer.RecordRound("m", 1, {shape, 1});
    }
    sizer.RecordPass(4, 0.010);
    mixed += shapes.size() > 1;
    drafted += *shapes.rbegin() != std::pair(0, 0);
  }
  EXPECT_EQ(mixed, 0);
  EXPECT_GT(drafted, 0);
}

// A request with numbers of its own and one without choose in the same steps.
TEST(ForestSizerTest, WhatOthersExploreIsNotForARequestWithNumbersOfItsOwn) {
  ForestSizer sizer;
  const SizerLimits own = Prescribed(2, 3);
  for (int step = 0; step < 500; ++step) {
    sizer.Choose("m", Limits(4));
    const DraftShape shape = sizer.Choose("m", own);
    EXPECT_EQ(std::pair(shape.width, shape.depth), std::pair(2, 3)) << step;
    sizer.RecordPass(8, 0.010);
  }
}

// One has a single beam, the other seven. Rows cost time, so that drafts would pay for the first alone.
TEST(ForestSizerTest, SequencesOfAStepDecideByTheRowsOfAll) {
  const std::vector<kernels::RowCost> costs = {
      {1, 0.001}, {4, 0.001}, {14, 0.0035}, {16, 0.01}, {32, 0.02}};
  for (const bool known : {false, true}) {
    ForestSizer sizer(costs);
    SizerLimits narrow = Limits(4), wide = Limits(4);
    narrow.running = wide.running = 2;
    narrow.roots = narrow.plain_rows = 1;
    wide.roots = wide.plain_rows = 7;
    if (known) narrow.all_roots = narrow.all_plain_rows = wide.all_roots = wide.all_plain_rows = 8;
    const DraftShape of_narrow = sizer.Choose("m", narrow);
    sizer.RecordPass(8, 0.002);
    const DraftShape of_wide = sizer.Choose("m", wide);
    if (known) {
      EXPECT_EQ(of_narrow.depth, of_wide.depth);
      EXPECT_EQ(of_narrow.width, of_wide.width);
    } else {
      EXPECT_NE(std::pair(of_narrow.width, of_narrow.depth),
                std::pair(of_wide.width, of_wide.depth));
    }
  }
}

// A sequence at its end, which can use one layer, does not decide what the others try.
TEST(ForestSizerTest, ASequenceAtItsEndExploresNothing) {
  const auto explored = [](bool with_the_end) {
    ForestSizer sizer({{1, 0.010}, {512, 0.010}});
    SizerLimits end = Limits(4);
    end.max_depth = 1;
    int deep = 0;
    for (int step = 0; step < 400; ++step) {
      if (with_the_end) sizer.Choose("m", end);
      const DraftShape shape = sizer.Choose("m", Limits(4));
      deep += shape.depth > 1;
      sizer.costs()->RecordDraft(shape, 1e-4 * shape.depth);
      sizer.RecordRound("m", 4, {shape, shape.depth + 1});
      sizer.RecordPass(8, 0.010);
    }
    return deep;
  };
  EXPECT_EQ(explored(true), 400);
  EXPECT_EQ(explored(false), 400);
}

// Drafts cover nothing and cost twice a pass. Returns in how many of the rounds from `begin` to
// `end` there was one.
int UselessDrafts(ForestSizer* sizer, int begin, int end) {
  int drafts = 0;
  for (int round = 0; round < end; ++round) {
    const DraftShape shape = sizer->Choose("m", Limits(4));
    sizer->RecordPass(1 + shape.width * shape.depth, 0.010);
    if (shape.depth == 0) continue;
    sizer->costs()->RecordDraft(shape, 0.020);
    sizer->RecordRound("m", 4, {shape, 1});
    if (round >= begin) ++drafts;
  }
  return drafts;
}

TEST(ForestSizerTest, ExplorationBecomesRareWhileNoDraftPays) {
  ForestSizer sizer;
  EXPECT_LE(UselessDrafts(&sizer, 1000, 4000), 3000 / 192 + 1);
  // Drafts become right, and are found to be.
  std::pair<int, int> shape;
  Most(Simulate(
           &sizer, Limits(4), 8000, [](int) { return 0.010; }, 1e-5, 0.95),
       &shape);
  EXPECT_GT(shape.second, 0);
}

// ---- With products that were measured before the first pass

// Weights are read in `floor_s`, in which `ridge` rows can be computed; passes are padded.
std::vector<kernels::RowCost> RidgeAt(int ridge, double floor_s) {
  std::vector<kernels::RowCost> costs;
  for (const int rows : {1, 2, 4, 8, 16, 24, 32, 40, 48, 64, 96, 128, 192, 256, 384, 512})
    costs.push_back({rows, rows <= ridge ? floor_s : floor_s * rows / ridge});
  return costs;
}

int Rows(DraftShape shape, int running) { return running * (1 + shape.width * shape.depth); }

TEST(ForestSizerTest, KnownProductsGiveTheRowBudgetFromTheFirstRoundOn) {
  for (const int running : {1, 4, 16, 64}) {
    ForestSizer sizer(RidgeAt(192, 0.0035));
    const DraftShape first = First(&sizer, running);
    EXPECT_LE(Rows(first, running), std::max(192, running * 3)) << running;
    const DraftShape second = First(&sizer, running);  // there is no series of shapes to try
    EXPECT_EQ(Rows(first, running), Rows(second, running)) << running;
  }
  ForestSizer alone(RidgeAt(192, 0.0035)), blind;
  EXPECT_GE(Rows(First(&alone, 1), 1), 33);
  EXPECT_GT(Rows(First(&blind, 64), 64), 2000);
}

TEST(ForestSizerTest, RowsThatThePaddingGivesAreUsed) {
  // Five rows cost what nine do, ten are far too dear.
  ForestSizer sizer({{1, 0.010}, {4, 0.010}, {9, 0.0105}, {16, 0.1}});
  EXPECT_EQ(Rows(First(&sizer, 1), 1), 9);
}

TEST(ForestSizerTest, DeepDraftsWaitUntilALevelWasMeasured) {
  SizerLimits limits = Limits(4);
  ForestSizer sizer(RidgeAt(512, 0.0035));
  EXPECT_LE(sizer.Choose("m", limits).depth, decoding::kAutoDraftDepth);
  sizer.costs()->RecordDraft({8, 4}, 1e-5);
  sizer.RecordPass(33, 0.0035);
  EXPECT_GT(sizer.Choose("m", limits).depth, decoding::kAutoDraftDepth);
}

TEST(ForestSizerTest, WhatWasMeasuredCountsMoreThanKnownProducts) {
  // Products say that rows are free, the passes say otherwise.
  ForestSizer sizer(RidgeAt(512, 0.0001));
  std::pair<int, int> shape;
  Most(Simulate(
           &sizer, Limits(4), 600, [](int rows) { return 0.001 * rows; }, 1e-6,
           /*coverage=*/0.6),
       &shape);
  EXPECT_EQ(shape.second, 0);
}

TEST(ForestSizerTest, OneMeasuredSizeShiftsAllKnownOnes) {
  // 10 ms of each pass are no products: rows up to far beyond the ridge then pay.
  ForestSizer before(RidgeAt(8, 0.001)), after(RidgeAt(8, 0.001));
  after.RecordPass(1, 0.011);
  after.costs()->RecordDraft({8, 4}, 1e-6);
  before.costs()->RecordDraft({8, 4}, 1e-6);
  EXPECT_GT(Rows(First(&after, 1), 1), Rows(First(&before, 1), 1));
}

}  // namespace
}  // namespace coppice::worker
