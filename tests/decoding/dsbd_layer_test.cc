// One DSBD layer, every choice enumerated: exact for every draft law, width rule and survivor rule;
// wrong for every known wrong variant (docs/algorithms.md 5.1-5.3, 9).
#include "decoding/dsbd_layer.h"

#include <algorithm>
#include <functional>
#include <set>
#include <vector>

#include "base/deterministic_math.h"
#include "decoding/dsbd_width.h"
#include "decoding/residual.h"
#include "gtest/gtest.h"
#include "tests/testing/beam_law.h"
#include "tests/testing/enumerate_choices.h"
#include "tests/testing/forwarded_choices.h"
#include "tests/testing/joint_layer.h"

namespace coppice {
namespace {

using namespace joint_layer;  // NOLINT: the whole file is about its layers

ExactLaw IidLaw(const LayerLaw& p, int width) {
  ExactLaw law;
  VisitLayerOutcomes(p, width, /*with_replacement=*/true,
                     [&](const std::vector<Entry>& entries, double probability) {
                       std::vector<uint64_t> outcome;
                       for (const Entry& entry : entries) outcome.push_back(Key(entry));
                       law[outcome] += probability;
                     });
  return law;
}

// For every width that occurs: largest difference of the law given that width from iid P.
double WorstGivenWidth(const ExactLaw& law, const LayerLaw& p) {
  std::map<size_t, double> mass;
  for (const auto& [outcome, probability] : law) mass[outcome.size()] += probability;
  double worst = 0;
  for (const auto& [width, total] : mass) {
    ExactLaw given;
    for (const auto& [outcome, probability] : law) {
      if (outcome.size() == width) given[outcome] = probability / total;
    }
    worst = std::max(worst, LargestDifference(given, IidLaw(p, static_cast<int>(width))));
  }
  return worst;
}

class DsbdLayer : public testing::Test {
 protected:
  void Use(const Config& config) {
    layer_ = MakeLayer(config.target, config.draft, config.draft_target);
    Bind(&layer_);
    arranged_ = ArrangedProposal(layer_);
  }
  LayerResult Run(const std::vector<Entry>& drafts, RemovedParents rule, int width,
                  ChoiceSource* choices, const WidthRule& rule_of_width = {}) {
    return VerifyDsbdLayer({&layer_.p, &arranged_, drafts, width}, rule, rule_of_width, choices);
  }
  bool IsRemoved(Entry draft) const { return draft.beam >= layer_.p.rows.size(); }
  Layer layer_;
  LayerLaw arranged_;
};

TEST_F(DsbdLayer, FixedWidthOutputsAreIidFromTheTarget) {
  for (const Config& config : Configs()) {
    Use(config);
    for (RemovedParents rule : {RemovedParents::kReject, RemovedParents::kRenormalise}) {
      for (const auto& [width, drafts] :
           {std::pair(1, 1), {1, 3}, {2, 2}, {2, 3}, {3, 2}, {3, 3}}) {
        const ExactLaw law = EnumeratedLaw([&](ChoiceSource* choices) {
          return Entries(Run(DrawDrafts(layer_, drafts, choices), rule, width, choices));
        });
        EXPECT_LT(LargestDifference(law, IidLaw(layer_.p, width)), 1e-12)
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
          const ExactLaw law = EnumeratedLaw([&](ChoiceSource* choices) {
            return Entries(Run(DrawDrafts(layer_, 3, choices), rule, 1, choices, width));
          });
          EXPECT_LT(WorstGivenWidth(law, layer_.p), 1e-12) << config.name << " t " << threshold;
          for (const auto& [outcome, probability] : law) widths.insert(outcome.size());
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
      EnumerateChoices([&](ScriptedChoices* choices) {
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

TEST_F(DsbdLayer, EqualLawsAcceptEverythingWithoutAResidualDraw) {
  Use(Configs()[8]);
  EnumerateChoices([&](ScriptedChoices* choices) {
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
  EnumerateChoices([&](ScriptedChoices* choices) {
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

// ---- negative controls: the same comparison must fail, each by the margin stated
// -----------------------------------

class ResidualFromTarget : public ForwardedChoices {
 public:
  ResidualFromTarget(ChoiceSource* choices, const LayerLaw* p) : ForwardedChoices(choices), p_(p) {}
  Draw Choose(Domain domain, uint32_t slot, const LayerLaw& law) override {
    return choices_->Choose(domain, slot, domain == Domain::kResidual ? *p_ : law);
  }

 private:
  const LayerLaw* p_;
};

class AllFromResidual : public ForwardedChoices {
 public:
  using ForwardedChoices::ForwardedChoices;
  Draw Choose(Domain domain, uint32_t slot, const LayerLaw& law) override {
    if (domain == Domain::kResidual) residual_ = law;
    return choices_->Choose(domain, slot,
                            domain == Domain::kDirect && !residual_.rows.empty() ? residual_ : law);
  }

 private:
  LayerLaw residual_;
};

class DsbdNegativeControl : public DsbdLayer {
 protected:
  double Bias(int width, const Verify& verify) {
    return TotalVariation(EnumeratedLaw(verify), IidLaw(layer_.p, width));
  }
};

// The printed variants on p = (7, 8, 6, 4)/25, q = (12, 7, 3, 10)/32, m = 3, W = 2: their distances
// were worked out apart from this code, by summing over all drafts.
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
                InvertedRatio wrong(choices);
                return verify(drafts, &wrong);
              }),
              0.4245, 1e-4);  // E1
  EXPECT_NEAR(bias([&](const std::vector<Entry>& drafts, ChoiceSource* choices) {
                ResidualFromTarget wrong(choices, &layer_.p);
                return verify(drafts, &wrong);
              }),
              0.1189, 1e-4);  // E5: all missing from P
  EXPECT_NEAR(bias([&](const std::vector<Entry>& drafts, ChoiceSource* choices) {
                AllFromResidual wrong(choices);
                return verify(drafts, &wrong);
              }),
              0.0790, 1e-4);  // E5: all from the residual
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
  EXPECT_NEAR(Bias(2,
                   [&](ChoiceSource* choices) {
                     return Entries(
                         verify(choices->ChooseDistinct(Domain::kDraft, 0, layer_.q, 3), choices));
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

// E1: at m = W = 1 the printed rule outputs q instead of p; section 7's worked example.
TEST_F(DsbdNegativeControl, PrintedRatioOutputsTheProposal) {
  Use({"worked example", {{1, 1, {2, 1, 1}}}, {{1, 1, {1, 1, 2}}}, {0}});
  const ExactLaw law = EnumeratedLaw([&](ChoiceSource* choices) {
    InvertedRatio wrong(choices);
    return Entries(Run(DrawDrafts(layer_, 1, choices), RemovedParents::kReject, 1, &wrong));
  });
  EXPECT_LT(TotalVariation(law, IidLaw(arranged_, 1)), 1e-12);
}

TEST_F(DsbdLayer, WorkedExampleOfSectionSeven) {
  Use({"worked example", {{1, 1, {2, 1, 1}}}, {{1, 1, {1, 1, 2}}}, {0}});
  Residual a(layer_.p, arranged_);
  const std::vector<double> alpha = AcceptanceByDraft(&a, 3);
  const std::vector<double> count = AcceptedCountLaw(alpha), tail = AcceptedTail(alpha);
  const double want_alpha[] = {0.75, 0.25, 0.25}, want_count[] = {9, 13, 15, 27};
  for (int j = 0; j < 3; ++j) EXPECT_NEAR(alpha[j], want_alpha[j], 1e-15);
  for (int k = 0; k < 4; ++k) EXPECT_NEAR(count[k], want_count[k] / 64, 1e-15);
  EXPECT_NEAR(tail[2], 21.0 / 32, 1e-15);
  EXPECT_EQ(WidthForThreshold(tail, 0.7), 1);
  EXPECT_EQ(WidthForThreshold(tail, 0.5), 2);
}

TEST_F(DsbdNegativeControl, InvertedRatioIsRejected) {  // E1
  Use(EasyCase());
  EXPECT_GT(Bias(2,
                 [&](ChoiceSource* choices) {
                   InvertedRatio wrong(choices);
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
  EXPECT_GT(Bias(2,
                 [&](ChoiceSource* choices) {
                   const std::vector<int> rows = RowsOfDraftBeams(layer_);
                   std::vector<Entry> drafts;
                   for (Entry entry : choices->ChooseDistinct(Domain::kDraft, 0, layer_.q, 3))
                     drafts.push_back({rows[entry.beam], entry.token});
                   return Entries(Run(drafts, RemovedParents::kReject, 2, choices));
                 }),
            0.05);
}

TEST_F(DsbdNegativeControl,
       WidthFromDistinctDraftsIsRejected) {  // E9: the width must not tell the drafted values
  Use(EasyCase());
  const ExactLaw law = EnumeratedLaw([&](ChoiceSource* choices) {
    const std::vector<Entry> drafts = DrawDrafts(layer_, 2, choices);
    return Entries(Run(drafts, RemovedParents::kReject, drafts[0] == drafts[1] ? 1 : 2, choices));
  });
  EXPECT_GT(WorstGivenWidth(law, layer_.p), 0.02);
}

TEST_F(DsbdNegativeControl, WidthFromSurvivorsUnderRuleEIsRejected) {  // E9
  Use(HardCase());
  const ExactLaw law = EnumeratedLaw([&](ChoiceSource* choices) {
    const std::vector<Entry> drafts = DrawDrafts(layer_, 3, choices);
    const int survivors =
        std::count_if(drafts.begin(), drafts.end(), [&](Entry d) { return !IsRemoved(d); });
    return Entries(Run(drafts, RemovedParents::kReject, std::max(1, survivors), choices));
  });
  EXPECT_GT(WorstGivenWidth(law, layer_.p), 0.02);
}

TEST_F(DsbdNegativeControl, KeepingWhateverWasAcceptedIsRejected) {  // E9
  Use(EasyCase());
  const ExactLaw law = EnumeratedLaw([&](ChoiceSource* choices) {
    const LayerResult result =
        Run(DrawDrafts(layer_, 3, choices), RemovedParents::kReject, 3, choices);
    std::vector<Entry> accepted;
    for (const RuleOutput& output : result.outputs) {
      if (output.draft >= 0) accepted.push_back(output.entry);
    }
    return accepted;
  });
  EXPECT_GT(WorstGivenWidth(law, layer_.p), 0.02);
}

}  // namespace
}  // namespace coppice
