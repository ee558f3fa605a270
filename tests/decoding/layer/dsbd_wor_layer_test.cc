// One layer verified with reuse (docs/algorithms.md 5.5, 9), with all choices enumerated. Its
// distribution is exact for targets with and without replacement, under both survivor rules, with
// ends of sequence. Wrong variants are detected.
#include "decoding/layer/dsbd_wor_layer.h"

#include <algorithm>
#include <limits>
#include <set>
#include <vector>

#include "decoding/layer/dsbd_layer.h"
#include "gtest/gtest.h"
#include "lab/exact/forwarded_choices.h"
#include "sampling/deterministic_math.h"
#include "tests/testing/joint_layer.h"

namespace coppice::decoding {
namespace {

using namespace test::joint_layer;  // NOLINT: the whole file is about its layers

std::vector<Entry> DrawDistinctDrafts(const Layer& layer, int count, ChoiceSource* choices) {
  const std::vector<int> rows = RowsOfDraftBeams(layer);
  std::vector<Entry> drafts;
  for (Entry entry : choices->ChooseDistinct(sampling::Domain::kDraft, 0, layer.q, count))
    drafts.push_back({rows[entry.beam], entry.token});
  return drafts;
}

// Sequential draws from P, iid or without replacement (fewer if P has fewer entries).
test::ExactDistribution SequentialDistribution(const LayerDistribution& p, int width,
                                               bool with_replacement) {
  test::ExactDistribution distribution;
  const int entries = static_cast<int>(ListEntries(p).size());
  const int draws = with_replacement ? width : std::min(width, entries);
  test::VisitLayerOutcomes(p, draws, with_replacement,
                           [&](const std::vector<Entry>& drawn, double probability) {
                             std::vector<uint64_t> outcome;
                             for (const Entry& entry : drawn) outcome.push_back(Key(entry));
                             distribution[outcome] += probability;
                           });
  return distribution;
}

// docs/algorithms.md 8 on a full ranking of P. An end with a rank below W is an output; a later end
// is skipped. The first W other entries are outputs.
test::ExactDistribution WalkDistribution(const LayerDistribution& p, int width,
                                         absl::Span<const TokenId> stop_ids) {
  test::ExactDistribution distribution;
  test::VisitLayerOutcomes(p, static_cast<int>(ListEntries(p).size()), /*with_replacement=*/false,
                           [&](const std::vector<Entry>& ranking, double probability) {
                             std::vector<uint64_t> outcome;
                             int live = 0;
                             for (int rank = 0; rank < ranking.size() && live < width; ++rank) {
                               const bool ends = std::find(stop_ids.begin(), stop_ids.end(),
                                                           ranking[rank].token) != stop_ids.end();
                               if (ends && rank >= width) continue;
                               live += !ends;
                               outcome.push_back(Key(ranking[rank]));
                             }
                             distribution[outcome] += probability;
                           });
  return distribution;
}

class DsbdWorLayer : public testing::Test {
 protected:
  void Use(const Config& config) {
    layer_ = MakeLayer(config.target, config.draft, config.draft_target);
    Bind(&layer_);
    arranged_ = ArrangedProposal(layer_);
  }
  LayerResult Run(const std::vector<Entry>& drafts, RemovedParents rule, int width,
                  ChoiceSource* choices) const {
    return VerifyWithReuse({&layer_.p, &arranged_, drafts, width}, rule, choices);
  }
  LayerResult RunDistinct(const std::vector<Entry>& drafts, RemovedParents rule, int width,
                          absl::Span<const TokenId> stop_ids, ChoiceSource* choices) const {
    return VerifyDistinctWithReuse({&layer_.p, &arranged_, drafts, width}, rule, stop_ids, choices);
  }
  double Bias(int width, bool with_replacement, const Verify& verify) const {
    return test::TotalVariation(EnumeratedDistribution(verify),
                                SequentialDistribution(layer_.p, width, with_replacement));
  }
  Layer layer_;
  LayerDistribution arranged_;
};

TEST_F(DsbdWorLayer, OutputsAreIidFromTheTarget) {
  for (const Config& config : Configs()) {
    Use(config);
    for (RemovedParents rule : {RemovedParents::kReject, RemovedParents::kRenormalise}) {
      for (const auto& [width, drafts] : {std::pair(1, 1), {1, 3}, {2, 2}, {2, 3}, {3, 3}}) {
        const test::ExactDistribution distribution =
            EnumeratedDistribution([&](ChoiceSource* choices) {
              return Entries(
                  Run(DrawDistinctDrafts(layer_, drafts, choices), rule, width, choices));
            });
        EXPECT_LT(
            test::LargestDifference(distribution, SequentialDistribution(layer_.p, width, true)),
            1e-12)
            << config.name << " W " << width << " W_S " << drafts << " rule "
            << static_cast<int>(rule);
      }
    }
  }
}

TEST_F(DsbdWorLayer, DistinctOutputsAreTheTargetsSampleWithoutReplacement) {
  for (const Config& config : Configs()) {
    Use(config);
    for (RemovedParents rule : {RemovedParents::kReject, RemovedParents::kRenormalise}) {
      for (const auto& [width, drafts] : {std::pair(1, 2), {2, 2}, {2, 3}, {3, 3}, {5, 2}}) {
        const test::ExactDistribution distribution =
            EnumeratedDistribution([&](ChoiceSource* choices) {
              return Entries(RunDistinct(DrawDistinctDrafts(layer_, drafts, choices), rule, width,
                                         {}, choices));
            });
        EXPECT_LT(
            test::LargestDifference(distribution, SequentialDistribution(layer_.p, width, false)),
            1e-12)
            << config.name << " W " << width << " W_S " << drafts;
      }
    }
  }
}

// Ends among the first W ranks make room for entries of later ranks, drafted or not.
TEST_F(DsbdWorLayer, DistinctOutputsWalkPastEnds) {
  std::set<size_t> sizes;
  for (const Config& config : Configs()) {
    Use(config);
    for (const std::vector<TokenId>& stop_ids : {std::vector<TokenId>{0}, {0, 1}}) {
      for (int width : {1, 2}) {
        const test::ExactDistribution walk = WalkDistribution(layer_.p, width, stop_ids);
        const test::ExactDistribution distribution =
            EnumeratedDistribution([&](ChoiceSource* choices) {
              return Entries(RunDistinct(DrawDistinctDrafts(layer_, 3, choices),
                                         RemovedParents::kReject, width, stop_ids, choices));
            });
        EXPECT_LT(test::LargestDifference(distribution, walk), 1e-12)
            << config.name << " W " << width;
        const test::ExactDistribution direct = EnumeratedDistribution([&](ChoiceSource* choices) {
          return Entries(DrawDistinctLayer(layer_.p, width, stop_ids, choices));
        });
        EXPECT_LT(test::LargestDifference(direct, walk), 1e-12)
            << config.name << " direct W " << width;
        for (const auto& [outcome, probability] : distribution) sizes.insert(outcome.size());
      }
    }
  }
  EXPECT_TRUE(sizes.count(3) == 1 && sizes.count(4) == 1);
}

// p = q: the first W drafts are accepted, whatever they are (iid: also for the residual).
TEST_F(DsbdWorLayer, EqualDistributionsAcceptTheFirstDraftsOfADistinctTarget) {
  Use(Configs()[8]);
  test::EnumerateChoices([&](test::ScriptedChoices* choices) {
    const std::vector<Entry> drafts = DrawDistinctDrafts(layer_, 3, choices);
    const LayerResult result =
        RunDistinct(drafts, RemovedParents::kReject, 3, /*stop_ids=*/{}, choices);
    EXPECT_TRUE(result.full);
    EXPECT_EQ(result.residual_draws, 0);
    for (int w = 0; w < 3; ++w) EXPECT_EQ(result.outputs[w].draft, w);
  });
}

TEST_F(DsbdWorLayer, DisjointSupportsCoverNothing) {
  Use(Configs()[6]);
  test::EnumerateChoices([&](test::ScriptedChoices* choices) {
    const LayerResult result =
        Run(DrawDistinctDrafts(layer_, 3, choices), RemovedParents::kReject, 2, choices);
    EXPECT_FALSE(result.full);
    EXPECT_EQ(result.overlap, 0.0);
  });
}

// The gain of 5.5: drafts are distinct, and each can be used again.
TEST_F(DsbdWorLayer, CoversMoreThanDsbdFills) {
  for (const Config& config : {EasyCase(), HardCase()}) {
    Use(config);
    double covered = 0, hits = 0;
    test::EnumerateChoices([&](test::ScriptedChoices* choices) {
      const LayerResult result =
          Run(DrawDistinctDrafts(layer_, 3, choices), RemovedParents::kReject, 2, choices);
      covered += result.full ? choices->probability() : 0.0;
      const bool all_accepted = result.outputs[0].draft >= 0 && result.outputs[1].draft >= 0;
      hits += result.full && !all_accepted ? choices->probability() : 0.0;
    });
    double full = 0;
    test::EnumerateChoices([&](test::ScriptedChoices* choices) {
      const LayerResult result =
          VerifyDsbdLayer({&layer_.p, &arranged_, DrawDrafts(layer_, 3, choices), 2},
                          RemovedParents::kReject, WidthRule(), choices);
      full += result.full ? choices->probability() : 0.0;
    });
    EXPECT_GT(covered, full + 0.1) << config.name;
    EXPECT_GT(hits, 0.05) << config.name;
  }
}

// Entries whose mass is lost when 1 is added in f64 are drawn last, as in the target's own sample.
TEST_F(DsbdWorLayer, VanishingMassesAreDrawnLast) {
  sampling::Distribution row;
  row.tokens = {0, 1, 2};
  row.log_probs = {0, -900, -2000};
  LayerDistribution p, q;
  p.rows.resize(1);
  p.rows[0].sparse = &row;
  q = p;
  test::EnumerateChoices([&](test::ScriptedChoices* choices) {
    const std::vector<Entry> drafts = {{0, 0}, {0, 1}};
    const LayerResult result =
        VerifyDistinctWithReuse({&p, &q, drafts, 2}, RemovedParents::kReject, {}, choices);
    ASSERT_EQ(result.outputs.size(), 2u);
    EXPECT_EQ(result.outputs[0].entry, (Entry{0, 0}));
  });
}

// Seeded draws without replacement: the override draws all at once and must give the same as the
// default, which draws one by one.
TEST_F(DsbdWorLayer, SeededDistinctDrawsAreTheLargestKeys) {
  Use(HardCase());
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SeededChoices choices(seed);
    choices.BeginRound(seed % 3);
    const std::vector<Entry> at_once =
        choices.ChooseDistinct(sampling::Domain::kDraft, 0, layer_.q, 6);
    EXPECT_EQ(at_once,
              choices.ChoiceSource::ChooseDistinct(sampling::Domain::kDraft, 0, layer_.q, 6));
    EXPECT_EQ(at_once[0], choices.Choose(sampling::Domain::kDraft, 0, layer_.q).entry);
  }
}

// ---- negative controls

class DsbdWorNegativeControl : public DsbdWorLayer {};

TEST_F(DsbdWorNegativeControl, InvertedRatioIsRejected) {
  Use(EasyCase());
  EXPECT_GT(Bias(2, true,
                 [&](ChoiceSource* choices) {
                   test::InvertedRatio wrong(choices);
                   return Entries(Run(DrawDistinctDrafts(layer_, 3, choices),
                                      RemovedParents::kReject, 2, &wrong));
                 }),
            0.05);
}

// the rule relies on their distribution
TEST_F(DsbdWorNegativeControl, IndependentDraftsAreRejected) {
  Use(EasyCase());
  EXPECT_GT(Bias(2, true,
                 [&](ChoiceSource* choices) {
                   std::vector<Entry> distinct;
                   for (const Entry& draft : DrawDrafts(layer_, 3, choices)) {
                     if (std::find(distinct.begin(), distinct.end(), draft) == distinct.end())
                       distinct.push_back(draft);
                   }
                   std::reverse(distinct.begin(), distinct.end());
                   return Entries(Run(distinct, RemovedParents::kReject, 2, choices));
                 }),
            0.005);
}

TEST_F(DsbdWorNegativeControl, ResortedDraftsAreRejected) {
  Use(EasyCase());
  for (bool with_replacement : {true, false}) {
    EXPECT_GT(
        Bias(2, with_replacement,
             [&](ChoiceSource* choices) {
               std::vector<Entry> drafts = DrawDistinctDrafts(layer_, 3, choices);
               std::stable_sort(drafts.begin(), drafts.end(), [&](Entry a, Entry b) {
                 return LogMass(arranged_, a) > LogMass(arranged_, b);
               });
               return Entries(with_replacement
                                  ? Run(drafts, RemovedParents::kReject, 2, choices)
                                  : RunDistinct(drafts, RemovedParents::kReject, 2, {}, choices));
             }),
        0.02);
  }
}

TEST_F(DsbdWorNegativeControl, DroppingWithoutRenormalisingIsRejected) {
  Use(HardCase());
  EXPECT_GT(Bias(2, true,
                 [&](ChoiceSource* choices) {
                   std::vector<Entry> drafts = DrawDistinctDrafts(layer_, 3, choices);
                   drafts.erase(
                       std::remove_if(drafts.begin(), drafts.end(),
                                      [&](Entry d) { return d.beam >= layer_.p.rows.size(); }),
                       drafts.end());
                   return Entries(Run(drafts, RemovedParents::kReject, 2, choices));
                 }),
            0.01);
}

// 5.3: if drafts are without replacement, the width may not depend on the number of survivors, not
// even under rule N.
TEST_F(DsbdWorNegativeControl, WidthFromSurvivorsIsRejected) {
  Use(HardCase());
  for (RemovedParents rule : {RemovedParents::kReject, RemovedParents::kRenormalise}) {
    const test::ExactDistribution distribution = EnumeratedDistribution([&](ChoiceSource* choices) {
      const std::vector<Entry> drafts = DrawDistinctDrafts(layer_, 3, choices);
      const int survivors = std::count_if(drafts.begin(), drafts.end(),
                                          [&](Entry d) { return d.beam < layer_.p.rows.size(); });
      return Entries(Run(drafts, rule, survivors < 3 ? 1 : 2, choices));
    });
    test::ExactDistribution of_one;
    double total = 0;
    for (const auto& [outcome, probability] : distribution) {
      if (outcome.size() != 1) continue;
      of_one[outcome] = probability;
      total += probability;
    }
    for (auto& [outcome, probability] : of_one) probability /= total;
    EXPECT_GT(test::TotalVariation(of_one, SequentialDistribution(layer_.p, 1, true)), 0.002);
  }
}

// If an end of rank W or later is kept, there is one output too many.
TEST_F(DsbdWorNegativeControl, KeepingLateEndsIsRejected) {
  Use(Configs()[0]);
  const std::vector<TokenId> stop_ids = {0};
  const test::ExactDistribution distribution = EnumeratedDistribution([&](ChoiceSource* choices) {
    LayerResult result = DrawDistinctLayer(layer_.p, 2, stop_ids, choices);
    const bool ended = std::any_of(result.outputs.begin(), result.outputs.end(),
                                   [](const RuleOutput& o) { return o.entry.token == 0; });
    if (ended) return Entries(DrawDistinctLayer(layer_.p, 3, /*stop_ids=*/{}, choices));
    return Entries(result);
  });
  EXPECT_GT(test::TotalVariation(distribution, WalkDistribution(layer_.p, 2, stop_ids)), 0.02);
}

}  // namespace
}  // namespace coppice::decoding
