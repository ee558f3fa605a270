// Known wrong variants of one DSBD layer. The comparison of dsbd_layer_test must fail for each, by
// the stated margin.
#include <algorithm>
#include <functional>
#include <vector>

#include "decoding/joint/residual.h"
#include "decoding/layer/dsbd_layer.h"
#include "decoding/layer/dsbd_width.h"
#include "gtest/gtest.h"
#include "lab/exact/beam_distribution.h"
#include "lab/exact/enumerate_choices.h"
#include "lab/exact/forwarded_choices.h"
#include "tests/decoding/layer/dsbd_layer_fixture.h"
#include "tests/testing/joint_layer.h"

namespace coppice::decoding {
namespace {

using namespace test::joint_layer;  // NOLINT: the whole file is about its layers

class ResidualFromTarget : public test::ForwardedChoices {
 public:
  ResidualFromTarget(ChoiceSource* choices, const LayerDistribution* p)
      : test::ForwardedChoices(choices), p_(p) {}
  Draw Choose(sampling::Domain domain, uint32_t slot,
              const LayerDistribution& distribution) override {
    return choices_->Choose(domain, slot,
                            domain == sampling::Domain::kResidual ? *p_ : distribution);
  }

 private:
  const LayerDistribution* p_;
};

class AllFromResidual : public test::ForwardedChoices {
 public:
  using test::ForwardedChoices::ForwardedChoices;
  Draw Choose(sampling::Domain domain, uint32_t slot,
              const LayerDistribution& distribution) override {
    if (domain == sampling::Domain::kResidual) residual_ = distribution;
    return choices_->Choose(
        domain, slot,
        domain == sampling::Domain::kDirect && !residual_.rows.empty() ? residual_ : distribution);
  }

 private:
  LayerDistribution residual_;
};

class DsbdNegativeControl : public DsbdLayer {
 protected:
  double Bias(int width, const Verify& verify) {
    return test::TotalVariation(EnumeratedDistribution(verify), IidDistribution(layer_.p, width));
  }
};

// The variants as printed, for p = (7, 8, 6, 4)/25, q = (12, 7, 3, 10)/32, m = 3, W = 2. Their
// distances were computed independently of this code, by summing over all drafts.
TEST_F(DsbdNegativeControl, PrintedVariantsAreAsFarOffAsWorkedOut) {
  Use({"four entries", {{1, 1, {7, 8, 6, 4}}}, {{1, 1, {12, 7, 3, 10}}}, {0}});
  const auto bias = [&](const std::function<LayerResult(std::vector<Entry>, ChoiceSource*)>& run) {
    return Bias(2, [&](ChoiceSource* choices) {
      return Entries(run(DrawDrafts(layer_, 3, choices), choices));
    });
  };
  const auto verify = [&](const std::vector<Entry>& drafts, ChoiceSource* choices) {
    return Run(drafts, RemovedParents::kReject, 2, choices);
  };
  const auto resorted = [&](const std::function<double(Entry)>& value) {
    return bias([&](std::vector<Entry> drafts, ChoiceSource* choices) {
      std::stable_sort(drafts.begin(), drafts.end(),
                       [&](Entry a, Entry b) { return value(a) > value(b); });
      return verify(drafts, choices);
    });
  };
  EXPECT_LT(bias(verify), 1e-12);
  EXPECT_NEAR(bias([&](const std::vector<Entry>& drafts, ChoiceSource* choices) {
                test::InvertedRatio wrong(choices);
                return verify(drafts, &wrong);
              }),
              0.4245, 1e-4);  // E1
  EXPECT_NEAR(bias([&](const std::vector<Entry>& drafts, ChoiceSource* choices) {
                ResidualFromTarget wrong(choices, &layer_.p);
                return verify(drafts, &wrong);
              }),
              0.1189, 1e-4);  // E5: all missing outputs from P
  EXPECT_NEAR(bias([&](const std::vector<Entry>& drafts, ChoiceSource* choices) {
                AllFromResidual wrong(choices);
                return verify(drafts, &wrong);
              }),
              0.0790, 1e-4);  // E5: all missing outputs from the residual
  EXPECT_NEAR(bias([&](const std::vector<Entry>& drafts, ChoiceSource* choices) {
                const LayerResult result = verify(drafts, choices);
                return result.full ? result : DrawLayer(layer_.p, 2, choices);
              }),
              0.1110, 1e-4);  // E5: discard and redraw
  EXPECT_NEAR(resorted([&](Entry e) { return LogMass(arranged_, e); }), 0.3004, 1e-4);  // E7
  EXPECT_NEAR(resorted([&](Entry e) { return LogMass(layer_.p, e) - LogMass(arranged_, e); }),
              0.2647, 1e-4);
  EXPECT_NEAR(bias([&](const std::vector<Entry>& drafts, ChoiceSource* choices) {
                std::vector<Entry> distinct;
                for (const Entry& draft : drafts) {
                  if (std::find(distinct.begin(), distinct.end(), draft) == distinct.end())
                    distinct.push_back(draft);
                }
                return verify(distinct, choices);
              }),
              0.1622, 1e-4);
  EXPECT_NEAR(
      Bias(2,
           [&](ChoiceSource* choices) {
             return Entries(verify(
                 choices->ChooseDistinct(sampling::Domain::kDraft, 0, layer_.q, 3), choices));
           }),
      0.2395, 1e-4);
}

// E4 on p = (5, 9, 5)/19, q = (12, 1, 3)/24 and removed parents with (5, 3)/24, m = 3, W = 2.
TEST_F(DsbdNegativeControl, LiteralLineTenIsAsFarOffAsWorkedOut) {
  Use({"two removed entries", {{1, 1, {5, 9, 5}}}, {{16, 1, {12, 1, 3}}, {8, 1, {5, 3}}}, {0, -1}});
  EXPECT_NEAR(Bias(2,
                   [&](ChoiceSource* choices) {
                     std::vector<Entry> drafts = DrawDrafts(layer_, 3, choices);
                     drafts.erase(std::remove_if(drafts.begin(), drafts.end(),
                                                 [&](Entry d) { return IsRemoved(d); }),
                                  drafts.end());
                     return Entries(Run(drafts, RemovedParents::kReject, 2, choices));
                   }),
              0.1651, 1e-4);
}

// E1: for m = W = 1, the printed rule outputs q instead of p. The example of section 7.
TEST_F(DsbdNegativeControl, PrintedRatioOutputsTheProposal) {
  Use({"worked example", {{1, 1, {2, 1, 1}}}, {{1, 1, {1, 1, 2}}}, {0}});
  const test::ExactDistribution distribution = EnumeratedDistribution([&](ChoiceSource* choices) {
    test::InvertedRatio wrong(choices);
    return Entries(Run(DrawDrafts(layer_, 1, choices), RemovedParents::kReject, 1, &wrong));
  });
  EXPECT_LT(test::TotalVariation(distribution, IidDistribution(arranged_, 1)), 1e-12);
}

TEST_F(DsbdNegativeControl, InvertedRatioIsRejected) {  // E1
  Use(EasyCase());
  EXPECT_GT(Bias(2,
                 [&](ChoiceSource* choices) {
                   test::InvertedRatio wrong(choices);
                   return Entries(
                       Run(DrawDrafts(layer_, 3, choices), RemovedParents::kReject, 2, &wrong));
                 }),
            0.2);
}

TEST_F(DsbdNegativeControl, DroppingWithoutRenormalisingIsRejected) {  // E4
  Use(HardCase());
  EXPECT_GT(Bias(2,
                 [&](ChoiceSource* choices) {
                   std::vector<Entry> drafts = DrawDrafts(layer_, 3, choices);
                   drafts.erase(std::remove_if(drafts.begin(), drafts.end(),
                                               [&](Entry d) { return IsRemoved(d); }),
                                drafts.end());
                   return Entries(Run(drafts, RemovedParents::kReject, 2, choices));
                 }),
            0.02);
}

TEST_F(DsbdNegativeControl, CompletionAllFromTheTargetIsRejected) {  // E5
  Use(EasyCase());
  EXPECT_GT(Bias(2,
                 [&](ChoiceSource* choices) {
                   ResidualFromTarget wrong(choices, &layer_.p);
                   return Entries(
                       Run(DrawDrafts(layer_, 3, choices), RemovedParents::kReject, 2, &wrong));
                 }),
            0.03);
}

TEST_F(DsbdNegativeControl, CompletionAllFromTheResidualIsRejected) {  // E5
  Use(EasyCase());
  EXPECT_GT(Bias(2,
                 [&](ChoiceSource* choices) {
                   AllFromResidual wrong(choices);
                   return Entries(
                       Run(DrawDrafts(layer_, 3, choices), RemovedParents::kReject, 2, &wrong));
                 }),
            0.02);
}

TEST_F(DsbdNegativeControl, DiscardingALayerThatIsNotFullIsRejected) {  // E5
  Use(EasyCase());
  EXPECT_GT(Bias(2,
                 [&](ChoiceSource* choices) {
                   const LayerResult result =
                       Run(DrawDrafts(layer_, 3, choices), RemovedParents::kReject, 2, choices);
                   return Entries(result.full ? result : DrawLayer(layer_.p, 2, choices));
                 }),
            0.03);
}

TEST_F(DsbdNegativeControl, ResortedDraftsAreRejected) {  // E7
  Use(EasyCase());
  EXPECT_GT(Bias(2,
                 [&](ChoiceSource* choices) {
                   std::vector<Entry> drafts = DrawDrafts(layer_, 3, choices);
                   std::stable_sort(drafts.begin(), drafts.end(), [&](Entry a, Entry b) {
                     return LogMass(arranged_, a) > LogMass(arranged_, b);
                   });
                   return Entries(Run(drafts, RemovedParents::kReject, 2, choices));
                 }),
            0.02);
}

TEST_F(DsbdNegativeControl, DeduplicatedDraftsAreRejected) {  // E7
  Use(EasyCase());
  EXPECT_GT(Bias(2,
                 [&](ChoiceSource* choices) {
                   std::vector<Entry> distinct;
                   for (const Entry& draft : DrawDrafts(layer_, 3, choices)) {
                     if (std::find(distinct.begin(), distinct.end(), draft) == distinct.end())
                       distinct.push_back(draft);
                   }
                   return Entries(Run(distinct, RemovedParents::kReject, 2, choices));
                 }),
            0.02);
}

TEST_F(DsbdNegativeControl,
       DraftsWithoutReplacementAreRejected) {  // E7: the iid rule needs iid drafts
  Use(EasyCase());
  EXPECT_GT(
      Bias(2,
           [&](ChoiceSource* choices) {
             const std::vector<int> rows = RowsOfDraftBeams(layer_);
             std::vector<Entry> drafts;
             for (Entry entry : choices->ChooseDistinct(sampling::Domain::kDraft, 0, layer_.q, 3))
               drafts.push_back({rows[entry.beam], entry.token});
             return Entries(Run(drafts, RemovedParents::kReject, 2, choices));
           }),
      0.05);
}

TEST_F(DsbdNegativeControl,
       WidthFromDistinctDraftsIsRejected) {  // E9: the width must not depend on the drafted values
  Use(EasyCase());
  const test::ExactDistribution distribution = EnumeratedDistribution([&](ChoiceSource* choices) {
    const std::vector<Entry> drafts = DrawDrafts(layer_, 2, choices);
    return Entries(Run(drafts, RemovedParents::kReject, drafts[0] == drafts[1] ? 1 : 2, choices));
  });
  EXPECT_GT(WorstGivenWidth(distribution, layer_.p), 0.02);
}

TEST_F(DsbdNegativeControl, WidthFromSurvivorsUnderRuleEIsRejected) {  // E9
  Use(HardCase());
  const test::ExactDistribution distribution = EnumeratedDistribution([&](ChoiceSource* choices) {
    const std::vector<Entry> drafts = DrawDrafts(layer_, 3, choices);
    const int survivors =
        std::count_if(drafts.begin(), drafts.end(), [&](Entry d) { return !IsRemoved(d); });
    return Entries(Run(drafts, RemovedParents::kReject, std::max(1, survivors), choices));
  });
  EXPECT_GT(WorstGivenWidth(distribution, layer_.p), 0.02);
}

TEST_F(DsbdNegativeControl, KeepingWhateverWasAcceptedIsRejected) {  // E9
  Use(EasyCase());
  const test::ExactDistribution distribution = EnumeratedDistribution([&](ChoiceSource* choices) {
    const LayerResult result =
        Run(DrawDrafts(layer_, 3, choices), RemovedParents::kReject, 3, choices);
    std::vector<Entry> accepted;
    for (const RuleOutput& output : result.outputs) {
      if (output.draft >= 0) accepted.push_back(output.entry);
    }
    return accepted;
  });
  EXPECT_GT(WorstGivenWidth(distribution, layer_.p), 0.02);
}

}  // namespace
}  // namespace coppice::decoding
