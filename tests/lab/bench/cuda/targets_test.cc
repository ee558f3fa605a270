#include "lab/bench/cuda/targets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "lab/bench/cuda/llama_shape.h"
#include "tests/testing/temp_dir.h"

namespace coppice::bench {
namespace {

using testing::DoubleNear;
using testing::Optional;

Measured ReadLines(const std::string& lines) {
  const test::TempDir dir;
  const std::string path = absl::StrCat(dir.path(), "/measured.jsonl");
  std::ofstream(path) << lines;
  return Measured::Read(path).value();
}

Goal GoalNamed(const Measured& measured, const std::string& begin) {
  for (const Goal& goal : GoalsOf(measured)) {
    if (std::string(goal.what).rfind(begin, 0) == 0) return goal;
  }
  ADD_FAILURE() << "no goal begins with " << begin;
  return {};
}

// Floors are against reading, whatever the order of the ceilings.
TEST(TargetsTest, TheBandwidthIsThatOfReading) {
  const std::string read =
      R"({"part":"ceilings","name":"read","bytes_per_second":3.0000e+12,"spread":0})"
      "\n";
  const std::string copy =
      R"({"part":"ceilings","name":"copy","copied_bytes_per_second":2.7000e+12,"spread":0})"
      "\n";
  EXPECT_EQ(ReadLines(read + copy).bandwidth, 3e12);
  EXPECT_EQ(ReadLines(copy + read).bandwidth, 3e12);
  EXPECT_EQ(ReadLines(copy).bandwidth, 0);
}

TEST(TargetsTest, LayersFollowFromTheOverlap) {
  const RoundShape wide = kRoundShapes[0];
  for (const RoundShape& shape : kRoundShapes)
    EXPECT_DOUBLE_EQ(LayersOf(shape, kShapeOverlap), shape.layers);
  // The simulated points, a point between two of them, and beyond the last.
  EXPECT_NEAR(LayersOf(wide, 0.38), 1.39, 1e-9);
  EXPECT_NEAR(LayersOf(wide, 0.81), 3.79, 1e-9);
  EXPECT_NEAR(LayersOf(wide, 0.52), 1.39 + 14.0 / 23 * 1.17, 1e-9);
  EXPECT_NEAR(LayersOf(wide, 0.92), 3.79 + 0.7, 1e-9);
  // A half of what the shape gains above a plain step's layer, where the wide one has a half.
  EXPECT_NEAR(LayersOf(kNarrowShape, 0.52) - 1,
              (kNarrowShape.layers - 1) * (LayersOf(wide, 0.52) - 1) / (wide.layers - 1), 1e-9);
}

// Two drafts that take the same time gain what their overlaps give, against steps of as many beams.
TEST(TargetsTest, EachDraftHasItsOwnGain) {
  Measured measured;
  measured.cases["round, 1 x plain"].us = 1000;
  for (int draft : {0, 1}) {
    for (const RoundShape& shape : kRoundShapes) {
      measured
          .cases[absl::StrCat("round, 1 x ", kRoots + shape.width * shape.depth,
                              " rows, drafted by ", kDrafts[draft].name)]
          .us = shape.width == 7 ? 1000 : 4000;
    }
  }
  EXPECT_THAT(GoalNamed(measured, "1 request, 1B").value, Optional(DoubleNear(3.09, 1e-9)));
  EXPECT_THAT(GoalNamed(measured, "1 request, 68M").value,
              Optional(DoubleNear(LayersOf(kRoundShapes[0], 0.52), 1e-9)));
  EXPECT_EQ(GoalNamed(measured, "8 requests, 1B").value, std::nullopt);
}

// The better of a forest that gains more and one that takes less.
TEST(TargetsTest, ARoundHasItsBestForest) {
  Measured measured;
  measured.cases["round, 1 x plain"].us = 1000;
  measured.cases["round, 1 x 30 rows, drafted by 1B"].us = 3000;
  measured.cases["round, 1 x 6 rows, drafted by 1B"].us = 1500;
  EXPECT_THAT(GoalNamed(measured, "1 request, 1B").value, Optional(DoubleNear(1.86 / 1.5, 1e-9)));
}

TEST(TargetsTest, ManyRequestsHaveAGoalForEachContext) {
  Measured measured;
  for (const int context : kContexts) {
    measured.cases[absl::StrCat("round, ", kMostRequests, " x plain at ", context)].us = context;
    measured.cases[absl::StrCat("round, ", kMostRequests, " x 6 rows at ", context)].us = 1000;
  }
  EXPECT_THAT(GoalNamed(measured, "64 requests at 1k").value,
              Optional(DoubleNear(1.86 * kContexts[0] / 1000, 1e-9)));
  EXPECT_THAT(GoalNamed(measured, "64 requests at 8k").value,
              Optional(DoubleNear(1.86 * kContexts[1] / 1000, 1e-9)));
}

}  // namespace
}  // namespace coppice::bench
