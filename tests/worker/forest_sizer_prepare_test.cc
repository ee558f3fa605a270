// Which sequences get a draft node when they begin, and which take part in trials.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/worker/forest_sizer_fixture.h"
#include "worker/forest_sizer.h"

namespace coppice::worker {
namespace {

// Steps without drafts, until a trial is due.
int UntilTrial(ForestSizer* sizer, Replica* replica) {
  SizerLimits unprepared = Limits(1);
  unprepared.prepared = false;
  int steps = 0;
  replica->next = {};
  while (!sizer->WorthPreparing("m", Limits(1)) && steps < 10000) {
    replica->Step(sizer, unprepared, {});
    ++steps;
  }
  return steps;
}

TEST(PrepareTest, PromptsAreReadWhereADraftPaysNow) {
  ForestSizer sizer;
  EXPECT_FALSE(sizer.WorthPreparing("m", Limits(1))) << "nothing is known";
  Replica replica{[](int rows) { return 0.005 + 0.001 * rows; }, 0.001, 0.8};
  const SizerLimits crowd = Limits(1, 16);
  replica.Run(&sizer, crowd, 100);
  replica.next = {};
  replica.Run(&sizer, Limits(1), 100);
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(sizer.WorthPreparing("m", crowd));
    EXPECT_TRUE(sizer.WorthPreparing("m", Limits(1)));
  }
}

TEST(PrepareTest, OneSequenceIsPreparedForATrial) {
  ForestSizer sizer;
  Replica replica{DearRows, 0.002, 0.3};
  replica.Run(&sizer, Limits(1), 20);
  const int first = UntilTrial(&sizer, &replica);
  EXPECT_GE(first, 64);
  EXPECT_FALSE(sizer.WorthPreparing("m", Limits(1)));
  EXPECT_GT(sizer.Choose("m", Limits(1)).depth, 0) << "it drafts though none pays";
  SizerLimits unprepared = Limits(1);
  unprepared.prepared = false;
  EXPECT_EQ(sizer.Choose("m", unprepared).depth, 0);
  // If it ends without a draft, another one takes the next trial.
  const int second = UntilTrial(&sizer, &replica);
  EXPECT_GE(second, 64);
  EXPECT_LE(second, 1200);
}

// One of sixteen sequences takes them. Each takes the time of some steps.
TEST(PrepareTest, TrialsThatShowNothingBecomeRare) {
  ForestSizer sizer;
  Replica replica{DearRows, 0.002, 0.02};
  const SizerLimits limits = Limits(1, 16);
  replica.Run(&sizer, limits, 300);
  SizerLimits unprepared = limits;
  unprepared.prepared = false;
  int drafts = 0;
  for (int i = 0; i < 40000; ++i) {
    const DraftShape shape = sizer.Choose("m", limits);
    drafts += shape.depth > 0;
    for (int s = 0; s < 16; ++s) {
      if (s > 0) sizer.Choose("m", unprepared);
      sizer.RecordRound("m", 1, limits.draft, s == 0 ? shape : DraftShape{}, 1);
    }
    const int rows = 16 + shape.width * shape.depth;
    sizer.RecordStep({rows, 0, 16, 16, false, DearRows(rows), DearRows(rows)});
  }
  EXPECT_GE(drafts, 8 * 16);
  EXPECT_LE(drafts, 14 * 16);
}

TEST(PrepareTest, ASequenceThatEndsSoonTakesNoTrial) {
  ForestSizer sizer;
  Replica replica{DearRows, 0.002, 0.3};
  replica.Run(&sizer, Limits(1), 20);
  SizerLimits brief = Limits(1), unprepared = Limits(1);
  brief.max_depth = decoding::kMaxAutoDraftDepth - 1;
  unprepared.prepared = false;
  for (int i = 0; i < 600; ++i) {
    ASSERT_FALSE(sizer.WorthPreparing("m", brief)) << i;
    replica.Step(&sizer, unprepared, {});
  }
  EXPECT_TRUE(sizer.WorthPreparing("m", Limits(1)));
}

// A new sequence has one beam until its first layer is decided. It is judged as one that has more.
TEST(PrepareTest, PromptsAreReadForAsManyBeamsAsTheLastSequenceHad) {
  for (const int beams : {1, 7}) {
    ForestSizer sizer;
    Replica replica{[](int rows) { return rows <= 7 ? 0.001 : 0.001 * rows; }, 0.0001, 0.5};
    SizerLimits limits = Limits(4);
    limits.roots = limits.plain_rows = beams;
    replica.Run(&sizer, limits, 100);
    EXPECT_EQ(sizer.WorthPreparing("m", Limits(4)), beams == 1) << beams;
  }
}

// It has drafts whatever pays, also where it is short.
TEST(PrepareTest, ARequestWithNumbersOfItsOwnIsAlwaysPrepared) {
  ForestSizer sizer;
  Replica replica{DearRows, 0.002, 0.3};
  replica.Run(&sizer, Limits(1), 100);
  SizerLimits own = Prescribed(2, 3);
  own.max_nodes = 0;  // no room in the step now
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(sizer.WorthPreparing("m", own));
}

}  // namespace
}  // namespace coppice::worker
