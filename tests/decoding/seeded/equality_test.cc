// tests/decoding/README.md 2: with drafts of any quality, width and depth, the output equals that
// of the reference without drafts: the same tokens, and scores to 1e-12.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "decoding/method.h"
#include "decoding/seeded/search.h"
#include "tests/decoding/random_setting.h"
#include "tests/decoding/reference_decoder.h"
#include "tests/testing/decode_loop.h"

namespace coppice::decoding {
namespace {

void ExpectSame(const test::DecodeRun& run, const std::vector<ReferenceBeam>& want,
                const ReferenceDecoder& reference) {
  ASSERT_EQ(run.layers, reference.layers);
  ASSERT_EQ(run.result.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(run.result[i].tokens, want[i].path);
    EXPECT_NEAR(run.result[i].joint_log_probability, want[i].log_score,
                1e-12 * (1 + std::abs(want[i].log_score)));
    EXPECT_NEAR(run.result[i].score, reference.Score(want[i]),
                1e-12 * (1 + std::abs(want[i].log_score)));
    EXPECT_EQ(run.result[i].finished, want[i].finished);
  }
}

// Each seed is one point of the grid. Together, the seeds cover every value of the grid.
void ExpectEqualOverSeeds(sampling::DecodingKind kind, int seeds) {
  GridCoverage coverage;
  for (int seed = 0; seed < seeds && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    const DecodeSetting s = RandomSetting(seed, kind);
    ReferenceDecoder reference(s.params, s.lm);
    const std::vector<ReferenceBeam> want = reference.Run();
    const test::DecodeRun plain = RunPlain(s);
    ExpectSame(plain, want, reference);
    EXPECT_THAT(plain.layers_per_round, testing::Each(1));
    const test::DecodeRun drafted = RunDrafted(s);
    ExpectSame(drafted, want, reference);
    coverage.Add(s, drafted);
  }
  coverage.ExpectWhole(kind);
}

TEST(EqualityTest, MultinomialIsItsReferenceWithAnyDraft) {
  ExpectEqualOverSeeds(sampling::DecodingKind::kMultinomial, 1200);
}
TEST(EqualityTest, BeamSamplingIsItsReferenceWithAnyDraft) {
  ExpectEqualOverSeeds(sampling::DecodingKind::kBeamSampling, 1500);
}
TEST(EqualityTest, BeamSearchIsItsReferenceWithAnyDraft) {
  ExpectEqualOverSeeds(sampling::DecodingKind::kBeamSearch, 1500);
}
TEST(EqualityTest, SamplingWithoutReplacementIsItsReferenceWithAnyDraft) {
  ExpectEqualOverSeeds(sampling::DecodingKind::kBeamSamplingWithoutReplacement, 1500);
}

// Without multiplicities the reference is another algorithm, and the comparison detects it.
TEST(EqualityTest, SetSemanticsIsNoticed) {
  int different = 0;
  for (int seed = 0; seed < 200; ++seed) {
    DecodeSetting s = RandomSetting(seed, sampling::DecodingKind::kBeamSampling);
    s.params.beam_width = s.params.num_hypotheses = 6;
    s.params.set_semantics = false;
    DecodingParams as_set = s.params;
    as_set.set_semantics = true;
    ReferenceDecoder reference(as_set, s.lm);
    const std::vector<ReferenceBeam> want = reference.Run();
    const test::DecodeRun run = RunPlain(s);
    bool same = run.result.size() == want.size();
    for (size_t i = 0; same && i < want.size(); ++i) same = run.result[i].tokens == want[i].path;
    different += same ? 0 : 1;
  }
  EXPECT_GT(different, 20);
}

// Temperature 0 gives the argmax chain, with and without drafts, by both methods that serve it.
TEST(EqualityTest, GreedyIsTheArgmaxChain) {
  for (int seed = 0; seed < 200; ++seed) {
    DecodeSetting s = RandomSetting(seed, sampling::DecodingKind::kMultinomial);
    s.params.sampling = sampling::SamplingParams();
    s.params.sampling.temperature = 0;
    NeverStop(&s.params);
    std::vector<TokenId> want;
    for (int i = 0; i < s.params.max_tokens; ++i) {
      const std::vector<double> row = s.lm.TargetLogProbs(sampling::HashPath(want));
      want.push_back(static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin()));
    }
    for (const char* method :
         {"", "speculative_beam_search", "gumbel_coupling"}) {  // "": the first that serves
      s.params.method = FindMethod(method);
      const test::DecodeRun run = RunDrafted(s);
      ASSERT_EQ(run.result.size(), 1u);
      EXPECT_EQ(run.result[0].tokens, want);
    }
  }
}

test::DecodeRun RunIdenticalDraft(sampling::DecodingKind kind, int seed, int gamma) {
  DecodeSetting s = RandomSetting(seed, kind);
  s.params.sampling = sampling::SamplingParams();
  NeverStop(&s.params);
  s.params.max_tokens = 3 * (gamma + 1);
  const bool sampled =
      kind == sampling::DecodingKind::kMultinomial || kind == sampling::DecodingKind::kBeamSampling;
  const int width = sampled ? s.draft_width : s.params.beam_width;
  return test::RunDecode(MakeBeamDecoder(s.params).value(), s.params, s.lm,
                         test::DraftQuality::kIdentical, width, gamma);
}

// If the draft is the target, every round decides gamma + 1 layers: for beam search with W_S = W,
// for Gumbel coupling with any W_S >= W.
TEST(EqualityTest, IdenticalDraftDecidesEveryLayer) {
  for (sampling::DecodingKind kind :
       {sampling::DecodingKind::kMultinomial, sampling::DecodingKind::kBeamSampling,
        sampling::DecodingKind::kBeamSearch}) {
    for (int seed = 0; seed < 60; ++seed) {
      SCOPED_TRACE(seed);
      const int gamma = 1 + seed % 5;
      EXPECT_THAT(RunIdenticalDraft(kind, seed, gamma).layers_per_round,
                  testing::ElementsAre(gamma + 1, gamma + 1, gamma + 1));
    }
  }
}

// The standard draft of 5.8 (the W_S = W largest keys) if the draft model is the target. So the
// certificate and the keys lose nothing.
TEST(EqualityTest, IdenticalStandardDraftDecidesEveryLayerWithoutReplacement) {
  for (int seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    DecodeSetting s = RandomSetting(seed, sampling::DecodingKind::kBeamSamplingWithoutReplacement);
    const int gamma = 1 + seed % 6;
    s.params.sampling = sampling::SamplingParams();
    NeverStop(&s.params);
    s.params.max_tokens = 3 * (gamma + 1);
    const auto decoder = MakeBeamDecoder(s.params).value();
    while (!decoder->finished()) {
      const DraftState state = decoder->draft_state();
      const auto drafter =
          MakeSearchDrafter(s.params, state, s.params.beam_width, /*look_ahead=*/false);
      const int depth = std::min(gamma, decoder->max_useful_depth());
      const DraftForest forest =
          test::HashLmForest(s.lm, state, drafter.get(), depth, test::DraftQuality::kIdentical);
      test::HashLmRows rows(s.lm, state.root_hash, forest);
      ASSERT_EQ(decoder->Advance(forest, &rows).stats.layers, gamma + 1);
    }
  }
}

// With W_S = W, the production drafter of Gumbel top-k replaces beams with a low bound by hedges,
// because it does not fully trust the draft model. So even a perfect draft model sometimes costs a
// round.
TEST(EqualityTest, IdenticalDraftDecidesNearlyEveryLayerWithoutReplacement) {
  int rounds = 0, fewest = 0;
  for (int seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const test::DecodeRun run = RunIdenticalDraft(
        sampling::DecodingKind::kBeamSamplingWithoutReplacement, seed, 1 + seed % 5);
    rounds += run.layers_per_round.size();
    fewest += 3;
  }
  EXPECT_LT(rounds, 1.25 * fewest) << rounds << " of " << fewest;
}

// A useless draft costs only speed. The plain rule stops no later than the certified one.
TEST(EqualityTest, CertificateNeverStopsEarlierThanThePlainRule) {
  int rounds_certified = 0, rounds_plain = 0;
  for (int seed = 0; seed < 200; ++seed) {
    DecodeSetting s = RandomSetting(seed, sampling::DecodingKind::kBeamSearch);
    s.depth = 4;
    s.quality = test::DraftQuality::kGood;
    const test::DecodeRun certified =
        test::RunDecode(MakeSearchDecoder(s.params, /*certified=*/true), s.params, s.lm, s.quality,
                        s.draft_width, s.depth);
    const test::DecodeRun plain =
        test::RunDecode(MakeSearchDecoder(s.params, /*certified=*/false), s.params, s.lm, s.quality,
                        s.draft_width, s.depth);
    rounds_certified += certified.layers_per_round.size();
    rounds_plain += plain.layers_per_round.size();
    ASSERT_EQ(certified.layers, plain.layers);
  }
  EXPECT_LT(rounds_certified, rounds_plain);
}

}  // namespace
}  // namespace coppice::decoding
