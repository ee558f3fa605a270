// tests/decoding/README.md 3 end to end. Decodes by every lossless method follow the distribution
// of their decoding, with the production drafter, decoder and seeded randomness, over three layers
// of which two are drafted. The exhaustive tests prove the rules. These prove that the noise of
// draft, coin and residual is independent where it must be. G-tests at 1e-6, large enough to detect
// a bias of kBias.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "decoding/layer/dsbd_layer.h"
#include "decoding/layer/dsbd_wor.h"
#include "decoding/tree/greedy_multi_draft.h"
#include "decoding/tree/k_seq.h"
#include "lab/exact/layered_distribution.h"
#include "lab/exact/tree_distribution.h"
#include "sampling/deterministic_math.h"
#include "tests/decoding/shared_noise.h"
#include "tests/testing/g_test.h"
#include "tests/testing/joint_layer.h"
#include "tests/testing/last_layer.h"
#include "tests/testing/named_decode.h"

namespace coppice::decoding {
namespace {

constexpr double kBias = 0.05;  // total variation; 0.016 in long runs
using Outcome = std::vector<uint64_t>;

// ---- models ----

struct Models {
  test::LogProbsOf target, draft;
};

Models HashModels(int vocab) {
  const test::HashLm lm{vocab, /*salt=*/5, /*power=*/3, /*noise=*/36};
  return {test::Remembered([lm](uint64_t hash) { return lm.TargetLogProbs(hash); }),
          test::Remembered([lm](uint64_t hash) { return lm.DraftLogProbs(hash); })};
}

// Pairs of rows that reveal noise that is used twice.
struct RowPair {
  std::vector<double> p, q;
};
// When a drafted token 0 is rejected, the noise of the race that it won also says something about
// tokens 1 and 2. If the residual (1/5, 4/5) is drawn with the same noise, its distribution becomes
// (2/25, 23/25).
RowPair ForTheRace() { return {{0.01, 0.495, 0.495}, {0.5, 0.4, 0.1}}; }
// A drafted token 0 is rejected by coins above 1/2. Then a drafted token 1 is accepted by coins
// below 0.61.
RowPair ForTheCoin() { return {{0.275, 0.35, 0.375}, {0.55, 0.3, 0.15}}; }

// One pair is used after the prompt, the other in later layers.
Models TellingModels(const RowPair& root, const RowPair& below) {
  const auto model = [](const std::vector<double>& first, const std::vector<double>& others) {
    const auto logs = [](const std::vector<double>& masses) {
      std::vector<double> row;
      for (double mass : masses) row.push_back(sampling::Log(mass));
      return row;
    };
    return [first = logs(first), others = logs(others)](uint64_t hash) {
      return hash == sampling::kRootHash ? first : others;
    };
  };
  return {model(root.p, below.p), model(root.q, below.q)};
}

test::NamedSetting Setting(const MethodRow& row, sampling::DecodingKind kind,
                           const Models& models) {
  test::NamedSetting setting;
  setting.params.kind = kind;
  setting.params.method = &row;
  setting.params.max_tokens = 3;
  setting.target = models.target;
  setting.draft = models.draft;
  return setting;
}

// ---- one sequence ----

test::Sampler<Outcome> Tokens(const test::NamedSetting& setting) {
  return [setting](uint64_t seed, Outcome* outcome) {
    test::NamedSetting seeded = setting;
    seeded.params.seed = seed;
    const std::vector<TokenId> tokens = test::RunNamed(seeded).result[0].tokens;
    outcome->assign(tokens.begin(), tokens.end());
    return true;
  };
}

test::NamedSetting SequenceSetting(const MethodRow& row, const Models& models) {
  test::NamedSetting setting = Setting(row, sampling::DecodingKind::kMultinomial, models);
  if (row.form == DraftForm::kTree) setting.params.draft_tree = "2-2";
  setting.draft_width = row.form == DraftForm::kPath ? 1 : 3;
  return setting;
}

test::ExactDistribution SequenceDistribution(const test::NamedSetting& setting) {
  test::TreeSetting closed;
  closed.params = setting.params;
  closed.target = setting.target;
  return test::MultinomialDistribution(closed);
}

// With a stop id that cannot be the first token, some sequences are shorter.
test::NamedSetting EndingSetting(const MethodRow& row) {
  test::NamedSetting setting = SequenceSetting(row, HashModels(3));
  setting.params.stop_ids = {2};
  setting.params.min_tokens = 1;
  setting.params.sampling.temperature = 0.8;
  return setting;
}

bool SequencesFit(const test::NamedSetting& setting) {
  const test::ExactDistribution distribution = SequenceDistribution(setting);
  return test::FitsOnceOfTwice(distribution, Tokens(setting),
                               test::SamplesToSee(kBias, distribution.size()));
}

TEST(SeededDistribution, SequencesOfEveryLosslessMethodAreMultinomial) {
  int methods = 0;
  for (const MethodRow* row : test::MethodsThatServe(sampling::DecodingKind::kMultinomial)) {
    if (!row->lossless) continue;
    SCOPED_TRACE(std::string(row->name));
    EXPECT_TRUE(SequencesFit(EndingSetting(*row)));
    EXPECT_TRUE(SequencesFit(SequenceSetting(*row, TellingModels(ForTheRace(), ForTheCoin()))));
    ++methods;
  }
  EXPECT_GE(methods, 12);
}

TEST(SeededDistribution, LossyMethodsAreSeen) {
  for (const MethodRow* row : test::MethodsThatServe(sampling::DecodingKind::kMultinomial)) {
    if (row->lossless) continue;
    SCOPED_TRACE(std::string(row->name));
    EXPECT_FALSE(SequencesFit(EndingSetting(*row)));
  }
}

// ---- beams ----

test::NamedSetting BeamSetting(const MethodRow& row, sampling::DecodingKind kind, int width,
                               int draft_width, const Models& models) {
  test::NamedSetting setting = Setting(row, kind, models);
  setting.params.beam_width = width;
  setting.params.num_hypotheses = width;
  setting.draft_width = draft_width;
  return setting;
}

bool BeamsFit(const test::NamedSetting& setting) {
  return test::LastLayerFits(setting, test::LastLayerDistribution(setting.params, setting.target),
                             kBias);
}

TEST(SeededDistribution, BeamsOfEveryLosslessMethodAreBeamSampling) {
  for (sampling::DecodingKind kind : {sampling::DecodingKind::kBeamSampling,
                                      sampling::DecodingKind::kBeamSamplingWithoutReplacement}) {
    int methods = 0;
    for (const MethodRow* row : test::MethodsThatServe(kind)) {
      if (!row->lossless) continue;
      SCOPED_TRACE(testing::Message() << row->name << " " << sampling::DecodingKindName(kind));
      EXPECT_TRUE(BeamsFit(BeamSetting(*row, kind, 2, 3, HashModels(2))));
      EXPECT_TRUE(
          BeamsFit(BeamSetting(*row, kind, 1, 1, TellingModels(ForTheRace(), ForTheRace()))));
      EXPECT_TRUE(
          BeamsFit(BeamSetting(*row, kind, 1, 3, TellingModels(ForTheCoin(), ForTheCoin()))));
      ++methods;
    }
    EXPECT_GE(methods, 3);
  }
}

// ---- noise that is shared where it must not be ----

template <typename Variant>
std::unique_ptr<ChoiceSource> MakeVariant(ChoiceSource* choices) {
  return std::make_unique<Variant>(choices);
}

// The decodes of TreeDistribution with seeded choices, or with a wrong variant of them.
test::Sampler<Outcome> Trees(const test::TreeSetting& setting, const test::WrongChoices& wrong) {
  return [setting, wrong](uint64_t seed, Outcome* outcome) {
    SeededChoices choices(seed);
    const auto variant =
        wrong ? wrong(&choices) : std::make_unique<test::ForwardedChoices>(&choices);
    const test::TreeRun run = test::RunTree(setting, variant.get());
    outcome->assign(run.tokens.begin(), run.tokens.end());
    return true;
  };
}

bool TreesFit(NodeRule rule, ChildSampling distribution, const char* tree, const Models& models,
              const test::WrongChoices& wrong) {
  test::TreeSetting setting;
  setting.params.draft_tree = tree;
  setting.params.max_tokens = 3;
  setting.rule = rule;
  setting.distribution = setting.relied_on = distribution;
  setting.target = models.target;
  setting.draft = models.draft;
  const test::ExactDistribution target = test::MultinomialDistribution(setting);
  return test::FitsOnceOfTwice(target, Trees(setting, wrong),
                               test::SamplesToSee(kBias, target.size()));
}

TEST(SeededDistributionControl, SharedNoiseIsSeenInSequences) {
  const Models hash = HashModels(3);
  const Models race = TellingModels(ForTheRace(), ForTheRace());
  const Models coin = TellingModels(ForTheCoin(), ForTheCoin());
  for (const Models& models : {hash, race, coin})
    EXPECT_TRUE(TreesFit(VerifyRrsIid, ChildSampling::kIid, "2-2", models, nullptr));
  const auto one_coin = MakeVariant<OneCoin>;
  EXPECT_FALSE(TreesFit(VerifyRrsIid, ChildSampling::kIid, "2-2", coin, one_coin));
  EXPECT_FALSE(TreesFit(VerifyKSeq, ChildSampling::kIid, "2-2", coin, one_coin));
  const auto one_noise = MakeVariant<OneNoiseForAllPaths>;
  EXPECT_FALSE(TreesFit(VerifyRrsIid, ChildSampling::kIid, "2-2", hash, one_noise));
  EXPECT_FALSE(TreesFit(VerifyGreedy, ChildSampling::kGreedy, "2-2", hash, one_noise));
  EXPECT_FALSE(TreesFit(nullptr, ChildSampling::kIid, "chain", hash, one_noise));
  const auto draft_noise = MakeVariant<ResidualOfDraftNoise>;
  EXPECT_FALSE(TreesFit(VerifyRrsIid, ChildSampling::kIid, "chain", race, draft_noise));
  EXPECT_FALSE(TreesFit(nullptr, ChildSampling::kIid, "chain", race, draft_noise));
}

bool LayersFit(bool reuse, int width, int draft_width, const Models& models,
               const test::Wrong& wrong) {
  test::LayeredSetting setting;
  setting.params.kind = sampling::DecodingKind::kBeamSampling;
  setting.params.beam_width = width;
  setting.params.max_tokens = 2;
  setting.draft_width = draft_width;
  setting.draft_depth = 1;
  if (reuse) {
    setting.rule = MakeDsbdWorRule;
    setting.drafts = DrawKind::kDistinct;
  }
  setting.target = models.target;
  setting.draft = models.draft;
  const test::ExactDistribution distribution =
      test::OfLastLayer(test::ClosedFixedWidthDistribution(setting));
  const test::Sampler<Outcome> sampler = [&](uint64_t seed, Outcome* outcome) {
    SeededChoices choices(seed);
    const auto variant =
        wrong ? wrong(&choices) : std::make_unique<test::ForwardedChoices>(&choices);
    *outcome = test::RunLayered(setting, variant.get()).back();
    std::sort(outcome->begin(), outcome->end());
    return true;
  };
  return test::FitsOnceOfTwice(distribution, sampler,
                               test::SamplesToSee(kBias, distribution.size()));
}

TEST(SeededDistributionControl, SharedNoiseIsSeenInBeams) {
  const Models hash = HashModels(3);
  const Models race = TellingModels(ForTheRace(), ForTheRace());
  const Models coin = TellingModels(ForTheCoin(), ForTheCoin());
  for (const bool reuse : {false, true}) {
    SCOPED_TRACE(reuse ? "dsbd_wor" : "dsbd");
    EXPECT_TRUE(LayersFit(reuse, 1, 1, race, nullptr));
    EXPECT_FALSE(LayersFit(reuse, 1, 1, race, MakeVariant<ResidualOfDraftNoise>));
    EXPECT_FALSE(LayersFit(reuse, 2, 3, coin, MakeVariant<OneCoin>));
    EXPECT_FALSE(LayersFit(reuse, 2, 3, hash, MakeVariant<OneNoiseForAllPaths>));
  }
}

// ---- drafts and outputs together ----

// If drafts and outputs share noise, the outputs alone hardly show it, because the sum over the
// drafts is nearly right. Outcome: the drafts of one DSBD layer in drawing order, then its outputs.
struct OneLayer {
  OneLayer(const RowPair& pair, int width, int drafts)
      : layer(test::joint_layer::MakeLayer({{1, 1, pair.p}}, {{1, 1, pair.q}}, {0})),
        width(width),
        drafts(drafts) {
    test::joint_layer::Bind(&layer);
  }
  OneLayer(const OneLayer&) = delete;

  std::vector<Entry> Run(ChoiceSource* choices) const {
    std::vector<Entry> drawn = test::joint_layer::DrawDrafts(layer, drafts, choices);
    const LayerResult result = VerifyDsbdLayer({&layer.p, &layer.q, drawn, width},
                                               RemovedParents::kReject, WidthRule(), choices);
    for (const RuleOutput& output : result.outputs) drawn.push_back(output.entry);
    return drawn;
  }

  test::joint_layer::Layer layer;
  int width, drafts;
};

bool DraftsAndOutputsFit(const OneLayer& one, const test::Wrong& wrong) {
  const test::ExactDistribution distribution = test::joint_layer::EnumeratedDistribution(
      [&](ChoiceSource* choices) { return one.Run(choices); });
  const test::Sampler<Outcome> sampler = [&](uint64_t seed, Outcome* outcome) {
    SeededChoices choices(seed);
    choices.BeginRound(2);
    const auto variant =
        wrong ? wrong(&choices) : std::make_unique<test::ForwardedChoices>(&choices);
    for (const Entry& entry : one.Run(variant.get()))
      outcome->push_back(test::joint_layer::Key(entry));
    return true;
  };
  return test::FitsOnceOfTwice(distribution, sampler,
                               test::SamplesToSee(kBias, distribution.size()));
}

RowPair ForDirectDraws() { return {{0.5, 0.5}, {0.3, 0.7}}; }

TEST(SeededDistribution, DraftsAndOutputsOfALayerAreIndependentWhereTheyMustBe) {
  for (const RowPair& pair : {ForDirectDraws(), ForTheRace(), ForTheCoin()}) {
    for (const auto& [width, drafts] : {std::pair(1, 1), {2, 2}, {3, 2}}) {
      EXPECT_TRUE(DraftsAndOutputsFit(OneLayer(pair, width, drafts), nullptr))
          << "W " << width << ", W_S " << drafts;
    }
  }
  EXPECT_TRUE(DraftsAndOutputsFit(OneLayer(ForDirectDraws(), 3, 3), nullptr));
}

TEST(SeededDistributionControl, SharedNoiseIsSeenInDraftsAndOutputs) {
  for (const int width : {2, 3}) {
    SCOPED_TRACE(width);
    const OneLayer one(ForDirectDraws(), width, width);
    EXPECT_FALSE(DraftsAndOutputsFit(one, MakeVariant<DirectOfDraftNoise>));
    EXPECT_FALSE(DraftsAndOutputsFit(one, MakeVariant<OneCoin>));
  }
  EXPECT_FALSE(
      DraftsAndOutputsFit(OneLayer(ForDirectDraws(), 3, 3), MakeVariant<DirectOfResidualNoise>));
  EXPECT_FALSE(
      DraftsAndOutputsFit(OneLayer(ForTheRace(), 1, 1), MakeVariant<ResidualOfDraftNoise>));
}

}  // namespace
}  // namespace coppice::decoding
