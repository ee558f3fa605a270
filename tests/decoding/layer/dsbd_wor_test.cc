// Whole decodes with drafts without replacement and reuse (docs/algorithms.md 5.5). All choices of
// the production drafter and decoder are enumerated. The distribution of all layers is that of beam
// sampling with or without replacement, to 1e-12. The latter is also the distribution of Gumbel
// top-k.
#include "decoding/layer/dsbd_wor.h"

#include <memory>
#include <string>
#include <vector>

#include "decoding/method.h"
#include "gtest/gtest.h"
#include "lab/exact/layered_distribution.h"
#include "tests/testing/decode_loop.h"
#include "tests/testing/g_test.h"

namespace coppice::decoding {
namespace {

struct Size {
  int vocab, width, draft_width, draft_depth, layers;
};

test::LayeredSetting Setting(const Size& size, bool with_replacement) {
  test::LayeredSetting setting;
  setting.params.kind = with_replacement ? sampling::DecodingKind::kBeamSampling
                                         : sampling::DecodingKind::kBeamSamplingWithoutReplacement;
  setting.params.method = FindMethod("dsbd_wor");
  setting.params.beam_width = setting.params.num_hypotheses = size.width;
  setting.params.max_tokens = size.layers;
  setting.rule = MakeDsbdWorRule;
  setting.drafts = DrawKind::kDistinct;
  setting.draft_width = size.draft_width;
  setting.draft_depth = size.draft_depth;
  const test::HashLm lm{size.vocab, 47, 3, 0}, other{size.vocab, 1136, 3, 0};
  setting.target = [lm](uint64_t hash) { return lm.TargetLogProbs(hash); };
  setting.draft = [other](uint64_t hash) { return other.TargetLogProbs(hash); };
  return setting;
}

void ExpectExact(const test::LayeredSetting& setting, const std::string& what) {
  const bool with_replacement = setting.params.kind == sampling::DecodingKind::kBeamSampling;
  EXPECT_LT(test::TotalVariation(test::LayeredDistribution(setting),
                                 test::ClosedFixedWidthDistribution(setting, with_replacement)),
            1e-12)
      << what;
}

// With three layers and gamma 2, a second drafted layer with removed parents is verified.
TEST(DsbdWorEnumeration, DecodesAreBeamSampling) {
  for (bool with_replacement : {true, false}) {
    for (const Size& size : {Size{2, 2, 2, 1, 2},
                             {3, 2, 3, 1, 2},
                             {2, 1, 2, 2, 3},
                             {2, 2, 2, 2, 3},
                             {2, 3, 3, 1, 2}}) {
      for (RemovedParents removed : {RemovedParents::kReject, RemovedParents::kRenormalise}) {
        test::LayeredSetting setting = Setting(size, with_replacement);
        setting.removed = removed;
        ExpectExact(setting, absl::StrCat(with_replacement ? "iid" : "wor", " V ", size.vocab,
                                          " W ", size.width, " gamma ", size.draft_depth));
      }
    }
  }
}

TEST(DsbdWorEnumeration, EndsAreWalkedAsSectionEightSays) {
  for (bool with_replacement : {true, false}) {
    for (bool refill : {true, false}) {
      for (const Size& size : {Size{3, 2, 2, 1, 2}, {2, 2, 2, 2, 3}, {4, 1, 3, 1, 2}}) {
        test::LayeredSetting setting = Setting(size, with_replacement);
        setting.params.stop_ids = {0};
        setting.params.refill = refill;
        setting.params.stop_when_full = size.vocab != 2;
        ExpectExact(setting, absl::StrCat(with_replacement ? "iid" : "wor", " refill ", refill,
                                          " V ", size.vocab));
      }
    }
  }
}

TEST(DsbdWorEnumeration, SamplingScopesAndSetSemanticsKeepTheDistribution) {
  for (sampling::SamplingScope mode :
       {sampling::SamplingScope::kRow, sampling::SamplingScope::kRowRaw,
        sampling::SamplingScope::kJoint, sampling::SamplingScope::kRowCut}) {
    for (bool with_replacement : {true, false}) {
      test::LayeredSetting setting = Setting({3, 2, 2, 1, 2}, with_replacement);
      setting.params.sampling.mode = mode;
      setting.params.sampling.temperature = 0.7;
      setting.params.sampling.top_k = mode == sampling::SamplingScope::kJoint ? 4 : 2;
      ExpectExact(setting, absl::StrCat(sampling::SamplingScopeName(mode)));
    }
  }
  test::LayeredSetting once = Setting({2, 3, 2, 1, 2}, true);
  once.params.set_semantics = true;
  ExpectExact(once, "set semantics");
}

TEST(DsbdWorEnumeration, InvertedRatioIsToldApart) {
  for (bool with_replacement : {true, false}) {
    const test::LayeredSetting setting = Setting({3, 2, 3, 1, 2}, with_replacement);
    const test::ExactDistribution wrong = test::LayeredDistribution(
        setting, [](ChoiceSource* c) { return std::make_unique<test::InvertedRatio>(c); });
    EXPECT_GT(
        test::TotalVariation(wrong, test::ClosedFixedWidthDistribution(setting, with_replacement)),
        0.05);
  }
}

// Sampled decodes of Gumbel top-k, with ends, follow the closed distribution that the tests above
// enumerate. So the two methods have the same distribution. G-test with false alarm 1e-6.
TEST(DsbdWor, ClosedDistributionWithEndsIsThatOfGumbelTopK) {
  test::LayeredSetting setting = Setting({3, 2, 2, 1, 2}, false);
  setting.params.method = FindMethod("gumbel_top_k");
  setting.params.stop_ids = {0};
  setting.params.stop_when_full = false;
  const test::Sampler<std::vector<uint64_t>> decodes = [&](uint64_t seed,
                                                           std::vector<uint64_t>* outcome) {
    DecodingParams params = setting.params;
    params.seed = seed;
    const std::unique_ptr<BeamDecoder> decoder = MakeBeamDecoder(params).value();
    while (!decoder->finished()) {
      const DraftState state = decoder->draft_state();
      const DraftForest empty = DraftForest::Empty(static_cast<int>(state.root_hash.size()));
      test::FunctionRows rows(setting.target, state.root_hash, empty);
      decoder->Advance(empty, &rows);
      outcome->push_back(decoder->last_layer().size());
      for (const LayerOutput& output : decoder->last_layer())
        outcome->push_back(decoder->paths().hash(output.path));
    }
    return true;
  };
  const test::ExactDistribution distribution =
      test::ClosedFixedWidthDistribution(setting, /*with_replacement=*/false);
  EXPECT_GT(distribution.size(), 10u);
  EXPECT_TRUE(
      test::FitsOnceOfTwice(distribution, decodes, test::SamplesToSee(0.03, distribution.size())));
}

TEST(DsbdWor, RoundsKeepTheirPromises) {
  const test::HashLm lm{9, 5, 4, 3};
  for (sampling::DecodingKind kind : {sampling::DecodingKind::kBeamSampling,
                                      sampling::DecodingKind::kBeamSamplingWithoutReplacement}) {
    for (sampling::SamplingScope mode :
         {sampling::SamplingScope::kRow, sampling::SamplingScope::kJoint,
          sampling::SamplingScope::kRowCut}) {
      for (uint64_t seed = 0; seed < 20; ++seed) {
        DecodingParams params = Setting({9, 1, 1, 1, 9}, true).params;
        params.kind = kind;
        params.beam_width = 1 + static_cast<int>(seed % 4);
        params.seed = seed;
        params.stop_ids = {2};
        params.refill = seed % 2 == 0;
        params.sampling.mode = mode;
        params.sampling.top_k = 6;
        for (test::DraftQuality quality :
             {test::DraftQuality::kNone, test::DraftQuality::kGood, test::DraftQuality::kConstant,
              test::DraftQuality::kIdentical}) {
          test::RunDecode(MakeBeamDecoder(params).value(), params, lm, quality,
                          1 + static_cast<int>(seed % 9), 3);
        }
      }
    }
  }
}

// At low temperature, most drafts have masses that underflow in f64.
TEST(DsbdWor, VanishingDraftMassesDoNotStopTheWalk) {
  const test::HashLm lm{9, 5, 8, 3};
  for (sampling::DecodingKind kind : {sampling::DecodingKind::kBeamSampling,
                                      sampling::DecodingKind::kBeamSamplingWithoutReplacement}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      DecodingParams params = Setting({9, 4, 1, 1, 6}, true).params;
      params.kind = kind;
      params.seed = seed;
      params.sampling.temperature = 0.01;
      const test::DecodeRun run = test::RunDecode(MakeBeamDecoder(params).value(), params, lm,
                                                  test::DraftQuality::kIdentical, 8, 3);
      EXPECT_EQ(run.last_layer.size(), 4u);
    }
  }
}

}  // namespace
}  // namespace coppice::decoding
