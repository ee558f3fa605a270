// Groups of a diverse beam search (docs/algorithms.md 8.2): with drafts of any quality, width and
// depth, the output is that of the reference without drafts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "tests/decoding/random_setting.h"
#include "tests/decoding/reference_decoder.h"
#include "tests/decoding/seeded/expect_reference.h"
#include "tests/testing/decode_loop.h"

namespace coppice::decoding {
namespace {

DecodeSetting GroupSetting(uint64_t seed) {
  DecodeSetting s = RandomSetting(seed, sampling::DecodingKind::kBeamSearch);
  Picker pick(seed + 77);
  s.params.num_beam_groups = 2 + pick(3);
  s.params.beam_width = s.params.num_beam_groups * (1 + pick(3));
  s.params.num_hypotheses = 1 + pick(s.params.beam_width);
  s.params.diversity_penalty = std::vector<double>{0.01, 0.3, 0.5, 2, 30}[pick(5)];
  s.draft_width = 1 + pick(4 * s.params.beam_width);
  return s;
}

TEST(SearchGroupsTest, AreThoseOfTheReferenceWithAnyDraft) {
  int same_paths = 0, early_ends = 0, longer_rounds = 0;
  for (uint64_t seed = 0; seed < 3000 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    const DecodeSetting s = GroupSetting(seed);
    ReferenceDecoder reference(s.params, s.lm);
    const std::vector<ReferenceBeam> want = reference.Run();
    const test::DecodeRun plain = RunPlain(s);
    ExpectReference(plain, want, reference);
    const test::DecodeRun drafted = RunDrafted(s);
    EXPECT_TRUE(SameBits(drafted, plain));
    std::set<std::vector<TokenId>> paths;
    for (const ReferenceBeam& beam : want) paths.insert(beam.path);
    same_paths += paths.size() < want.size();
    std::set<int> groups;
    for (const LayerOutput& output : plain.last_layer) groups.insert(output.group);
    early_ends += static_cast<int>(groups.size()) < s.params.num_beam_groups;
    longer_rounds += drafted.layers_per_round.size() < plain.layers_per_round.size();
  }
  EXPECT_GT(same_paths, 100);
  EXPECT_GT(early_ends, 100);
  EXPECT_GT(longer_rounds, 500);
}

// The first group pays nothing, whatever the others do.
TEST(SearchGroupsTest, TheFirstIsASearchOfItsOwn) {
  for (uint64_t seed = 0; seed < 300 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    DecodeSetting s = GroupSetting(seed);
    s.params.num_hypotheses = s.params.beam_width;
    const test::DecodeRun groups = RunDrafted(s);
    s.params.beam_width /= s.params.num_beam_groups;
    s.params.num_beam_groups = 1;
    s.params.diversity_penalty = 0;
    s.params.num_hypotheses = s.params.beam_width;
    const test::DecodeRun alone = RunPlain(s);
    for (const Hypothesis& want : alone.result) {
      EXPECT_THAT(groups.result, testing::Contains(testing::AllOf(
                                     testing::Field(&Hypothesis::tokens, want.tokens),
                                     testing::Field(&Hypothesis::score, want.score))));
    }
  }
}

// With a large penalty and enough tokens, no token of a layer is in two groups.
TEST(SearchGroupsTest, ALargePenaltyKeepsTheTokensOfALayerApart) {
  for (uint64_t seed = 0; seed < 200 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    DecodeSetting s = GroupSetting(seed);
    NeverStop(&s.params);
    s.lm.vocab_size = s.params.beam_width + 8;
    s.params.diversity_penalty = 500;
    std::vector<std::set<TokenId>> tokens(s.params.num_beam_groups);
    const auto decoder = MakeBeamDecoder(s.params).value();
    const DraftForest none = DraftForest::Empty(1);
    test::HashLmRows rows(s.lm, decoder->draft_state().root_hash, none);
    decoder->Advance(none, &rows);
    size_t all = 0;
    std::set<TokenId> joined;
    for (const LayerOutput& output : decoder->last_layer()) {
      if (tokens[output.group].insert(decoder->paths().token(output.path)).second) ++all;
      joined.insert(decoder->paths().token(output.path));
    }
    EXPECT_EQ(joined.size(), all);
    EXPECT_EQ(decoder->last_layer().size(), static_cast<size_t>(s.params.beam_width));
  }
}

// If the draft is the target, W nodes a layer are enough: each group drafts its own beams.
TEST(SearchGroupsTest, IdenticalDraftDecidesEveryLayer) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    DecodeSetting s = GroupSetting(seed);
    NeverStop(&s.params);
    s.params.min_tokens = 0;
    s.params.sampling = sampling::SamplingParams();
    s.lm.vocab_size = s.params.beam_width + 2;
    const int gamma = 1 + seed % 4;
    s.params.max_tokens = 3 * (gamma + 1);
    const test::DecodeRun run =
        test::RunDecode(MakeBeamDecoder(s.params).value(), s.params, s.lm,
                        test::DraftQuality::kIdentical, s.params.beam_width, gamma);
    EXPECT_THAT(run.layers_per_round, testing::ElementsAre(gamma + 1, gamma + 1, gamma + 1));
  }
}

}  // namespace
}  // namespace coppice::decoding
