// One DSBD layer with all choices enumerated. Its distribution is exact for every draft
// distribution, width rule and survivor rule (docs/algorithms.md 5.1-5.3, 9).
#include "decoding/layer/dsbd_layer.h"

#include <set>
#include <vector>

#include "decoding/joint/residual.h"
#include "decoding/layer/dsbd_width.h"
#include "gtest/gtest.h"
#include "lab/exact/beam_distribution.h"
#include "lab/exact/enumerate_choices.h"
#include "tests/decoding/layer/dsbd_layer_fixture.h"
#include "tests/testing/joint_layer.h"

namespace coppice::decoding {
namespace {

using namespace test::joint_layer;  // NOLINT: the whole file is about its layers

TEST_F(DsbdLayer, FixedWidthOutputsAreIidFromTheTarget) {
  for (const Config& config : Configs()) {
    Use(config);
    for (RemovedParents rule : {RemovedParents::kReject, RemovedParents::kRenormalise}) {
      for (const auto& [width, drafts] :
           {std::pair(1, 1), {1, 3}, {2, 2}, {2, 3}, {3, 2}, {3, 3}}) {
        const test::ExactDistribution distribution =
            EnumeratedDistribution([&](ChoiceSource* choices) {
              return Entries(Run(DrawDrafts(layer_, drafts, choices), rule, width, choices));
            });
        EXPECT_LT(test::LargestDifference(distribution, IidDistribution(layer_.p, width)), 1e-12)
            << config.name << " W " << width << " W_S " << drafts << " rule "
            << static_cast<int>(rule);
      }
    }
  }
}

TEST_F(DsbdLayer, DynamicWidthOutputsAreIidGivenTheWidth) {
  std::set<size_t> widths;
  for (const Config& config : Configs()) {
    Use(config);
    for (RemovedParents rule : {RemovedParents::kReject, RemovedParents::kRenormalise}) {
      for (double threshold : {0.1, 0.5, 0.9, 1.0}) {
        for (int minimum : {1, 2}) {
          const WidthRule width{threshold, minimum, 3};
          const test::ExactDistribution distribution =
              EnumeratedDistribution([&](ChoiceSource* choices) {
                return Entries(Run(DrawDrafts(layer_, 3, choices), rule, 1, choices, width));
              });
          EXPECT_LT(WorstGivenWidth(distribution, layer_.p), 1e-12)
              << config.name << " t " << threshold;
          for (const auto& [outcome, probability] : distribution) widths.insert(outcome.size());
        }
      }
    }
  }
  EXPECT_EQ(widths, (std::set<size_t>{1, 2, 3}));
}

TEST_F(DsbdLayer, FullLayerHappensAsOftenAsTheClosedFormSays) {
  for (const Config& config : Configs()) {
    Use(config);
    for (int width : {1, 2, 3}) {
      double full = 0;
      test::EnumerateChoices([&](test::ScriptedChoices* choices) {
        const bool is_full =
            Run(DrawDrafts(layer_, 3, choices), RemovedParents::kReject, width, choices).full;
        full += is_full ? choices->probability() : 0.0;
      });
      Residual a(layer_.p, arranged_);
      const std::vector<double> tail = AcceptedTail(AcceptanceByDraft(&a, 3));
      EXPECT_NEAR(full, tail[width], 1e-12) << config.name << " W " << width;
    }
  }
}

TEST_F(DsbdLayer, EqualDistributionsAcceptEverythingWithoutAResidualDraw) {
  Use(Configs()[8]);
  test::EnumerateChoices([&](test::ScriptedChoices* choices) {
    const LayerResult result =
        Run(DrawDrafts(layer_, 3, choices), RemovedParents::kReject, 2, choices);
    EXPECT_TRUE(result.full);
    EXPECT_EQ(result.residual_draws, 0);
    EXPECT_EQ(result.tested, 2);
    EXPECT_NEAR(result.overlap, 1.0, 1e-12);
  });
}

TEST_F(DsbdLayer, DisjointSupportsAcceptNothing) {
  Use(Configs()[6]);
  test::EnumerateChoices([&](test::ScriptedChoices* choices) {
    const LayerResult result =
        Run(DrawDrafts(layer_, 3, choices), RemovedParents::kReject, 2, choices);
    EXPECT_FALSE(result.full);
    EXPECT_EQ(result.overlap, 0.0);
    for (const RuleOutput& output : result.outputs) EXPECT_EQ(output.draft, -1);
  });
}

TEST_F(DsbdLayer, ResidualOfVanishingMassKeepsTheTarget) {
  Layer layer = MakeLayer({{1, 1, {1, 1}}}, {{1, 1, {1, 1 + 1e-16}}}, {0});
  Bind(&layer);
  Residual a(layer.p, layer.q);
  a.Reject();
  EXPECT_NEAR(a.Target({0, 0}), 0.5, 1e-15);
  EXPECT_NEAR(a.Target({0, 1}), 0.5, 1e-15);
}

TEST_F(DsbdLayer, WorkedExampleOfSectionSeven) {
  Use({"worked example", {{1, 1, {2, 1, 1}}}, {{1, 1, {1, 1, 2}}}, {0}});
  Residual a(layer_.p, arranged_);
  const std::vector<double> alpha = AcceptanceByDraft(&a, 3);
  const std::vector<double> count = AcceptedCountDistribution(alpha), tail = AcceptedTail(alpha);
  const double want_alpha[] = {0.75, 0.25, 0.25}, want_count[] = {9, 13, 15, 27};
  for (int j = 0; j < 3; ++j) EXPECT_NEAR(alpha[j], want_alpha[j], 1e-15);
  for (int k = 0; k < 4; ++k) EXPECT_NEAR(count[k], want_count[k] / 64, 1e-15);
  EXPECT_NEAR(tail[2], 21.0 / 32, 1e-15);
  EXPECT_EQ(WidthForThreshold(tail, 0.7), 1);
  EXPECT_EQ(WidthForThreshold(tail, 0.5), 2);
}

}  // namespace
}  // namespace coppice::decoding
