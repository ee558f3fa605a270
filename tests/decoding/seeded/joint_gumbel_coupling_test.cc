// Joint Gumbel coupling (docs/algorithms.md 5.6). With drafts of any quality, width and
// depth, the output equals the plain run bit for bit and the reference token for token. In every
// sampling scope, with and without replacement.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "decoding/drafter.h"
#include "decoding/method.h"
#include "sampling/rng.h"
#include "tests/decoding/random_setting.h"
#include "tests/decoding/reference_decoder.h"
#include "tests/testing/decode_loop.h"

namespace coppice::decoding {
namespace {

constexpr sampling::DecodingKind kBoth[] = {
    sampling::DecodingKind::kBeamSampling, sampling::DecodingKind::kBeamSamplingWithoutReplacement};

// A point of the grid in any sampling scope; the joint modes are the most frequent.
DecodeSetting RandomSlots(uint64_t seed, sampling::DecodingKind kind) {
  DecodeSetting s = RandomSetting(seed, kind);
  s.params.method = FindMethod("joint_gumbel_coupling");
  Picker pick(~seed);
  SetSamplingScope(
      std::vector<sampling::SamplingScope>{
          sampling::SamplingScope::kRow, sampling::SamplingScope::kRowRaw,
          sampling::SamplingScope::kJoint, sampling::SamplingScope::kJoint,
          sampling::SamplingScope::kRowCut, sampling::SamplingScope::kRowCut}[pick(6)],
      &s.params);
  return s;
}

bool SameTokens(const test::DecodeRun& run, const std::vector<ReferenceBeam>& want) {
  bool same = run.result.size() == want.size();
  for (size_t i = 0; same && i < want.size(); ++i) {
    same = run.result[i].tokens == want[i].path && run.result[i].finished == want[i].finished;
  }
  return same;
}

TEST(JointGumbelCouplingTest, PlainRunIsItsReferenceAndDraftsDoNotChangeABit) {
  for (sampling::DecodingKind kind : kBoth) {
    GridCoverage coverage;
    for (int seed = 0; seed < 1500; ++seed) {
      SCOPED_TRACE(testing::Message() << sampling::DecodingKindName(kind) << " " << seed);
      const DecodeSetting s = RandomSlots(seed, kind);
      ReferenceDecoder reference(s.params, s.lm);
      const std::vector<ReferenceBeam> want = reference.Run();
      const test::DecodeRun plain = RunPlain(s);
      ASSERT_EQ(plain.layers, reference.layers);
      ASSERT_TRUE(SameTokens(plain, want));
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_NEAR(plain.result[i].joint_log_probability, want[i].log_score,
                    1e-12 * (1 + std::abs(want[i].log_score)));
      }
      ASSERT_THAT(plain.layers_per_round, testing::Each(1));
      const test::DecodeRun drafted = RunDrafted(s);
      ASSERT_TRUE(SameBits(drafted, plain));
      coverage.Add(s, drafted);
    }
    coverage.ExpectWhole(kind);
  }
}

// The comparison can detect every property that it is about.
TEST(JointGumbelCouplingTest, OtherNoiseOtherSemanticsAndOtherModesAreNoticed) {
  for (sampling::DecodingKind kind : kBoth) {
    int other_noise = 0, other_semantics = 0, other_mode = 0;
    for (int seed = 0; seed < 150; ++seed) {
      DecodeSetting s = RandomSlots(seed, kind);
      s.params.beam_width = s.params.num_hypotheses = 5;
      s.params.max_tokens = 6;
      SetSamplingScope(sampling::SamplingScope::kJoint, &s.params);
      NeverStop(&s.params);
      s.params.sampling.temperature = 0.7;
      const test::DecodeRun run = RunPlain(s);
      const auto differs = [&](DecodingParams params) {
        return SameTokens(run, ReferenceDecoder(params, s.lm).Run()) ? 0 : 1;
      };
      DecodingParams wrong = s.params;
      wrong.seed ^= 1;
      other_noise += differs(wrong);
      wrong = s.params;
      wrong.set_semantics = !wrong.set_semantics;
      other_semantics += differs(wrong);
      wrong = s.params;
      wrong.sampling.mode = sampling::SamplingScope::kRow;
      other_mode += differs(wrong);
    }
    EXPECT_GT(other_noise, 80);
    EXPECT_GT(other_mode, 60);
    if (kind == sampling::DecodingKind::kBeamSampling) {
      EXPECT_GT(other_semantics, 20);
    } else {
      EXPECT_EQ(other_semantics, 0);  // beams without replacement are distinct
    }
  }
}

// It is the first method that serves the joint modes, so they get it by default.
TEST(JointGumbelCouplingTest, DecodesTheJointModesWithoutBeingNamed) {
  for (sampling::DecodingKind kind : kBoth) {
    for (sampling::SamplingScope mode :
         {sampling::SamplingScope::kJoint, sampling::SamplingScope::kRowCut}) {
      for (int seed = 0; seed < 20; ++seed) {
        DecodeSetting s = RandomSlots(seed, kind);
        SetSamplingScope(mode, &s.params);
        const test::DecodeRun named = RunDrafted(s);
        for (const bool plain : {false, true}) {
          s.params.method = nullptr;
          s.params.plain = plain;
          EXPECT_TRUE(SameBits(RunPlain(s), named));
        }
      }
    }
  }
}

// With one slot in mode ROW it draws the same as Gumbel coupling: one parent, the same noise.
TEST(JointGumbelCouplingTest, OneSlotIsGumbelCoupling) {
  for (int seed = 0; seed < 100; ++seed) {
    DecodeSetting s = RandomSlots(seed, sampling::DecodingKind::kBeamSampling);
    s.params.beam_width = s.params.num_hypotheses = 1;
    s.params.sampling.mode = sampling::SamplingScope::kRow;
    const test::DecodeRun slots = RunPlain(s);
    s.params.method = FindMethod("gumbel_coupling");
    EXPECT_TRUE(SameBits(RunPlain(s), slots));
  }
}

// The number of noise values is limited. With 64 rows of 1024 entries and 64 slots, only the
// 2^20 / 64 likeliest entries take part, here 256 of each row. With 4 rows, all entries take part.
TEST(JointGumbelCouplingTest, OfALargeDistributionTheLikeliestEntriesAreDrafted) {
  sampling::Distribution row;
  for (int v = 0; v < 1024; ++v) {
    row.tokens.push_back(v);
    row.log_probs.push_back(-std::log(1024) - 1e-6 * v);
  }
  for (int beams : {4, 64}) {
    DecodingParams params;
    params.kind = sampling::DecodingKind::kBeamSampling;
    params.method = FindMethod("joint_gumbel_coupling");
    params.beam_width = beams;
    DraftState state;
    for (int root = 0; root < beams; ++root) {
      state.root_hash.push_back(sampling::Finalize(root + 1));
      state.root_score.push_back(-1);
      state.root_multiplicity.push_back(1);
    }
    auto drafter = MakeDrafter(params, state, /*width=*/64);
    ASSERT_TRUE(drafter.ok()) << drafter.status();
    (*drafter)->Grow(std::vector<sampling::Distribution>(beams, row));
    const std::vector<TokenId> drafted = (*drafter)->forest().token;
    EXPECT_EQ(drafted.size(), 64);
    const TokenId last = *std::max_element(drafted.begin(), drafted.end());
    if (beams == 64) {
      EXPECT_LT(last, 256);
    } else {
      EXPECT_GE(last, 256);
    }
  }
}

// If the draft is the target, W_S = W nodes cover every layer.
TEST(JointGumbelCouplingTest, IdenticalDraftDecidesEveryLayer) {
  for (sampling::DecodingKind kind : kBoth) {
    for (sampling::SamplingScope mode :
         {sampling::SamplingScope::kRow, sampling::SamplingScope::kRowRaw,
          sampling::SamplingScope::kJoint, sampling::SamplingScope::kRowCut}) {
      for (int seed = 0; seed < 40; ++seed) {
        SCOPED_TRACE(testing::Message() << sampling::SamplingScopeName(mode) << " " << seed);
        DecodeSetting s = RandomSlots(seed, kind);
        const int gamma = 1 + seed % 4;
        // then the drafter processes the rows itself
        const bool processed = sampling::IsJoint(mode);
        s.params.sampling = sampling::SamplingParams();
        s.params.sampling.mode = mode;
        if (processed) {
          s.params.sampling.temperature = 0.8;
          s.params.sampling.top_k = seed % 2 == 0 ? 7 : 0;
          s.params.sampling.top_p = seed % 3 == 0 ? 0.9 : 1;
        }
        NeverStop(&s.params);
        s.params.max_tokens = 3 * (gamma + 1);
        const test::DecodeRun run =
            test::RunDecode(MakeBeamDecoder(s.params).value(), s.params, s.lm,
                            test::DraftQuality::kIdentical, s.params.beam_width, gamma);
        EXPECT_THAT(run.layers_per_round, testing::ElementsAre(gamma + 1, gamma + 1, gamma + 1));
      }
    }
  }
}

}  // namespace
}  // namespace coppice::decoding
