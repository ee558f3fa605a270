// no_repeat_ngram_size (docs/algorithms.md 1): which tokens are banned, and that every decoding
// with drafts is that of the reference without.
#include "sampling/repeated_ngrams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "decoding/device_drafting.h"
#include "decoding/row_need.h"
#include "sampling/target_row.h"
#include "tests/decoding/random_setting.h"
#include "tests/decoding/reference_decoder.h"
#include "tests/decoding/seeded/expect_reference.h"
#include "tests/testing/decode_loop.h"

namespace coppice::decoding {
namespace {

using sampling::RepeatedNgrams;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

using Tokens = std::vector<TokenId>;

TEST(RepeatedNgramsTest, FindsThemInPromptAndPathAndAcross) {
  const Tokens prompt = {5, 1, 2, 3, 1, 2};
  EXPECT_THAT(RepeatedNgrams(prompt, 3).After({}), ElementsAre(3));
  EXPECT_THAT(RepeatedNgrams(prompt, 3).After(Tokens{4}), IsEmpty());
  EXPECT_THAT(RepeatedNgrams(prompt, 3).After(Tokens{4, 1, 2}), ElementsAre(3, 4));
  EXPECT_THAT(RepeatedNgrams(prompt, 2).After(Tokens{7, 2}), ElementsAre(3, 7));
  EXPECT_THAT(RepeatedNgrams(prompt, 4).After(Tokens{9, 3, 1, 2}), ElementsAre(9));  // across
  EXPECT_THAT(RepeatedNgrams(prompt, 1).After(Tokens{7}), ElementsAre(1, 2, 3, 5, 7));
  EXPECT_THAT(RepeatedNgrams({}, 1).After({}), IsEmpty());
  EXPECT_THAT(RepeatedNgrams({}, 2).After(Tokens{4}), IsEmpty());
  EXPECT_THAT(RepeatedNgrams({}, 2).After(Tokens{4, 4}), ElementsAre(4));  // overlaps itself
  EXPECT_THAT(RepeatedNgrams(prompt, 9).After(Tokens{1}), IsEmpty());      // longer than the text
}

// Against the definition, on random texts of few tokens.
TEST(RepeatedNgramsTest, AreThoseOfTheDefinition) {
  Picker pick(1);
  size_t banned = 0;
  for (int i = 0; i < 3000; ++i) {
    Tokens prompt(pick(12)), path(pick(12));
    for (TokenId& token : prompt) token = pick(3);
    for (TokenId& token : path) token = pick(3);
    const int n = 1 + pick(5);
    Tokens want;
    for (TokenId token = 0; token < 3; ++token) {
      if (test::RepeatsAnNgram(prompt, path, token, n)) want.push_back(token);
    }
    EXPECT_EQ(RepeatedNgrams(prompt, n).After(path), want);
    banned += want.size();
  }
  EXPECT_GT(banned, 2000u);
}

TEST(RepeatedNgramsTest, AreBiasesOfTheRow) {
  DecodingParams params;
  params.sampling.no_repeat_ngram_size = 2;
  params.sampling.logit_bias = {{3, 1.0}, {7, 2.0}};
  SetPrompt(Tokens{3, 7}, &params);
  const double none = -std::numeric_limits<double>::infinity();
  EXPECT_THAT(sampling::SamplingAt(params, Tokens{3}).logit_bias,
              ElementsAre(Pair(3, 1.0), Pair(7, none)));
  params.sampling.repetition_penalty = 1.5;
  SetPrompt(Tokens{3, 7}, &params);
  EXPECT_THAT(sampling::SamplingAt(params, Tokens{3}).logit_bias,
              ElementsAre(Pair(3, 1.0), Pair(7, none)));
}

// Candidate lists serve such rows; a device cannot draft by itself, because each row has its own.
TEST(RepeatedNgramsTest, RowsAreListedAndDraftedOnTheHost) {
  DecodingParams params;
  params.sampling.no_repeat_ngram_size = 2;
  EXPECT_NE(TargetNeed(params, {RowUse::Kind::kRanks}).form, RowNeed::Form::kWhole);
  DraftState state;
  state.root_hash = {1};
  state.root_score = {0};
  EXPECT_FALSE(DeviceForest(params, state, 4).has_value());
  params.sampling.no_repeat_ngram_size = 0;
  EXPECT_TRUE(DeviceForest(params, state, 4).has_value());
}

void ExpectReferenceWithoutRepeats(sampling::DecodingKind kind) {
  int changed = 0, longer_rounds = 0;
  for (uint64_t seed = 0; seed < 1200 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    DecodeSetting s = RandomSetting(seed, kind);
    Picker pick(seed + 33);
    const test::DecodeRun free = RunPlain(s);
    s.params.sampling.no_repeat_ngram_size = 1 + pick(3);
    const Tokens prompt = {1, 0, 1, 2, 0};
    SetPrompt(prompt, &s.params);
    ReferenceDecoder reference(s.params, s.lm);
    reference.StartAfter(prompt);
    const std::vector<ReferenceBeam> want = reference.Run();
    const test::DecodeRun plain = RunPlain(s);
    ExpectReference(plain, want, reference);
    const test::DecodeRun drafted = RunDrafted(s);
    EXPECT_TRUE(SameBits(drafted, plain));
    changed += !SameBits(plain, free);
    longer_rounds += drafted.layers_per_round.size() < plain.layers_per_round.size();
  }
  EXPECT_GT(changed, 600);
  EXPECT_GT(longer_rounds, 100);
}

TEST(RepeatedNgramsTest, MultinomialIsItsReferenceWithAnyDraft) {
  ExpectReferenceWithoutRepeats(sampling::DecodingKind::kMultinomial);
}
TEST(RepeatedNgramsTest, BeamSamplingIsItsReferenceWithAnyDraft) {
  ExpectReferenceWithoutRepeats(sampling::DecodingKind::kBeamSampling);
}
TEST(RepeatedNgramsTest, BeamSearchIsItsReferenceWithAnyDraft) {
  ExpectReferenceWithoutRepeats(sampling::DecodingKind::kBeamSearch);
}
TEST(RepeatedNgramsTest, SamplingWithoutReplacementIsItsReferenceWithAnyDraft) {
  ExpectReferenceWithoutRepeats(sampling::DecodingKind::kBeamSamplingWithoutReplacement);
}

}  // namespace
}  // namespace coppice::decoding
