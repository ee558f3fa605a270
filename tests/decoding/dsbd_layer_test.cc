// One DSBD layer, every choice enumerated: exact for every draft law, width rule and survivor rule;
// wrong for every known wrong variant (ALGORITHMS.md 5.1-5.3, section 9).
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

namespace coppice {
namespace {

Distribution Row(const std::vector<double>& weights) {
  double sum = 0;
  for (double weight : weights) sum += weight;
  Distribution row;
  for (int v = 0; v < weights.size(); ++v) {
    if (weights[v] == 0) continue;
    row.tokens.push_back(v);
    row.log_probs.push_back(Log(weights[v] / sum));
  }
  return row;
}

// A layer: target beams with multiplicities; draft beams, of which the first ones may be current
// target beams.
struct Layer {
  std::vector<Distribution> target_rows;
  std::vector<Distribution> draft_rows;
  LayerLaw p;
  LayerLaw q;                     // all draft beams, mass 1
  std::vector<int> draft_target;  // [draft beams] target beam or -1 = removed parent
};

struct Beam {
  double weight;
  int multiplicity;
  std::vector<double> row;
};

Layer MakeLayer(const std::vector<Beam>& target, const std::vector<Beam>& draft,
                const std::vector<int>& draft_target) {
  Layer layer;
  for (const Beam& beam : target) layer.target_rows.push_back(Row(beam.row));
  for (const Beam& beam : draft) layer.draft_rows.push_back(Row(beam.row));
  std::vector<LawBeam> p, q;
  for (int b = 0; b < target.size(); ++b)
    p.push_back({b + 1u, Log(target[b].weight), target[b].multiplicity});
  for (int b = 0; b < draft.size(); ++b)
    q.push_back({b + 1u, Log(draft[b].weight), draft[b].multiplicity});
  layer.p = MakeLayerLaw(p);
  layer.q = MakeLayerLaw(q);
  layer.draft_target = draft_target;
  return layer;
}

// The laws refer to rows that live in the layer; set after the layer has its final place.
void Bind(Layer* layer) {
  for (int b = 0; b < layer->p.rows.size(); ++b) layer->p.rows[b].sparse = &layer->target_rows[b];
  for (int b = 0; b < layer->q.rows.size(); ++b) layer->q.rows[b].sparse = &layer->draft_rows[b];
}

// Rows of the draft beams in the order of LayerInput: those of the target's beams, then the others.
std::vector<int> RowsOfDraftBeams(const Layer& layer) {
  std::vector<int> rows;
  int next = static_cast<int>(layer.p.rows.size());
  for (int target : layer.draft_target) rows.push_back(target >= 0 ? target : next++);
  return rows;
}

LayerLaw ArrangedProposal(const Layer& layer) {
  LayerLaw q;
  for (const WeightedRow& row : layer.p.rows) {
    q.rows.push_back({row.hash});
  }
  const std::vector<int> rows = RowsOfDraftBeams(layer);
  for (int b = 0; b < rows.size(); ++b) {
    if (rows[b] >= q.rows.size()) q.rows.resize(rows[b] + 1);
    q.rows[rows[b]] = layer.q.rows[b];
  }
  return q;
}

std::vector<Entry> DrawDrafts(const Layer& layer, int count, ChoiceSource* choices) {
  const std::vector<int> rows = RowsOfDraftBeams(layer);
  std::vector<Entry> drafts;
  for (int j = 0; j < count; ++j) {
    const Entry entry = choices->Choose(Domain::kDraft, j, layer.q).entry;
    drafts.push_back({rows[entry.beam], entry.token});
  }
  return drafts;
}

uint64_t Key(Entry entry) { return entry.beam * 100 + entry.token; }

using Verify = std::function<std::vector<Entry>(ChoiceSource*)>;

ExactLaw EnumeratedLaw(const Verify& verify) {
  ExactLaw law;
  EnumerateChoices([&](ScriptedChoices* choices) {
    std::vector<uint64_t> outcome;
    for (const Entry& entry : verify(choices)) outcome.push_back(Key(entry));
    law[outcome] += choices->probability();
  });
  return law;
}

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

std::vector<Entry> Entries(const LayerResult& result) {
  std::vector<Entry> entries;
  for (const RuleOutput& output : result.outputs) entries.push_back(output.entry);
  return entries;
}

struct Config {
  const char* name;
  std::vector<Beam> target;
  std::vector<Beam> draft;
  std::vector<int> draft_target;
};

// One or two beams, V = 2..4.
const std::vector<Config>& Configs() {
  static const auto* configs = new std::vector<Config>{
      {"one beam", {{1, 1, {4, 3, 2, 1}}}, {{1, 1, {1, 2, 3, 4}}}, {0}},
      {"two beams", {{2, 1, {3, 1}}, {1, 1, {1, 4}}}, {{1, 1, {1, 1}}, {3, 1, {2, 3}}}, {0, 1}},
      {"multiplicities",
       {{2, 2, {3, 1}}, {1, 1, {1, 4}}},
       {{2, 2, {1, 1}}, {1, 1, {2, 3}}},
       {0, 1}},
      {"removed parent",
       {{2, 1, {3, 1}}, {1, 1, {1, 4}}},
       {{1, 1, {1, 2}}, {2, 1, {2, 1}}, {1, 1, {1, 1}}},
       {0, 1, -1}},
      {"beam without proposal",
       {{2, 1, {3, 1}}, {1, 2, {1, 4}}},
       {{1, 1, {1, 2}}, {2, 1, {2, 1}}},
       {-1, 1}},
      {"all parents removed", {{2, 1, {3, 1}}}, {{1, 1, {1, 2}}, {2, 1, {2, 1}}}, {-1, -1}},
      {"disjoint supports", {{1, 1, {3, 1, 0, 0}}}, {{1, 1, {0, 0, 1, 1}}}, {0}},
      {"overlapping supports", {{1, 1, {3, 1, 0, 2}}}, {{1, 1, {0, 2, 1, 1}}}, {0}},
      {"p equals q", {{2, 1, {3, 1}}, {1, 1, {1, 4}}}, {{2, 1, {3, 1}}, {1, 1, {1, 4}}}, {0, 1}},
      {"one-hot p", {{1, 1, {0, 1, 0}}}, {{1, 1, {1, 2, 3}}}, {0}},
      {"one-hot q", {{1, 1, {1, 2, 3}}}, {{1, 1, {0, 0, 1}}}, {0}},
  };
  return *configs;
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

// P and Q far apart, one removed parent.
const Config& HardCase() {
  static const auto* config = new Config{"hard",
                                         {{2, 1, {3, 1}}, {1, 1, {1, 4}}},
                                         {{2, 1, {1, 3}}, {1, 1, {2, 1}}, {1, 1, {1, 1}}},
                                         {0, 1, -1}};
  return *config;
}
const Config& EasyCase() {
  static const auto* config = new Config{"no removed parent",
                                         {{2, 1, {3, 1}}, {1, 1, {1, 4}}},
                                         {{2, 1, {1, 3}}, {1, 1, {2, 1}}},
                                         {0, 1}};
  return *config;
}

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
