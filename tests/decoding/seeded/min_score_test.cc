// min_score (docs/algorithms.md 8.4): the choices are those of the decode without it, less those
// below, whatever is drafted; and it saves work.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "decoding/method.h"
#include "tests/decoding/random_setting.h"
#include "tests/decoding/reference_decoder.h"
#include "tests/testing/decode_loop.h"

namespace coppice::decoding {
namespace {

// A score at which some hypotheses of the run end: one of theirs, a little more, or a little less.
double Threshold(const test::DecodeRun& run, Picker* pick) {
  const Hypothesis& one = run.result[(*pick)(static_cast<int>(run.result.size()))];
  const double offset = std::vector<double>{0, 0.01, -0.01, 1, -1}[(*pick)(5)];
  return std::min(0.0, one.score + offset);
}

struct Seen {
  int fewer = 0, none = 0, all = 0, shorter = 0;
};

void ExpectTheOthers(const DecodeSetting& s, const test::DecodeRun& all, Seen* seen) {
  for (const bool drafts : {false, true}) {
    const test::DecodeRun run = drafts ? RunDrafted(s) : RunPlain(s);
    std::vector<Hypothesis> want;
    for (const Hypothesis& hypothesis : all.result) {
      if (hypothesis.score >= s.params.min_score) want.push_back(hypothesis);
    }
    ASSERT_EQ(run.result.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(run.result[i].tokens, want[i].tokens);
      EXPECT_EQ(run.result[i].score, want[i].score);
      EXPECT_EQ(run.result[i].joint_log_probability, want[i].joint_log_probability);
      EXPECT_EQ(run.result[i].finished, want[i].finished);
    }
    EXPECT_LE(run.layers, all.layers);
    seen->none += want.empty();
    seen->all += want.size() == all.result.size();
    seen->fewer += !want.empty() && want.size() < all.result.size();
    seen->shorter += run.layers < all.layers;
  }
}

void ExpectTheOthersOverSeeds(sampling::DecodingKind kind) {
  Seen seen;
  for (uint64_t seed = 0; seed < 1500 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    DecodeSetting s = RandomSetting(seed, kind);
    Picker pick(seed + 55);
    // Negative ones too, which no request has.
    s.params.length_penalty = std::vector<double>{0, 0.6, 1, 2, -0.5, -1}[pick(6)];
    s.params.num_hypotheses = 1 + pick(s.params.beam_width);
    if (kind == sampling::DecodingKind::kBeamSearch && pick(4) == 0) {
      s.params.num_beam_groups = 2;
      s.params.beam_width *= 2;
      s.params.diversity_penalty = 0.5;
    }
    const test::DecodeRun all = RunPlain(s);
    s.params.min_score = Threshold(all, &pick);
    ExpectTheOthers(s, all, &seen);
  }
  EXPECT_GT(seen.fewer, 200);
  EXPECT_GT(seen.none, 50);
  EXPECT_GT(seen.all, 50);
  EXPECT_GT(seen.shorter, 50);
}

TEST(MinScoreTest, LeavesTheOthersOfBeamSearch) {
  ExpectTheOthersOverSeeds(sampling::DecodingKind::kBeamSearch);
}
TEST(MinScoreTest, LeavesTheOthersOfBeamSampling) {
  ExpectTheOthersOverSeeds(sampling::DecodingKind::kBeamSampling);
}
TEST(MinScoreTest, LeavesTheOthersOfSamplingWithoutReplacement) {
  ExpectTheOthersOverSeeds(sampling::DecodingKind::kBeamSamplingWithoutReplacement);
}

int RowsOfAllRounds(const DecodeSetting& s) {
  const auto decoder = MakeBeamDecoder(s.params).value();
  int rows_needed = 0;
  while (!decoder->finished()) {
    const DraftState state = decoder->draft_state();
    rows_needed += static_cast<int>(state.root_hash.size());
    const DraftForest none = DraftForest::Empty(static_cast<int>(state.root_hash.size()));
    test::HashLmRows rows(s.lm, state.root_hash, none);
    decoder->Advance(none, &rows);
  }
  return rows_needed;
}

// Beams that cannot reach it need no rows any more. early_stopping counts all that end, so it keeps
// them.
TEST(MinScoreTest, DropsBeamsThatCannotReachIt) {
  int fewer = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    DecodeSetting s = RandomSetting(seed, sampling::DecodingKind::kBeamSearch);
    NeverStop(&s.params);
    s.params.num_hypotheses = 1;
    s.params.min_score = RunPlain(s).result[0].score;
    s.params.stop_when_full = true;
    const int kept = RowsOfAllRounds(s);
    s.params.stop_when_full = false;
    const int dropped = RowsOfAllRounds(s);
    EXPECT_LE(dropped, kept);
    fewer += dropped < kept;
  }
  EXPECT_GT(fewer, 30);
}

TEST(MinScoreTest, IsRefusedWithoutBeams) {
  DecodingParams params;
  params.min_score = -1;
  EXPECT_EQ(MakeBeamDecoder(params).status().message(),
            "min_score cannot be combined with decoding multinomial: its choices are samples, not "
            "ranked hypotheses");
}

// What is streamed early belongs to a choice. Without one, nothing is.
TEST(MinScoreTest, NothingIsStableBeforeAChoiceIsSure) {
  int empty = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    DecodeSetting s = RandomSetting(seed, sampling::DecodingKind::kBeamSearch);
    s.params.min_score = std::min(0.0, RunPlain(s).result[0].score + 0.001);
    const auto decoder = MakeBeamDecoder(s.params).value();
    while (!decoder->finished()) {
      const DraftState state = decoder->draft_state();
      const DraftForest none = DraftForest::Empty(static_cast<int>(state.root_hash.size()));
      test::HashLmRows rows(s.lm, state.root_hash, none);
      decoder->Advance(none, &rows);
      if (decoder->finished() && !decoder->Result().empty()) break;
      EXPECT_TRUE(decoder->StablePrefix().empty());
    }
    empty += decoder->Result().empty();
  }
  EXPECT_GT(empty, 200);
}

}  // namespace
}  // namespace coppice::decoding
