// MJSD, BiLD and MJGD (docs/algorithms.md 6): which drafts they keep, where they stop, and that
// they are lossy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "decoding/lossy/bild.h"
#include "decoding/lossy/mjgd.h"
#include "decoding/lossy/mjsd.h"
#include "decoding/method.h"
#include "decoding/seeded/search.h"
#include "lab/exact/beam_distribution.h"
#include "lab/exact/enumerate_choices.h"
#include "lab/exact/forwarded_choices.h"
#include "tests/testing/decode_loop.h"

namespace coppice::decoding {
namespace {

using testing::ElementsAre;

const test::HashLm kLm{/*vocab_size=*/6, /*salt=*/11, /*power=*/4, /*noise=*/5};

DecodingParams Params(const std::string& method, int max_tokens) {
  DecodingParams params;
  params.method = FindMethod(method);
  params.max_tokens = max_tokens;
  params.joint_tokens = 3;
  return params;
}

// Token v has probability rows[depth][v] after any path of that depth.
class TableRows : public sampling::RowSource {
 public:
  explicit TableRows(std::vector<std::vector<double>> rows) : rows_(std::move(rows)) {
    for (auto& row : rows_) {
      for (double& value : row) value = sampling::Log(value);
    }
  }
  absl::Span<const float> Logits(int) override { return {}; }
  absl::Span<const double> LogProbs(int row) override { return rows_[row]; }

 private:
  std::vector<std::vector<double>> rows_;
};

// The path 0, 0, 0, drafted with probability 1/2 each.
DraftForest ZeroPath(int length) {
  DraftForest forest = DraftForest::Empty(1);
  forest.layer_begin = {0};
  for (int i = 0; i < length; ++i) {
    const TreePlace parent = i == 0 ? TreePlace(RootId{0}) : NodeId{i - 1};
    forest.Add(parent, 0);
    forest.layer_begin.push_back(i + 1);
    forest.proposals.push_back({parent, 0, {{0, 1}, {sampling::Log(0.5), sampling::Log(0.5)}}});
  }
  return forest;
}

// How many drafts of ZeroPath(3) are kept if the target gives token 0 these probabilities.
int MjsdKeeps(std::vector<double> p, double tau) {
  DecodingParams params = Params("mjsd", 10);
  params.mjsd_threshold = tau;
  std::vector<std::vector<double>> rows;
  for (double value : p) rows.push_back({value, 1 - value});
  rows.push_back({0.5, 0.5});
  TableRows source(rows);
  return MakeMjsdDecoder(params)->Advance(ZeroPath(3), &source).stats.layers - 1;
}

TEST(MjsdTest, KeepsTheLongestPrefixThatPasses) {
  EXPECT_EQ(MjsdKeeps({0.5, 0.5, 0.5}, 0.9), 3);
  EXPECT_EQ(MjsdKeeps({0.5, 0.1, 0.5}, 0.9), 1);      // ratios 1, 0.2, 0.2
  EXPECT_EQ(MjsdKeeps({0.1, 0.9, 0.9}, 0.5), 3);      // 0.2, 0.36, 0.648: only the last passes
  EXPECT_EQ(MjsdKeeps({0.1, 0.5, 0.5}, 0.5), 0);      // 0.2 throughout
  EXPECT_EQ(MjsdKeeps({0.25, 0.25, 0.25}, 0.25), 1);  // 1/2, then exactly tau: not above it
}

TEST(MjsdTest, ThresholdOneKeepsNothingAndZeroKeepsWhatTheTargetCanSay) {
  EXPECT_EQ(MjsdKeeps({0.9, 0.9, 0.9}, 1), 0);
  EXPECT_EQ(MjsdKeeps({0.001, 0.001, 0.001}, 0), 3);
  EXPECT_EQ(MjsdKeeps({0.5, 0, 0.5}, 0), 1);
}

TEST(MjsdTest, ForestWithoutItsProposalsIsIgnored) {
  DraftForest forest = ZeroPath(3);
  forest.proposals.pop_back();
  EXPECT_FALSE(CheckMjsdForest(forest).ok());
  TableRows rows({{0.9, 0.1}, {0.9, 0.1}, {0.9, 0.1}, {0.9, 0.1}});
  EXPECT_EQ(MakeMjsdDecoder(Params("mjsd", 10))->Advance(forest, &rows).stats.layers, 1);
}

TEST(MjsdTest, DrafterShipsTheBestPathAlone) {
  DecodingParams params = Params("mjsd", 10);
  params.draft_beams = 2;
  params.stop_ids = {2};
  const DraftState state = MakeMjsdDecoder(params)->draft_state();
  auto drafter = MakeMjsdDrafter(params, state, 1);
  // Greedy decoding starts with 0. The best pair is 1, 0. An end after one token is too unlikely.
  drafter->Grow({sampling::Distribution{
      {0, 1, 2}, {sampling::Log(0.5), sampling::Log(0.4), sampling::Log(0.1)}}});
  ASSERT_EQ(drafter->frontier().size(), 2u);
  drafter->Grow({sampling::Distribution{{0, 1}, {sampling::Log(0.5), sampling::Log(0.5)}},
                 sampling::Distribution{{0, 1}, {sampling::Log(0.9), sampling::Log(0.1)}}});
  const DraftForest path = drafter->Sent();
  EXPECT_THAT(path.token, ElementsAre(1, 0));
  EXPECT_TRUE(path.Validate(3).ok()) << path.Validate(3);
  EXPECT_TRUE(CheckMjsdForest(path).ok());
  // An end that is likelier than every continuation is drafted, and ends the path.
  auto ending = MakeMjsdDrafter(params, state, 1);
  ending->Grow({sampling::Distribution{
      {0, 1, 2}, {sampling::Log(0.2), sampling::Log(0.1), sampling::Log(0.7)}}});
  EXPECT_THAT(ending->Sent().token, ElementsAre(2));
  EXPECT_TRUE(ending->Sent().Validate(3).ok());
}

int BildKeeps(std::vector<double> p, double tau2) {
  DecodingParams params = Params("bild", 10);
  params.rollback_threshold = tau2;
  std::vector<std::vector<double>> rows;
  for (double value : p) rows.push_back({value, 1 - value});
  rows.push_back({0.5, 0.5});
  TableRows source(rows);
  return MakeBildDecoder(params)->Advance(ZeroPath(3), &source).stats.layers - 1;
}

TEST(BildTest, RollsBackToTheFirstUnlikelyToken) {
  EXPECT_EQ(BildKeeps({0.9, 0.9, 0.9}, 1), 3);
  EXPECT_EQ(BildKeeps({0.9, 0.3, 0.9}, 1), 1);  // -log 0.3 = 1.2
  EXPECT_EQ(BildKeeps({0.3, 0.9, 0.9}, 1), 0);
  EXPECT_EQ(BildKeeps({0.5, 0.5, 0.5}, -sampling::Log(0.5)), 3);  // the comparison is strict
  EXPECT_EQ(BildKeeps({0.9, 0, 0.9}, 1e300), 1);
}

TEST(BildTest, DraftsWhileTheDraftIsSure) {
  DecodingParams params = Params("bild", 10);
  params.sampling.temperature = 0;
  params.fallback_threshold = 0.6;
  const DraftState state = MakeBildDecoder(params)->draft_state();
  auto drafter = MakeBildDrafter(params, state, 1);
  drafter->Grow({sampling::Distribution{{0, 3}, {sampling::Log(0.4), sampling::Log(0.6)}}});
  EXPECT_THAT(drafter->forest().token, ElementsAre(3));
  drafter->Grow({sampling::Distribution{{0, 3}, {sampling::Log(0.45), sampling::Log(0.55)}}});
  EXPECT_TRUE(drafter->frontier().empty());
  EXPECT_EQ(drafter->Sent().size(), 1);
}

// The distribution of the first two tokens of a decode, with all choices enumerated.
test::ExactDistribution DistributionOfTwoTokens(const std::string& method, int depth) {
  const DecodingParams params = Params(method, 2);
  test::ExactDistribution distribution;
  test::EnumerateChoices([&](test::ScriptedChoices* script) {
    const auto choices = std::make_shared<test::ForwardedChoices>(script);
    auto decoder =
        method == "mjsd" ? MakeMjsdDecoder(params, choices) : MakeBildDecoder(params, choices);
    while (!decoder->finished()) {
      const DraftState state = decoder->draft_state();
      auto drafter = method == "mjsd" ? MakeMjsdDrafter(params, state, 1)
                                      : MakeBildDrafter(params, state, choices);
      const DraftForest forest = test::HashLmForest(kLm, state, drafter.get(),
                                                    std::min(depth, decoder->max_useful_depth()),
                                                    test::DraftQuality::kGood);
      test::HashLmRows rows(kLm, state.root_hash, forest);
      decoder->Advance(forest, &rows);
    }
    const std::vector<Hypothesis> result = decoder->Result();
    distribution[{result[0].tokens.begin(), result[0].tokens.end()}] += script->probability();
  });
  return distribution;
}

test::ExactDistribution Multinomial() {
  test::ExactDistribution distribution;
  const std::vector<double> first = kLm.TargetLogProbs(sampling::kRootHash);
  for (int a = 0; a < kLm.vocab_size; ++a) {
    const std::vector<double> second =
        kLm.TargetLogProbs(sampling::ExtendHash(sampling::kRootHash, a));
    for (int b = 0; b < kLm.vocab_size; ++b)
      distribution[{uint64_t(a), uint64_t(b)}] = sampling::Exp(first[a] + second[b]);
  }
  return distribution;
}

// Without drafts, both are multinomial sampling. With drafts, their distributions are different.
TEST(LossyTest, TheDistributionIsTheTargetsOnlyWithoutDrafts) {
  for (const std::string method : {"mjsd", "bild"}) {
    EXPECT_LT(test::TotalVariation(DistributionOfTwoTokens(method, 0), Multinomial()), 1e-12)
        << method;
  }
  EXPECT_GT(test::TotalVariation(DistributionOfTwoTokens("mjsd", 1), Multinomial()), 0.5);
  EXPECT_GT(test::TotalVariation(DistributionOfTwoTokens("bild", 1), Multinomial()), 0.05);
}

// Whole decodes by every method: end of sequence, max_tokens, forests that do not fit, the stable
// prefix.
TEST(LossyTest, DecodesEndAsTheyMust) {
  for (const std::string method : {"mjsd", "bild", "mjgd"}) {
    for (uint64_t seed = 0; seed < 60; ++seed) {
      DecodingParams params = Params(method, 1 + seed % 13);
      params.seed = seed;
      params.stop_ids = {2, 4};
      params.fallback_threshold = 0.2;
      params.sampling.temperature = seed % 3 == 0 ? 0 : 1;
      params.sampling.top_k = seed % 4 == 1 ? 3 : 0;
      params.sampling.mode =
          seed % 5 == 2 ? sampling::SamplingScope::kRowRaw : sampling::SamplingScope::kRow;
      test::HashLm lm = kLm;
      lm.salt += seed;
      const test::DraftQuality qualities[] = {
          test::DraftQuality::kGood, test::DraftQuality::kRandom, test::DraftQuality::kConstant,
          test::DraftQuality::kIdentical};
      const test::DraftQuality quality =
          method == "mjgd" ? test::DraftQuality::kNone : qualities[seed % 4];
      auto decoder = MakeBeamDecoder(params);
      ASSERT_TRUE(decoder.ok()) << decoder.status();
      const test::DecodeRun run = test::RunDecode(*std::move(decoder), params, lm, quality, 1, 4);
      ASSERT_EQ(run.result.size(), 1u);
      const std::vector<TokenId>& tokens = run.result[0].tokens;
      ASSERT_LE(tokens.size(), static_cast<size_t>(params.max_tokens));
      for (size_t i = 0; i + 1 < tokens.size(); ++i) EXPECT_TRUE(tokens[i] != 2 && tokens[i] != 4);
      EXPECT_EQ(run.result[0].finished, tokens.back() == 2 || tokens.back() == 4);
      EXPECT_TRUE(run.result[0].finished || tokens.size() == params.max_tokens);
      EXPECT_TRUE(std::isfinite(run.result[0].joint_log_probability));
    }
  }
}

TEST(LossyTest, GreedyModeWithoutDraftsIsTheArgmaxChain) {
  DecodingParams greedy = Params("auto", 12);
  greedy.sampling.temperature = 0;
  const test::DecodeRun want =
      test::RunDecode(*MakeBeamDecoder(greedy), greedy, kLm, test::DraftQuality::kNone, 1, 0);
  for (const std::string method : {"mjsd", "bild", "mjgd"}) {
    DecodingParams params = greedy;
    params.method = FindMethod(method);
    params.joint_tokens = 1;
    const test::DecodeRun run =
        test::RunDecode(*MakeBeamDecoder(params), params, kLm, test::DraftQuality::kNone, 1, 0);
    EXPECT_EQ(run.result[0].tokens, want.result[0].tokens) << method;
  }
}

// The likeliest path of `steps` more tokens; of equal ones the lexicographically first.
std::pair<double, std::vector<TokenId>> Likeliest(const test::HashLm& lm, uint64_t hash,
                                                  int steps) {
  if (steps == 0) return {0, {}};
  std::pair<double, std::vector<TokenId>> best{-1e300, {}};
  const std::vector<double> row = lm.TargetLogProbs(hash);
  for (int v = 0; v < lm.vocab_size; ++v) {
    auto [likelihood, path] = Likeliest(lm, sampling::ExtendHash(hash, v), steps - 1);
    if (row[v] + likelihood <= best.first) continue;
    path.insert(path.begin(), v);
    best = {row[v] + likelihood, path};
  }
  return best;
}

TEST(MjgdTest, WideSearchFindsTheLikeliestWindow) {
  for (uint64_t salt = 1; salt <= 10; ++salt) {
    test::HashLm lm = kLm;
    lm.salt = salt;
    DecodingParams params = Params("mjgd", 9);
    params.draft_beams = 36;
    std::vector<TokenId> want;
    uint64_t hash = sampling::kRootHash;
    // The first two windows close at their length, the last at max_tokens.
    for (int window = 0; window < 3; ++window) {
      for (TokenId token : Likeliest(lm, hash, 3).second) {
        want.push_back(token);
        hash = sampling::ExtendHash(hash, token);
      }
    }
    const test::DecodeRun run =
        test::RunDecode(MakeMjgdDecoder(params), params, lm, test::DraftQuality::kNone, 1, 0);
    EXPECT_EQ(run.result[0].tokens, want) << salt;
  }
}

// The tokens do not depend on the forest. A good forest saves rounds.
TEST(MjgdTest, ForestsChangeNothingButTheNumberOfRounds) {
  size_t rounds = 0, plain_rounds = 0;
  for (uint64_t salt = 1; salt <= 20; ++salt) {
    test::HashLm lm = kLm;
    lm.salt = salt;
    DecodingParams params = Params("mjgd", 12);
    params.stop_ids = {5};
    const test::DecodeRun plain =
        test::RunDecode(MakeMjgdDecoder(params), params, lm, test::DraftQuality::kNone, 1, 0);
    const auto decoder = MakeMjgdDecoder(params);
    while (!decoder->finished()) {
      const DraftState state = decoder->draft_state();
      const auto drafter = MakeSearchDrafter(params, state, 8, /*look_ahead=*/false);
      const DraftForest forest =
          test::HashLmForest(lm, state, drafter.get(), std::min(3, decoder->max_useful_depth()),
                             test::DraftQuality::kIdentical);
      test::HashLmRows rows(lm, state.root_hash, forest);
      decoder->Advance(forest, &rows);
      ++rounds;
    }
    plain_rounds += plain.layers_per_round.size();
    EXPECT_EQ(decoder->Result()[0].tokens, plain.result[0].tokens);
    EXPECT_EQ(decoder->layers_committed(), plain.layers);
  }
  EXPECT_LT(2 * rounds, plain_rounds);
}

}  // namespace
}  // namespace coppice::decoding
