// Which sequences get a draft node when they begin, and which explore.
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "tests/worker/forest_sizer_fixture.h"
#include "worker/forest_sizer.h"

namespace coppice::worker {
namespace {

// Of sequences of `length` rounds that follow each other and for which no draft pays: how many are
// prepared, and the rounds of their own in which one of these had a draft.
struct Explored {
  int prepared = 0;
  std::map<int, int> rounds;  // round of a sequence -> drafts
};
Explored Follow(ForestSizer* sizer, int sequences, int length) {
  Explored explored;
  for (int i = 0; i < sequences; ++i) {
    SizerLimits limits = Limits(1);
    limits.explores = sizer->WorthPreparing("m", limits);
    explored.prepared += limits.explores;
    for (int round = 0; round < length; ++round) {
      const DraftShape shape = sizer->Choose("m", limits);
      explored.rounds[round] += shape.depth > 0;
      EXPECT_TRUE(limits.explores || shape.depth == 0) << i << ", " << round;
      const int rows = 1 + shape.width * shape.depth;
      sizer->RecordPass(rows, 0.002 * rows);
      if (shape.depth > 0) sizer->costs()->RecordDraft(shape, 0.002 * shape.depth);
      sizer->RecordRound("m", 1, {shape, 1});
    }
  }
  return explored;
}

TEST(PrepareTest, DraftsAreNotPreparedWhereNonePays) {
  const auto dear = [](int rows) { return 0.002 * rows; };
  ForestSizer sizer;
  Simulate(&sizer, Limits(1), 220, dear, 0.002, /*coverage=*/0.3);
  EXPECT_TRUE(sizer.WorthPreparing("m", Limits(1))) << "too soon";
  Simulate(&sizer, Limits(1), 700, dear, 0.002, 0.3);
  // 50 sequences of 60 rounds: an exploration is due every 192 rounds or so.
  const Explored explored = Follow(&sizer, 50, 60);
  EXPECT_GE(explored.prepared, 50 * 60 / (ForestSizer::kRarest + 60));
  EXPECT_LE(explored.prepared, 50 * 60 / ForestSizer::kRarest + 1);
  EXPECT_TRUE(sizer.WorthPreparing("m", Limits(4))) << "another width has not been tried";
  EXPECT_TRUE(sizer.WorthPreparing("n", Limits(1))) << "nor has another method";

  Simulate(
      &sizer, Limits(1), 2000, [](int) { return 0.010; }, 0.0001, 0.9);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(sizer.WorthPreparing("m", Limits(1)));
}

// Whether it explores or ends before: the next is prepared kRarest rounds later.
TEST(PrepareTest, OneSequenceIsPreparedForAnExploration) {
  const auto dear = [](int rows) { return 0.002 * rows; };
  ForestSizer sizer;
  Simulate(&sizer, Limits(1), 1000, dear, 0.002, 0.3);
  SizerLimits unprepared = Limits(1);
  unprepared.explores = false;
  SizerLimits brief = Limits(1);
  brief.max_depth = decoding::kAutoDraftDepth;
  const auto pass = [&](uint64_t rounds) {
    for (uint64_t i = 0; i < rounds; ++i) {
      ASSERT_EQ(sizer.Choose("m", unprepared).depth, 0);
      sizer.RecordPass(1, dear(1));
    }
  };
  pass(ForestSizer::kRarest);
  EXPECT_FALSE(sizer.WorthPreparing("m", brief)) << "too short to explore";
  EXPECT_TRUE(sizer.WorthPreparing("m", Limits(1)));
  EXPECT_FALSE(sizer.WorthPreparing("m", Limits(1)));
  pass(ForestSizer::kRarest);
  EXPECT_TRUE(sizer.WorthPreparing("m", Limits(1)));
  EXPECT_FALSE(sizer.WorthPreparing("m", Limits(1)));
}

// A text may be easier to draft later than at its begin, so not all explore in their first round.
TEST(PrepareTest, ThoseThatArePreparedExploreInDifferentRounds) {
  ForestSizer sizer;
  Simulate(
      &sizer, Limits(1), 1000, [](int rows) { return 0.002 * rows; }, 0.002, 0.3);
  const Explored explored = Follow(&sizer, 400, 40);
  int drafts = 0, late = 0;
  for (const auto& [round, count] : explored.rounds) {
    drafts += count;
    if (round >= 3) late += count;
  }
  EXPECT_GE(drafts, 30);
  EXPECT_GE(late, drafts / 4);
  EXPECT_LE(late, drafts - drafts / 4);
}

// Where drafts pay for one sequence and not for sixteen, it depends on how many there are.
TEST(PrepareTest, DraftsArePreparedWhereTheyPayNow) {
  const auto rows_cost = [](int rows) { return 0.005 + 0.001 * rows; };
  SizerLimits crowd = Limits(1);
  crowd.running = 16;
  ForestSizer sizer;
  Simulate(&sizer, crowd, 2000, rows_cost, 0.001, 0.8);
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(sizer.WorthPreparing("m", crowd));
    EXPECT_TRUE(sizer.WorthPreparing("m", Limits(1)));
  }
}

// A new sequence has one beam until its first layer is decided. It is judged as one that has more.
TEST(PrepareTest, DraftsArePreparedForAsManyBeamsAsTheLastSequenceHad) {
  const std::vector<kernels::RowCost> costs = {{1, 0.001}, {7, 0.001}, {8, 0.008}, {512, 0.512}};
  for (const int beams : {1, 7}) {
    ForestSizer sizer(costs);
    SizerLimits limits = Limits(4);
    limits.roots = limits.plain_rows = beams;
    for (int i = 0; i < 2 * ForestSizer::kYoung; ++i) {
      const DraftShape shape = sizer.Choose("m", limits);
      const int rows = beams + shape.width * shape.depth;
      sizer.RecordPass(rows, rows <= 7 ? 0.001 : 0.001 * rows);
      if (shape.depth > 0) sizer.costs()->RecordDraft(shape, 0.0001 * shape.depth);
      sizer.RecordRound("m", 4, {shape, shape.depth > 0 ? 2 : 1});
    }
    SizerLimits fresh = Limits(4);
    fresh.roots = fresh.plain_rows = 1;
    EXPECT_EQ(sizer.WorthPreparing("m", fresh), sizer.Choose("m", limits).depth > 0) << beams;
    EXPECT_EQ(sizer.WorthPreparing("m", fresh), beams == 1) << beams;
  }
}

TEST(PrepareTest, ASequenceThatIsNotPreparedExploresNothing) {
  const auto dear = [](int rows) { return 0.002 * rows; };
  ForestSizer sizer;
  Simulate(&sizer, Limits(1), 1000, dear, 0.002, 0.3);
  SizerLimits unprepared = Limits(1);
  unprepared.explores = false;
  for (uint64_t i = 0; i < 3 * ForestSizer::kRarest; ++i) {
    ASSERT_EQ(sizer.Choose("m", unprepared).depth, 0) << i;
    sizer.RecordPass(1, dear(1));
  }
  EXPECT_TRUE(sizer.WorthPreparing("m", Limits(1)));
  EXPECT_GT(sizer.Choose("m", Limits(1)).depth, 0) << "the next that is prepared does";
}

// Texts that run alone, for which drafts pay, and crowds that do not explore take turns. The rounds of the
// crowds change nothing for those that run alone; in particular they do not explore more often.
TEST(PrepareTest, RoundsOfThoseThatDoNotExploreDoNotCount) {
  const auto shapes_beside = [](const SizerLimits& crowd, int rounds_of_crowd) {
    ForestSizer sizer;
    Simulate(
        &sizer, Limits(1), 600, [](int) { return 0.010; }, 0.0002, 0.9);
    std::vector<std::pair<int, int>> shapes;
    for (int i = 0; i < 600; ++i) {
      const DraftShape shape = sizer.Choose("m", Limits(1));
      shapes.push_back({shape.width, shape.depth});
      sizer.RecordPass(8, 0.010);
      sizer.RecordRound("m", 1, {shape, shape.depth});
      for (int k = 0; i % 6 == 0 && k < rounds_of_crowd; ++k) {
        sizer.Choose("m", crowd);
        sizer.RecordPass(8, 0.010);
      }
    }
    return shapes;
  };
  SizerLimits left = Limits(1), own = Limits(1), ending = Limits(1);
  left.explores = false;
  own.draft.chosen = true;  // has numbers of its own
  own.draft.width = own.draft.depth = 2;
  ending.max_depth = 1;
  const auto alone = shapes_beside(left, 0);
  for (const SizerLimits& crowd : {left, own, ending}) {
    const auto beside = shapes_beside(crowd, 40);
    int different = 0;
    for (size_t i = 0; i < alone.size(); ++i) different += alone[i] != beside[i];
    EXPECT_LE(different, 30) << "of " << alone.size();
  }
}

// It has drafts whatever pays, also where it is too short to explore.
TEST(PrepareTest, ARequestWithNumbersOfItsOwnIsAlwaysPrepared) {
  const auto dear = [](int rows) { return 0.002 * rows; };
  ForestSizer sizer;
  Simulate(&sizer, Limits(1), 1000, dear, 0.002, 0.3);
  SizerLimits own = Limits(1);
  own.draft.chosen = true;
  own.draft.width = 2;
  own.draft.depth = 3;
  own.max_nodes = 0;  // no room in the pass now
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(sizer.WorthPreparing("m", own));
}

}  // namespace
}  // namespace coppice::worker
