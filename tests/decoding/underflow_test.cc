// At low temperature, most entries of a row have masses that underflow in f64 (exp(-745) and
// below). The distributions must still hold.
#include <gtest/gtest.h>

#include <limits>

#include "decoding/layer/dsbd_wor_layer.h"
#include "decoding/tree/luce_ot.h"
#include "lab/exact/tree_distribution.h"
#include "tests/testing/joint_layer.h"

namespace coppice::decoding {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

// The target is flat, and the draft is almost certain of one token. The second draft is drawn from
// the rest.
TEST(UnderflowTest, EveryRuleOfATreeIsExactBelowADraftThatIsSure) {
  const std::vector<std::vector<double>> drafts = {
      {0, -800, -900, -800}, {0, -800, kNothing, kNothing}, {0, -710, -740, -744}};
  for (const test::TreeMethod& method : test::TreeMethods()) {
    for (const char* tree : {"2", "3-1"}) {
      if (method.distribution == ChildSampling::kSpecHub && tree[0] == '3') continue;
      for (const std::vector<double>& draft : drafts) {
        SCOPED_TRACE(testing::Message() << method.name << " " << tree << " " << draft[1]);
        test::TreeSetting setting;
        setting.params.draft_tree = tree;
        setting.params.max_tokens = 2;
        setting.rule = method.rule;
        setting.distribution = setting.relied_on = method.distribution;
        setting.target = [](uint64_t) {
          return std::vector<double>{sampling::Log(0.5), sampling::Log(0.25), sampling::Log(0.125),
                                     sampling::Log(0.125)};
        };
        setting.draft = [draft](uint64_t) { return draft; };
        EXPECT_LE(test::TotalVariation(test::TreeDistribution(setting),
                                       test::MultinomialDistribution(setting)),
                  1e-12);
      }
    }
  }
}

// p = q: the draft is always accepted, however unlikely the other tokens are.
TEST(UnderflowTest, LuceAcceptsTheTokenThatBothAreSureOf) {
  const LuceWeights luce = FindLuceWeights({{1.0, 0.0, 0.0}}, {{1.0, 0.0, 1e-320}}, /*n=*/2);
  EXPECT_NEAR(luce.acceptance, 1, 1e-12);
  EXPECT_NEAR(luce.selection[0], 1, 1e-12);
}

// After its likely entry has been drawn, the rest of P cannot be normalised in f64.
TEST(UnderflowTest, DistinctOutputsOfALayerWhoseRestIsTooSmall) {
  test::joint_layer::Layer layer =
      test::joint_layer::MakeLayer({{1, 1, {1, 1, 1}}}, {{1, 1, {1, 1, 1}}}, {0});
  test::joint_layer::Bind(&layer);
  for (const double rest : {-400.0, -690.0, -709.5, -730.0, -800.0}) {
    SCOPED_TRACE(rest);
    layer.target_rows[0].log_probs = {0, rest, rest + sampling::Log(2)};
    for (const int drafted : {1, 3}) {
      const test::ExactDistribution distribution =
          test::joint_layer::EnumeratedDistribution([&](ChoiceSource* choices) {
            std::vector<Entry> drafts =
                choices->ChooseDistinct(sampling::Domain::kDraft, 0, layer.q, drafted);
            const LayerInput input{&layer.p, &layer.q, drafts, /*width=*/3};
            return test::joint_layer::Entries(
                VerifyDistinctWithReuse(input, RemovedParents::kReject, {}, choices));
          });
      const test::ExactDistribution wanted = {{{0, 1, 2}, 1.0 / 3}, {{0, 2, 1}, 2.0 / 3}};
      EXPECT_LE(test::TotalVariation(distribution, wanted), 1e-12) << drafted << " drafts";
    }
  }
}

}  // namespace
}  // namespace coppice::decoding
