// Drafts from earlier occurrences: what is proposed, and that every method that takes such drafts
// decides what it decides without.
#include "decoding/suffix_drafter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/decoding/random_setting.h"

namespace coppice::decoding {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

double Always(SuffixSource, int) { return 1; }
double LayersAlone(double layers, int) { return layers; }

class SuffixDrafterTest : public ::testing::Test {
 protected:
  SuffixDrafterTest() { params_.sampling.temperature = 0; }

  // Of the first round after the prompt.
  SuffixDraft Draft(const std::vector<TokenId>& prompt, int depth, int nodes,
                    absl::FunctionRef<double(SuffixSource, int)> taken = Always,
                    absl::FunctionRef<double(double, int)> gain = LayersAlone) {
    const auto decoder = MakeBeamDecoder(params_).value();
    SuffixIndex index(prompt);
    index.Add(decoder->paths());
    SuffixLimits limits;
    limits.depth = depth;
    limits.nodes = nodes;
    SuffixDraft draft =
        DraftFromSuffixes(*decoder, params_, {prompt, &index, corpus_.get()}, limits, taken, gain);
    EXPECT_TRUE(draft.forest.Validate(100).ok()) << draft.forest.Validate(100);
    EXPECT_EQ(draft.nodes.size(), draft.forest.token.size());
    return draft;
  }

  DecodingParams params_;
  std::unique_ptr<SuffixCorpus> corpus_;
};

TEST_F(SuffixDrafterTest, ProposesWhatFollowedTheLastTokens) {
  const SuffixDraft draft = Draft({7, 1, 2, 3, 4, 5, 6, 9, 1, 2, 3}, 4, 10);
  EXPECT_THAT(draft.forest.token, ElementsAre(4, 5, 6, 9));
  EXPECT_THAT(draft.forest.layer_begin, ElementsAre(0, 1, 2, 3, 4));
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(draft.nodes[i].source, SuffixSource::kPrompt);
    EXPECT_EQ(draft.nodes[i].length, 3 + i);
  }
}

// What comes after the end is not known, so a text that repeats is taken to go on so.
TEST_F(SuffixDrafterTest, AnOccurrenceThatMeetsTheEndRepeats) {
  EXPECT_THAT(Draft({1, 2, 3, 1, 2, 3}, 8, 8).forest.token, ElementsAre(1, 2, 3, 1, 2, 3, 1, 2));
  EXPECT_THAT(Draft({4, 4, 4}, 3, 3).forest.token, ElementsAre(4, 4, 4));
}

TEST_F(SuffixDrafterTest, WithoutAMatchThereIsNoDraft) {
  EXPECT_THAT(Draft({1, 2, 3, 4, 5}, 4, 10).forest.token, IsEmpty());
  EXPECT_THAT(Draft({1, 2, 3, 4, 2}, 4, 10).forest.token, IsEmpty());  // one token is too few
  EXPECT_THAT(Draft({1}, 4, 10).forest.token, IsEmpty());
}

TEST_F(SuffixDrafterTest, SiblingsAreWeighedByTheirNumber) {
  const std::vector<TokenId> prompt = {1, 2, 7, 9, 1, 2, 8, 9, 1, 2, 7, 9, 1, 2, 7, 9, 5, 1, 2};
  const SuffixDraft draft = Draft(prompt, 1, 10);
  ASSERT_THAT(draft.forest.token, ElementsAre(7, 8));
  // The matches of two tokens are three and one; those with a 9 before are as short.
  EXPECT_NEAR(draft.nodes[0].share, 0.75, 1e-12);
  EXPECT_NEAR(draft.nodes[1].share, 0.25, 1e-12);
}

TEST_F(SuffixDrafterTest, LongerMatchesCountMore) {
  // Twice 8 after two equal tokens, once 7 after four.
  const std::vector<TokenId> prompt = {3, 4, 1, 2, 7, 9, 1, 2, 8, 6, 1, 2, 8, 3, 4, 1, 2};
  const SuffixDraft draft = Draft(prompt, 1, 10);
  ASSERT_THAT(draft.forest.token, ElementsAre(7, 8));
  EXPECT_NEAR(draft.nodes[0].share, 9.0 / 11, 1e-12);
}

// Only matches of the longer kind are asked where there are some.
TEST_F(SuffixDrafterTest, AMatchOfFiveTokensHidesShorterOnes) {
  const std::vector<TokenId> prompt = {1, 2, 3, 4, 5, 7, 4, 5, 8, 4, 5, 8, 1, 2, 3, 4, 5};
  EXPECT_THAT(Draft(prompt, 1, 10).forest.token, ElementsAre(7));
}

TEST_F(SuffixDrafterTest, TheForestIsAsLargeAsPays) {
  const std::vector<TokenId> prompt = {1, 2, 3, 4, 5, 6, 9, 1, 2, 3};
  const auto taken = [](SuffixSource, int) { return 0.5; };  // so layers are worth 1/2, 1/4, 1/8
  const auto costs = [](double each) {
    return [each](double layers, int nodes) { return layers / (1 + each * nodes); };
  };
  EXPECT_EQ(Draft(prompt, 8, 8, taken, costs(0.6)).forest.size(), 0);
  EXPECT_EQ(Draft(prompt, 8, 8, taken, costs(0.3)).forest.size(), 1);
  EXPECT_EQ(Draft(prompt, 8, 8, taken, costs(0.1)).forest.size(), 2);
  EXPECT_EQ(Draft(prompt, 8, 8, taken, costs(0.05)).forest.size(), 3);
  EXPECT_EQ(Draft(prompt, 8, 8, taken, costs(0)).forest.size(), 6);  // below .01 none is listed
  EXPECT_EQ(Draft(prompt, 2, 8, taken, costs(0)).forest.size(), 2);
  EXPECT_EQ(Draft(prompt, 8, 3, taken, costs(0)).forest.size(), 3);
}

TEST_F(SuffixDrafterTest, TokensThatEndTheirPathAreNotDrafted) {
  params_.stop_ids = {5};
  EXPECT_THAT(Draft({1, 2, 3, 4, 5, 6, 9, 1, 2, 3}, 4, 10).forest.token, ElementsAre(4));
}

TEST_F(SuffixDrafterTest, TheCorpusIsAskedWhereTheTextsHaveNoLongMatch) {
  corpus_ = std::make_unique<SuffixCorpus>(
      std::vector<TokenId>{1, 2, 3, 50, 51, SuffixCorpus::kEnd, 2, 3, 60, SuffixCorpus::kEnd});
  const SuffixDraft draft = Draft({9, 1, 2, 3}, 4, 10);
  EXPECT_THAT(draft.forest.token, ElementsAre(50, 51));  // and there its document ends
  EXPECT_EQ(draft.nodes[0].source, SuffixSource::kCorpus);
  EXPECT_EQ(draft.nodes[0].length, 3);
  // A longer match in the prompt weighs more.
  const SuffixDraft both = Draft({8, 1, 2, 3, 40, 8, 1, 2, 3}, 1, 10);
  EXPECT_THAT(both.forest.token, ElementsAre(40, 50));
  EXPECT_NEAR(both.nodes[0].share, 0.75, 1e-12);
}

TEST(SuffixMethodsTest, ThoseWithoutProposalsTakeSuchDrafts) {
  std::vector<std::string> names;
  for (const MethodRow& row : Methods())
    if (TakesSuffixDrafts(row)) names.emplace_back(row.name);
  EXPECT_THAT(names, ElementsAre("gumbel_coupling", "gumbel_top_k", "speculative_beam_search",
                                 "joint_gumbel_coupling", "sample_and_check"));
}

// ---- The output does not depend on the drafts.

struct SuffixRun {
  std::vector<Hypothesis> result;
  int rounds = 0, layers = 0, nodes = 0;
};

SuffixRun RunWithSuffixes(const DecodeSetting& s, const std::vector<TokenId>& prompt,
                          bool prescribed) {
  const auto decoder = MakeBeamDecoder(s.params).value();
  SuffixIndex index(prompt);
  SuffixRun run;
  while (!decoder->finished()) {
    const DraftState state = decoder->draft_state();
    index.Add(decoder->paths());
    SuffixLimits limits;
    limits.prescribed = prescribed;
    limits.width = s.draft_width;
    limits.depth = std::min(s.depth, decoder->max_useful_depth());
    limits.nodes = s.draft_width * limits.depth;
    const auto gain = [](double layers, int nodes) { return layers - 0.001 * nodes; };
    const auto taken = [](SuffixSource, int) { return 0.9; };
    const SuffixDraft draft =
        DraftFromSuffixes(*decoder, s.params, {prompt, &index, nullptr}, limits, taken, gain);
    const DraftForest& forest = draft.forest;
    EXPECT_TRUE(forest.Validate(s.lm.vocab_size).ok()) << forest.Validate(s.lm.vocab_size);
    EXPECT_LE(forest.depth(), limits.depth);
    for (int layer = 0; layer < forest.depth(); ++layer) {
      const int width = forest.layer_begin[layer + 1] - forest.layer_begin[layer];
      EXPECT_LE(width, prescribed ? s.draft_width : limits.nodes);
    }
    test::HashLmRows rows(s.lm, state.root_hash, forest);
    const Verdict verdict = decoder->Advance(forest, &rows);
    test::CheckNodePaths(*decoder, state, forest, verdict);
    ++run.rounds;
    run.layers += static_cast<int>(verdict.stats.layers);
    run.nodes += forest.size();
  }
  run.result = decoder->Result();
  return run;
}

class SuffixEqualityTest : public ::testing::TestWithParam<sampling::DecodingKind> {};

TEST_P(SuffixEqualityTest, TheAnswerIsThatWithoutDrafts) {
  int saved = 0, drafted = 0;
  for (int seed = 0; seed < 400 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    DecodeSetting s = RandomSetting(seed, GetParam());
    if (seed % 3 == 0) s.params.beam_width = s.params.num_hypotheses = 1;
    if (seed % 2 == 0) s.lm.power = 12;
    const test::DecodeRun plain = RunPlain(s);
    const SuffixRun run = RunWithSuffixes(s, {1, 0, 1, 1, 0, 1}, seed % 5 != 0);
    ASSERT_EQ(run.layers, plain.layers);
    ASSERT_EQ(run.result.size(), plain.result.size());
    for (size_t i = 0; i < plain.result.size(); ++i) {
      EXPECT_EQ(run.result[i].tokens, plain.result[i].tokens);
      EXPECT_EQ(run.result[i].joint_log_probability, plain.result[i].joint_log_probability);
      EXPECT_EQ(run.result[i].score, plain.result[i].score);
      EXPECT_EQ(run.result[i].finished, plain.result[i].finished);
    }
    saved += run.layers - run.rounds;
    drafted += run.nodes;
  }
  EXPECT_GT(drafted, 500);
  EXPECT_GT(saved, 20);
}

INSTANTIATE_TEST_SUITE_P(Decodings, SuffixEqualityTest,
                         ::testing::Values(sampling::DecodingKind::kMultinomial,
                                           sampling::DecodingKind::kBeamSampling,
                                           sampling::DecodingKind::kBeamSamplingWithoutReplacement,
                                           sampling::DecodingKind::kBeamSearch),
                         [](const auto& info) {
                           return std::string(sampling::DecodingKindName(info.param));
                         });

}  // namespace
}  // namespace coppice::decoding
