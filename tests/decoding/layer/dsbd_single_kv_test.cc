// Single KV (docs/algorithms.md 5.4) is lossy. The exact distribution of two layers depends on the
// draft model, because the ends of the rounds depend on it.
#include "decoding/layer/dsbd_single_kv.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "decoding/method.h"
#include "gtest/gtest.h"
#include "lab/exact/layered_distribution.h"
#include "tests/testing/decode_loop.h"

namespace coppice::decoding {
namespace {

test::LayeredSetting Setting(uint64_t draft_salt) {
  test::LayeredSetting setting;
  setting.params.kind = sampling::DecodingKind::kBeamSampling;
  setting.params.method = FindMethod("dsbd_single_kv");
  setting.params.beam_width = 2;
  setting.params.max_tokens = 2;
  setting.kept = KeptBeams::kBest;
  setting.draft_width = 2;
  const test::HashLm target{2, 47, 3, 0}, draft{2, draft_salt, 3, 0};
  setting.target = [target](uint64_t hash) { return target.TargetLogProbs(hash); };
  setting.draft = [draft](uint64_t hash) { return draft.TargetLogProbs(hash); };
  return setting;
}

// If the draft is the target, every layer is filled, no round ends early and nothing is lost. Other
// drafts give other distributions.
TEST(DsbdSingleKv, DistributionDependsOnTheDraft) {
  std::vector<test::ExactDistribution> distributions;
  for (uint64_t draft_salt : {47, 1136, 9}) {
    test::LayeredSetting setting = Setting(draft_salt);
    distributions.push_back(test::LayeredDistribution(setting));
    setting.kept = KeptBeams::kAll;
    EXPECT_LT(test::TotalVariation(test::LayeredDistribution(setting),
                                   test::ClosedFixedWidthDistribution(setting)),
              1e-12);
  }
  EXPECT_LT(test::TotalVariation(distributions[0], test::ClosedFixedWidthDistribution(Setting(47))),
            1e-12);
  EXPECT_GT(test::TotalVariation(distributions[0], distributions[1]), 0.005);
  EXPECT_GT(test::TotalVariation(distributions[0], distributions[2]), 0.005);
  EXPECT_GT(test::TotalVariation(distributions[1], distributions[2]), 0.001);
  RecordProperty("tv_1136",
                 std::to_string(test::TotalVariation(distributions[0], distributions[1])));
  RecordProperty("tv_9", std::to_string(test::TotalVariation(distributions[0], distributions[2])));
}

TEST(DsbdSingleKv, KeepsTheBestOutputOfEveryRound) {
  const test::HashLm lm{9, 5, 4, 3};
  for (uint64_t seed = 0; seed < 40; ++seed) {
    DecodingParams params = Setting(0).params;
    params.beam_width = 4;
    params.max_tokens = 10;
    params.seed = seed;
    params.stop_ids = {2};
    params.refill = seed % 2 == 0;
    const std::unique_ptr<BeamDecoder> decoder = MakeDsbdSingleKvDecoder(params);
    while (!decoder->finished()) {
      const DraftState state = decoder->draft_state();
      ASSERT_EQ(state.root_hash.size(), 1u);
      auto drafter = MakeDrafter(params, state, 8).value();
      const DraftForest forest =
          test::HashLmForest(lm, state, drafter.get(), std::min(3, decoder->max_useful_depth()),
                             test::DraftQuality::kGood);
      test::HashLmRows rows(lm, state.root_hash, forest);
      const Verdict verdict = decoder->Advance(forest, &rows);
      test::CheckNodePaths(*decoder, state, forest, verdict);
      if (decoder->finished()) break;
      const LayerOutput* best = nullptr;
      for (const LayerOutput& output : decoder->last_layer()) {
        if (!output.finished && (best == nullptr || output.log_score > best->log_score))
          best = &output;
      }
      ASSERT_NE(best, nullptr);
      EXPECT_EQ(decoder->roots()[0], best->path);
      // No other beam can become the best, but finished hypotheses can.
      EXPECT_LE(decoder->StablePrefix().size(), decoder->paths().Tokens(best->path).size());
    }
    EXPECT_FALSE(decoder->Result().empty());
  }
}

}  // namespace
}  // namespace coppice::decoding
