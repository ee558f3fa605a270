// Gumbel slots on the joint space (ALGORITHMS.md 5.6): with drafts of any quality, width and depth
// the output is that of the plain run bit for bit, and that of the reference token for token, in
// every warp mode, with and without replacement.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/decoding/reference_decoder.h"
#include "tests/testing/decode_loop.h"

namespace coppice {
namespace {

constexpr DecodingKind kBoth[] = {DecodingKind::kBeamSampling,
                                  DecodingKind::kBeamSamplingWithoutReplacement};

struct Setting {
  DecodingParams params;
  HashLm lm;
  int draft_width;
  int depth;
  DraftQuality quality;
};

// One random point of W 1..6 x W_S W, 2W, 4W x gamma 0..4 x draft quality x mode x warp x ends x
// policy x refill x semantics.
Setting RandomSetting(uint64_t seed, DecodingKind kind) {
  auto pick = [seed, draw = 0u](int n) mutable {
    return static_cast<int>(Uniform(seed, Domain::kDirect, 56, 0, draw++) * n);
  };
  Setting s;
  s.lm.vocab_size = 2 + pick(14);
  s.lm.salt = pick(1000);
  s.lm.noise = pick(1000);
  s.lm.power = 2 + pick(6);
  s.params.kind = kind;
  s.params.method = "gumbel_slots";
  s.params.seed = Finalize(seed);
  s.params.beam_width = 1 + pick(6);
  s.params.num_hypotheses = s.params.beam_width;
  s.params.max_tokens = 1 + pick(12);
  s.params.stop_when_full = pick(2) == 0;
  s.params.refill = pick(2) == 0;
  s.params.set_semantics = pick(4) == 0 && kind == DecodingKind::kBeamSampling;
  s.params.length_penalty = std::vector<double>{0, 0.6, 1, 1, 2}[pick(5)];
  for (int stop = pick(3); stop > 0; --stop) s.params.stop_ids.push_back(stop);
  s.params.min_tokens = pick(3) == 0 && s.lm.vocab_size > 4 ? pick(4) : 0;
  WarpParams& warp = s.params.warp;
  warp.mode =
      std::vector<WarpMode>{WarpMode::kRow,   WarpMode::kRowRaw, WarpMode::kJoint,
                            WarpMode::kJoint, WarpMode::kRowCut, WarpMode::kRowCut}[pick(6)];
  warp.temperature = std::vector<double>{1, 0.7, 1.5}[pick(3)];
  warp.top_k = pick(3) == 0 ? 1 + pick(8) : 0;
  warp.top_p = pick(3) == 0 ? 0.8 : 1;
  warp.min_p = pick(4) == 0 ? 0.05 : 0;
  if (pick(4) == 0) warp.logit_bias = {{0, 0.7}, {1, -0.4}};
  s.draft_width = s.params.beam_width * (1 << pick(3));
  s.depth = pick(5);
  s.quality = std::vector<DraftQuality>{DraftQuality::kGood, DraftQuality::kRandom,
                                        DraftQuality::kConstant, DraftQuality::kIdentical}[pick(4)];
  return s;
}

DecodeRun Plain(const Setting& s) {
  return RunDecode(MakeBeamDecoder(s.params).value(), s.params, s.lm, DraftQuality::kNone, 0, 0);
}

DecodeRun Drafted(const Setting& s) {
  return RunDecode(MakeBeamDecoder(s.params).value(), s.params, s.lm, s.quality, s.draft_width,
                   s.depth);
}

bool SameBits(const DecodeRun& a, const DecodeRun& b) {
  const auto equal = [](const Hypothesis& x, const Hypothesis& y) {
    return x.tokens == y.tokens && x.joint_log_probability == y.joint_log_probability &&
           x.score == y.score && x.finished == y.finished;
  };
  return a.layers == b.layers && a.result.size() == b.result.size() &&
         std::equal(a.result.begin(), a.result.end(), b.result.begin(), equal);
}

bool SameTokens(const DecodeRun& run, const std::vector<ReferenceBeam>& want) {
  bool same = run.result.size() == want.size();
  for (size_t i = 0; same && i < want.size(); ++i) {
    same = run.result[i].tokens == want[i].path && run.result[i].finished == want[i].finished;
  }
  return same;
}

TEST(GumbelSlotsTest, PlainRunIsItsReferenceAndDraftsDoNotChangeABit) {
  for (DecodingKind kind : kBoth) {
    for (int seed = 0; seed < 1500; ++seed) {
      SCOPED_TRACE(testing::Message() << DecodingKindName(kind) << " " << seed);
      const Setting s = RandomSetting(seed, kind);
      ReferenceDecoder reference(s.params, s.lm);
      const std::vector<ReferenceBeam> want = reference.Run();
      const DecodeRun plain = Plain(s);
      ASSERT_EQ(plain.layers, reference.layers);
      ASSERT_TRUE(SameTokens(plain, want));
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_NEAR(plain.result[i].joint_log_probability, want[i].log_score,
                    1e-12 * (1 + std::abs(want[i].log_score)));
      }
      ASSERT_THAT(plain.layers_per_round, testing::Each(1));
      ASSERT_TRUE(SameBits(Drafted(s), plain));
    }
  }
}

// Every property that the comparison is about is one it can see.
TEST(GumbelSlotsTest, OtherNoiseOtherSemanticsAndOtherModesAreNoticed) {
  for (DecodingKind kind : kBoth) {
    int other_noise = 0, other_semantics = 0, other_mode = 0;
    for (int seed = 0; seed < 150; ++seed) {
      Setting s = RandomSetting(seed, kind);
      s.params.beam_width = s.params.num_hypotheses = 5;
      s.params.max_tokens = 6;
      s.params.warp.mode = WarpMode::kJoint;
      s.params.warp.temperature = 0.7;
      const DecodeRun run = Plain(s);
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
      wrong.warp.mode = WarpMode::kRow;
      other_mode += differs(wrong);
    }
    EXPECT_GT(other_noise, 100);
    EXPECT_GT(other_mode, 60);
    if (kind == DecodingKind::kBeamSampling) {
      EXPECT_GT(other_semantics, 20);
    } else {
      EXPECT_EQ(other_semantics, 0);  // beams without replacement are distinct
    }
  }
}

// The joint modes have no other decoder: "auto" and "none" decode by this one.
TEST(GumbelSlotsTest, DecodesTheJointModesWithoutBeingNamed) {
  for (DecodingKind kind : kBoth) {
    for (WarpMode mode : {WarpMode::kJoint, WarpMode::kRowCut}) {
      for (int seed = 0; seed < 20; ++seed) {
        Setting s = RandomSetting(seed, kind);
        s.params.warp.mode = mode;
        const DecodeRun named = Drafted(s);
        for (const char* method : {"auto", "none"}) {
          s.params.method = method;
          EXPECT_TRUE(SameBits(Plain(s), named));
        }
      }
    }
  }
}

// One slot in mode ROW draws what PF-Gumbel draws: the parent is certain, the noise is the same.
TEST(GumbelSlotsTest, OneSlotIsPfGumbel) {
  for (int seed = 0; seed < 100; ++seed) {
    Setting s = RandomSetting(seed, DecodingKind::kBeamSampling);
    s.params.beam_width = s.params.num_hypotheses = 1;
    s.params.warp.mode = WarpMode::kRow;
    const DecodeRun slots = Plain(s);
    s.params.method = "pf_gumbel";
    EXPECT_TRUE(SameBits(Plain(s), slots));
  }
}

// W_S = W nodes of a draft that is the target cover every layer.
TEST(GumbelSlotsTest, IdenticalDraftDecidesEveryLayer) {
  for (DecodingKind kind : kBoth) {
    for (WarpMode mode : {WarpMode::kRow, WarpMode::kRowRaw, WarpMode::kJoint, WarpMode::kRowCut}) {
      for (int seed = 0; seed < 40; ++seed) {
        SCOPED_TRACE(testing::Message() << WarpModeName(mode) << " " << seed);
        Setting s = RandomSetting(seed, kind);
        const int gamma = 1 + seed % 4;
        const bool warped = IsJoint(mode);  // the drafter warps these rows itself
        s.params.warp = WarpParams();
        s.params.warp.mode = mode;
        if (warped) {
          s.params.warp.temperature = 0.8;
          s.params.warp.top_k = seed % 2 == 0 ? 7 : 0;
          s.params.warp.top_p = seed % 3 == 0 ? 0.9 : 1;
        }
        s.params.stop_ids.clear();
        s.params.max_tokens = 3 * (gamma + 1);
        const DecodeRun run = RunDecode(MakeBeamDecoder(s.params).value(), s.params, s.lm,
                                        DraftQuality::kIdentical, s.params.beam_width, gamma);
        EXPECT_THAT(run.layers_per_round, testing::ElementsAre(gamma + 1, gamma + 1, gamma + 1));
      }
    }
  }
}

}  // namespace
}  // namespace coppice
