// Penalties (docs/algorithms.md 1) depend on the path of a row. A decode with penalties is a decode
// without them on another model, whose rows have them already. So every distribution of
// docs/algorithms.md 3 must hold for the penalised rows: exactly, where all choices of the
// production drafter and decoder are enumerated, and by G-tests and by equality with a second
// implementation elsewhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "decoding/layer/dsbd_wor.h"
#include "decoding/row_need.h"
#include "lab/exact/layered_distribution.h"
#include "lab/exact/tree_distribution.h"
#include "sampling/deterministic_math.h"
#include "sampling/logits_processing.h"
#include "tests/decoding/penalty_setting.h"
#include "tests/decoding/reference_decoder.h"
#include "tests/testing/g_test.h"
#include "tests/testing/named_decode.h"
#include "tests/testing/penalised_model.h"

namespace coppice::decoding {
namespace {

using testing::ElementsAre;
using testing::Pair;

using namespace penalty_setting;  // NOLINT: the whole file is about it

constexpr double kExact = 1e-12;
constexpr double kBiased = 1e-4;  // the least bias that a wrong variant must have

// ---- one row ----

DecodingParams Penalties(double frequency, double presence, double repetition) {
  DecodingParams params;
  params.sampling.frequency_penalty = frequency;
  params.sampling.presence_penalty = presence;
  params.sampling.repetition_penalty = repetition;
  return params;
}

TEST(Penalty, FrequencyAndPresenceAreOneBiasForEachGeneratedToken) {
  DecodingParams params = Penalties(0.5, 0.25, 1);
  params.sampling.logit_bias = {{2, 1.0}, {7, 3.0}};
  const sampling::SamplingParams sampling =
      sampling::SamplingAt(params, std::vector<TokenId>{7, 4, 7, 7});
  EXPECT_THAT(sampling.logit_bias, ElementsAre(Pair(2, 1.0), Pair(4, -0.75), Pair(7, 3.0 - 1.75)));
  EXPECT_TRUE(sampling.repeated.empty());
}

TEST(Penalty, RepetitionCountsThePromptAndTheOthersDoNot) {
  DecodingParams params = Penalties(0.5, 0, 2);
  SetPrompt(std::vector<TokenId>{3, 1, 3}, &params);
  const std::vector<double> logits = {1, 2, -2, 4, -6};
  // 4 was generated twice; 1 and 3 are in the prompt, 3 was generated too.
  std::vector<double> row = logits;
  sampling::TemperRow(sampling::SamplingAt(params, std::vector<TokenId>{4, 3, 4}),
                      absl::MakeSpan(row));
  EXPECT_THAT(row, ElementsAre(1, 1, -2, 2 - 0.5, -12 - 1.0));
}

TEST(Penalty, BannedTokensStayBanned) {
  DecodingParams params = Penalties(-2, -2, 0.1);
  params.stop_ids = {2};
  params.min_tokens = 3;
  const std::vector<float> logits = {0.f, 1.f, 9.f};
  const sampling::Distribution row =
      sampling::ProcessRow(logits, sampling::SamplingAt(params, std::vector<TokenId>{2, 2}));
  EXPECT_THAT(row.tokens, ElementsAre(0, 1));
}

// Long rows take short cuts: the largest logits, and the tokens that penalties or biases change.
TEST(Penalty, ShortCutsOfLongRowsGiveTheWholeRow) {
  const test::HashLm lm{900, 3, 5, 0};
  const std::vector<double> exact = lm.TargetLogProbs(sampling::kRootHash);
  std::vector<float> logits(exact.begin(), exact.end());
  for (float& logit : logits) logit += 6;  // of both signs
  std::vector<TokenId> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<TokenId>(i);
  std::sort(order.begin(), order.end(),
            [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
  for (double repetition : {1.0, 1.7, 0.5}) {
    for (int top_k : {1, 3, 10}) {
      DecodingParams params = Penalties(1.5, 0.5, repetition);
      params.sampling.top_k = top_k;
      // The best tokens are pushed down, and some of the worst are pushed up.
      params.sampling.logit_bias = {{order[899], 20.0}, {order[898], 19.5}};
      SetPrompt(absl::MakeConstSpan(order).subspan(5, 3), &params);
      const std::vector<TokenId> path = {order[0], order[1], order[0], order[2], order[899]};
      sampling::SamplingParams sampling = sampling::SamplingAt(params, path);
      const sampling::Distribution row = sampling::ProcessRow(logits, sampling);
      const std::vector<double> wide(logits.begin(), logits.end());
      const sampling::Distribution whole = sampling::ProcessRow(wide, sampling);
      EXPECT_EQ(row.tokens, whole.tokens) << repetition << " " << top_k;
      EXPECT_EQ(row.log_probs, whole.log_probs);
      const std::vector<double> defined =
          test::PenalisedRow(wide, params, absl::MakeConstSpan(order).subspan(5, 3), path);
      const auto best = std::max_element(defined.begin(), defined.end()) - defined.begin();
      EXPECT_EQ(*std::max_element(row.log_probs.begin(), row.log_probs.end()),
                row.log_probs[FindToken(row, static_cast<TokenId>(best))]);
    }
  }
}

// The largest logits are far apart, so that a short cut gathers no more than it must.
TEST(Penalty, ShortCutsReachPastPenalisedTokens) {
  constexpr int kApart = 256, kLarge = 40, kPenalised = 6;
  std::vector<float> logits(kApart * kLarge, -50.f);
  std::vector<TokenId> path;
  for (int i = 0; i < kLarge; ++i) {
    logits[i * kApart] = 8 - 0.1f * i;
    if (i < kPenalised) path.push_back(i * kApart);
  }
  const std::vector<double> wide(logits.begin(), logits.end());
  for (const double repetition : {1.0, 1.7}) {
    for (const int top_k : {1, 3, 10}) {
      DecodingParams params = Penalties(0, 20, repetition);
      params.sampling.top_k = top_k;
      const sampling::SamplingParams sampling = sampling::SamplingAt(params, path);
      const sampling::Distribution row = sampling::ProcessRow(logits, sampling),
                                   whole = sampling::ProcessRow(wide, sampling);
      EXPECT_EQ(row.tokens.front(), kPenalised * kApart);
      EXPECT_EQ(row.tokens.back(), (kPenalised + top_k - 1) * kApart);
      EXPECT_EQ(row.tokens, whole.tokens) << repetition << " " << top_k;
      EXPECT_EQ(row.log_probs, whole.log_probs) << repetition << " " << top_k;
    }
  }
}

TEST(Penalty, RowsWithARepetitionPenaltyAreNeededWhole) {
  for (const RowUse::Kind kind : {RowUse::Kind::kDraws, RowUse::Kind::kRanks}) {
    DecodingParams params = Penalties(1, 1, 1);
    EXPECT_NE(TargetNeed(params, {kind}).form, RowNeed::Form::kWhole);
    EXPECT_NE(DraftNeed(params).form, RowNeed::Form::kWhole);
    params.sampling.repetition_penalty = 1.1;
    EXPECT_EQ(TargetNeed(params, {kind}).form, RowNeed::Form::kWhole);
    EXPECT_EQ(DraftNeed(params).form, RowNeed::Form::kWhole);
    params.sampling.top_k = 5;
    EXPECT_EQ(TargetNeed(params, {kind}).form, RowNeed::Form::kWhole);
  }
}

TEST(Penalty, JointSamplingsAreRefusedByName) {
  DecodingParams params;
  params.kind = sampling::DecodingKind::kBeamSampling;
  params.beam_width = 2;
  params.sampling.mode = sampling::SamplingScope::kJoint;
  EXPECT_TRUE(MakeBeamDecoder(params).ok());
  params.sampling.presence_penalty = 0.1;
  EXPECT_THAT(MakeBeamDecoder(params).status().message(),
              testing::AllOf(testing::HasSubstr("presence_penalty"), testing::HasSubstr("joint")));
}

// ---- exact distributions ----

test::TreeSetting Tree(const test::TreeMethod& method, const std::string& tree, int vocab) {
  test::TreeSetting setting;
  Penalise(&setting.params);
  setting.params.draft_tree = tree;
  setting.params.max_tokens = 3;
  setting.params.stop_ids = {1};
  setting.rule = method.rule;
  setting.distribution = setting.relied_on = method.distribution;
  const Models models = PenalisedModels(vocab, 5, setting.params);
  setting.target = models.target;
  setting.draft = models.draft;
  return setting;
}

test::ExactDistribution ClosedDistribution(test::TreeSetting setting) {
  setting.target = PenalisedModels(2, 5, setting.params).closed;
  setting.params = test::WithoutPenalties(setting.params);
  return test::MultinomialDistribution(setting);
}

TEST(PenaltyEnumeration, EveryRuleOnTreesAndPaths) {
  std::vector<test::TreeMethod> methods = test::TreeMethods();
  methods.push_back({"rejection", VerifyRrsIid, ChildSampling::kIid});
  methods.push_back({"block_verification", nullptr, ChildSampling::kIid});
  for (const test::TreeMethod& method : methods) {
    const bool path = method.name == "rejection" || method.name == "block_verification";
    SCOPED_TRACE(method.name);
    const test::TreeSetting setting = Tree(method, path ? "chain" : "2-2", 2);
    EXPECT_LE(test::TotalVariation(test::TreeDistribution(setting), ClosedDistribution(setting)),
              kExact);
  }
}

// A penalty in the wrong place: the children are drawn from penalised rows, but the proposals that
// are sent with them are not.
TEST(PenaltyNegativeControl, ProposalsWithoutThePenaltiesOfTheirDrafts) {
  int seen = 0;
  for (const test::TreeMethod& method : test::TreeMethods()) {
    // Needs proposals, and with two tokens the drafts of the greedy distributions cover every row.
    if (method.distribution != ChildSampling::kIid &&
        method.distribution != ChildSampling::kWithoutReplacement)
      continue;
    test::TreeSetting setting = Tree(method, "2-2", 2);
    const test::HashLm lm{2, 5, 3, 36};
    setting.tamper = [lm](DraftForest* forest) {
      // The first layer has no path, so its rows have only what the prompt brings.
      for (Proposal& proposal : forest->proposals) {
        if (!proposal.place.is_root())
          proposal.row = test::DenseDistribution(lm.DraftLogProbs(sampling::ExtendHash(
              sampling::kRootHash, forest->token[Index(proposal.place.node())])));
      }
    };
    EXPECT_GT(test::TotalVariation(test::TreeDistribution(setting), ClosedDistribution(setting)),
              kBiased)
        << method.name;
    ++seen;
  }
  EXPECT_GE(seen, 4);
}

// The penalties of the root's path on all rows of the round: too few tokens are counted.
TEST(PenaltyNegativeControl, RowsWithThePenaltiesOfTheRoot) {
  const test::TreeSetting setting =
      Tree({"rejection", VerifyRrsIid, ChildSampling::kIid}, "chain", 2);
  test::TreeSetting wrong = setting;
  wrong.params = test::WithoutPenalties(setting.params);
  wrong.target = [target = setting.target, params = setting.params](uint64_t hash) {
    return test::PenalisedRow(target(hash), params, kPrompt, {});
  };
  EXPECT_GT(test::TotalVariation(test::TreeDistribution(wrong), ClosedDistribution(setting)),
            kBiased);
}

test::LayeredSetting Layered(const char* method, int width, sampling::SamplingScope mode) {
  test::LayeredSetting setting;
  setting.params.kind = sampling::DecodingKind::kBeamSampling;
  setting.params.method = FindMethod(method);
  setting.params.beam_width = width;
  setting.params.max_tokens = 2;
  setting.params.sampling.mode = mode;
  Penalise(&setting.params);
  setting.draft_width = 2;
  setting.draft_depth = 1;
  const Models models = PenalisedModels(2, 8, setting.params);
  setting.target = models.target;
  setting.draft = models.draft;
  return setting;
}

void ExpectLayersExact(const test::LayeredSetting& setting) {
  test::LayeredSetting closed = setting;
  closed.target = PenalisedModels(2, 8, setting.params).closed;
  closed.params = test::WithoutPenalties(setting.params);
  const bool with_replacement = setting.params.kind == sampling::DecodingKind::kBeamSampling;
  EXPECT_LT(test::LargestDifference(test::LayeredDistribution(setting),
                                    test::ClosedFixedWidthDistribution(closed, with_replacement)),
            kExact);
}

TEST(PenaltyEnumeration, JointLayersOfDsbd) {
  for (RemovedParents rule : {RemovedParents::kReject, RemovedParents::kRenormalise}) {
    test::LayeredSetting setting = Layered("dsbd", 2, sampling::SamplingScope::kRow);
    setting.removed = rule;
    ExpectLayersExact(setting);
  }
  test::LayeredSetting deep = Layered("dsbd", 1, sampling::SamplingScope::kRow);
  deep.params.max_tokens = 3;
  deep.draft_depth = 2;
  ExpectLayersExact(deep);
}

TEST(PenaltyEnumeration, JointLayersWithReuse) {
  for (sampling::DecodingKind kind : {sampling::DecodingKind::kBeamSampling,
                                      sampling::DecodingKind::kBeamSamplingWithoutReplacement}) {
    test::LayeredSetting setting = Layered("dsbd_wor", 2, sampling::SamplingScope::kRow);
    setting.params.kind = kind;
    setting.rule = MakeDsbdWorRule;
    setting.drafts = DrawKind::kDistinct;
    ExpectLayersExact(setting);
  }
}

// ---- seeded decodes ----

using Outcome = std::vector<uint64_t>;

TEST(PenaltyDistribution, SequencesOfEveryLosslessMethod) {
  int methods = 0;
  for (const MethodRow* row : test::MethodsThatServe(sampling::DecodingKind::kMultinomial)) {
    if (!row->lossless) continue;
    const test::NamedSetting setting = Named(*row, sampling::DecodingKind::kMultinomial, 2);
    test::TreeSetting closed;
    closed.params = test::WithoutPenalties(setting.params);
    closed.target = PenalisedModels(2, 5, setting.params).closed;
    const test::ExactDistribution distribution = test::MultinomialDistribution(closed);
    const test::Sampler<Outcome> sample = [&](uint64_t seed, Outcome* outcome) {
      test::NamedSetting seeded = setting;
      seeded.params.seed = seed;
      const std::vector<TokenId> tokens = test::RunNamed(seeded).result[0].tokens;
      outcome->assign(tokens.begin(), tokens.end());
      return true;
    };
    EXPECT_TRUE(
        test::FitsOnceOfTwice(distribution, sample, test::SamplesToSee(kBias, distribution.size())))
        << row->name;
    ++methods;
  }
  EXPECT_GE(methods, 12);
}

// The decoders whose output is a function of seed and target: a second implementation on the
// penalised model gives the same hypotheses, with drafts and without.
TEST(PenaltyEquality, ReproducibleMethodsEqualTheReferenceWithAndWithoutDrafts) {
  int compared = 0;
  for (const MethodRow& row : Methods()) {
    if (!row.reproducible) continue;
    for (sampling::DecodingKind kind : row.serves) {
      test::NamedSetting setting = Named(row, kind, 3);
      if (row.greedy_only && kind == sampling::DecodingKind::kMultinomial)
        setting.params.sampling.temperature = 0;
      setting.params.max_tokens = 4;
      setting.params.stop_ids = {2};
      setting.target = PenalisedModels(3, 5, setting.params).target;
      setting.draft = PenalisedModels(3, 5, setting.params).draft;
      for (uint64_t seed = 0; seed < 60; ++seed) {
        setting.params.seed = seed;
        const auto book = std::make_shared<const test::PathBook>(3, 4);
        ReferenceDecoder reference(test::WithoutPenalties(setting.params),
                                   test::Penalised(setting.target, setting.params, kPrompt, book),
                                   3);
        const std::vector<ReferenceBeam> wanted = reference.Run();
        for (int depth : {0, 1, 3}) {
          setting.draft_depth = depth;
          const test::NamedRun run = test::RunNamed(setting);
          ASSERT_EQ(run.result.size(), wanted.size()) << row.name << " seed " << seed;
          for (size_t i = 0; i < wanted.size(); ++i) {
            ASSERT_EQ(run.result[i].tokens, wanted[i].path)
                << row.name << " seed " << seed << " depth " << depth;
            ASSERT_NEAR(run.result[i].joint_log_probability, wanted[i].log_score, 1e-9);
          }
          ++compared;
        }
      }
    }
  }
  EXPECT_GE(compared, 7 * 60 * 3);
}

// Without drafts, and with every method: a penalty changes the output, so that none is ignored.
TEST(PenaltyEquality, EveryMethodReadsThePenalties) {
  for (const MethodRow& row : Methods()) {
    for (sampling::DecodingKind kind : row.serves) {
      int changed = 0;
      for (uint64_t seed = 0; seed < 40; ++seed) {
        test::NamedSetting setting = Named(row, kind, 3);
        if (row.form == DraftForm::kNone) setting.draft_depth = 0;
        if (row.greedy_only && kind == sampling::DecodingKind::kMultinomial)
          setting.params.sampling.temperature = 0;
        setting.params.max_tokens = 4;
        setting.params.seed = seed;
        setting.params.sampling.logit_bias.clear();
        setting.target = test::Remembered(PenalisedModels(3, 5 + seed, setting.params).target);
        const test::NamedRun with = test::RunNamed(setting);
        setting.params = test::WithoutPenalties(setting.params);
        changed += with.result[0].tokens != test::RunNamed(setting).result[0].tokens ? 1 : 0;
      }
      EXPECT_GT(changed, 5) << row.name << " " << sampling::DecodingKindName(kind);
    }
  }
}

}  // namespace
}  // namespace coppice::decoding
