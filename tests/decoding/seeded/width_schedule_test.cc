// A beam width for each layer (docs/algorithms.md 8.3): with drafts of any quality, width and
// depth, the output is that of the reference without drafts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "decoding/method.h"
#include "plan/kv_storage.h"
#include "tests/decoding/random_setting.h"
#include "tests/decoding/reference_decoder.h"
#include "tests/decoding/seeded/expect_reference.h"
#include "tests/testing/decode_loop.h"

namespace coppice::decoding {
namespace {

using testing::HasSubstr;

void SetSchedule(std::vector<int> widths, DecodingParams* params) {
  params->beam_width = *std::max_element(widths.begin(), widths.end());
  params->width_schedule = std::move(widths);
}

DecodeSetting ScheduleSetting(uint64_t seed, sampling::DecodingKind kind) {
  DecodeSetting s = RandomSetting(seed, kind);
  Picker pick(seed + 99);
  const bool search = kind == sampling::DecodingKind::kBeamSearch;
  if (search && pick(4) == 0) {
    s.params.num_beam_groups = 2;
    s.params.diversity_penalty = 0.5;
  }
  std::vector<int> widths;
  for (int i = 1 + pick(4); i > 0; --i) widths.push_back(s.params.num_beam_groups * (1 + pick(6)));
  if (pick(2) == 0) std::sort(widths.rbegin(), widths.rend());  // as requests have it
  SetSchedule(widths, &s.params);
  s.params.num_hypotheses = 1 + pick(s.params.width_schedule.back());
  s.draft_width = 1 + pick(3 * s.params.beam_width);
  return s;
}

void ExpectReferenceOfEachWidth(sampling::DecodingKind kind) {
  int narrower = 0, longer_rounds = 0;
  for (uint64_t seed = 0; seed < 2000 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    const DecodeSetting s = ScheduleSetting(seed, kind);
    ReferenceDecoder reference(s.params, s.lm);
    const std::vector<ReferenceBeam> want = reference.Run();
    const test::DecodeRun plain = RunPlain(s);
    ExpectReference(plain, want, reference);
    const test::DecodeRun drafted = RunDrafted(s);
    EXPECT_TRUE(SameBits(drafted, plain));
    narrower += plain.layers > 1 && static_cast<int>(plain.last_layer.size()) < s.params.beam_width;
    longer_rounds += drafted.layers_per_round.size() < plain.layers_per_round.size();
  }
  EXPECT_GT(narrower, 200);
  EXPECT_GT(longer_rounds, 300);
}

TEST(WidthScheduleTest, BeamSearchIsItsReferenceWithAnyDraft) {
  ExpectReferenceOfEachWidth(sampling::DecodingKind::kBeamSearch);
}
TEST(WidthScheduleTest, SamplingWithoutReplacementIsItsReferenceWithAnyDraft) {
  ExpectReferenceOfEachWidth(sampling::DecodingKind::kBeamSamplingWithoutReplacement);
}

// A list of one width, or of equal ones, changes nothing.
TEST(WidthScheduleTest, EqualWidthsAreOneWidth) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    DecodeSetting s = RandomSetting(seed, sampling::DecodingKind::kBeamSearch);
    const test::DecodeRun constant = RunDrafted(s);
    for (const size_t length : {1, 3}) {
      s.params.width_schedule.assign(length, s.params.beam_width);
      EXPECT_TRUE(SameBits(RunDrafted(s), constant));
    }
  }
}

TEST(WidthScheduleTest, HasTheWidthOfEachLayer) {
  DecodingParams params;
  SetSchedule({5, 8, 3}, &params);
  EXPECT_EQ(LayerWidth(params, 1), 5);
  EXPECT_EQ(LayerWidth(params, 2), 8);
  EXPECT_EQ(LayerWidth(params, 3), 3);
  EXPECT_EQ(LayerWidth(params, 100), 3);
  EXPECT_EQ(WidestFrom(params, 1), 8);
  EXPECT_EQ(WidestFrom(params, 3), 3);
  EXPECT_EQ(WidestFrom(params, 9), 3);
}

// KV for the tokens that the beams of a layer can have: 512 of one token, 64 of many.
TEST(WidthScheduleTest, NeedsLessKvThanTheLargestWidth) {
  DecodingParams params;
  params.kind = sampling::DecodingKind::kBeamSearch;
  params.plain = true;
  params.max_tokens = 160;
  const KvStorage storage;
  params.beam_width = 64;
  const int64_t narrow = KvPagesBound(params, 1, storage);
  params.beam_width = 512;
  const int64_t wide = KvPagesBound(params, 1, storage);
  SetSchedule({512, 64}, &params);
  const int64_t scheduled = KvPagesBound(params, 1, storage);
  EXPECT_GT(scheduled, narrow);
  EXPECT_LT(scheduled, wide / 3);
  SetSchedule({512, 8}, &params);  // a block of its own for each beam of layer 1, and a spare one
  EXPECT_GE(KvPagesBound(params, 1, storage), 2 * 512);
  SetSchedule({64, 512}, &params);
  EXPECT_EQ(KvPagesBound(params, 1, storage), wide);
}

TEST(WidthScheduleTest, IsRefusedWhereItMakesNoSense) {
  const auto message = [](sampling::DecodingKind kind, const char* method, int n) {
    DecodingParams params;
    params.kind = kind;
    params.method = FindMethod(method);
    params.num_hypotheses = n;
    SetSchedule({8, 4}, &params);
    return std::string(MakeBeamDecoder(params).status().message());
  };
  const auto search = sampling::DecodingKind::kBeamSearch;
  const auto distinct = sampling::DecodingKind::kBeamSamplingWithoutReplacement;
  EXPECT_EQ(message(search, "", 4), "");
  EXPECT_EQ(message(distinct, "", 4), "");
  EXPECT_THAT(message(search, "", 5),
              HasSubstr("n is 5 but must not exceed beam_width, which is 4 in the last layer"));
  EXPECT_THAT(message(distinct, "dsbd_wor", 4),
              HasSubstr("beam_width is a list, which method dsbd_wor does not serve"));
  EXPECT_THAT(message(sampling::DecodingKind::kBeamSampling, "", 4),
              HasSubstr("beam_width cannot be combined with decoding beam_sampling"));
}

}  // namespace
}  // namespace coppice::decoding
