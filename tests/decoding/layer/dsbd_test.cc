// The DSBD decoder and drafter, seeded and made by the factories, as in the worker and the draft
// node.
#include "decoding/layer/dsbd.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "decoding/joint/residual.h"
#include "decoding/method.h"
#include "gtest/gtest.h"
#include "lab/exact/layered_distribution.h"
#include "sampling/deterministic_math.h"
#include "tests/testing/g_test.h"
#include "tests/testing/row_forms.h"

namespace coppice::decoding {
namespace {

test::LayeredSetting Setting(int vocab, int width, uint64_t draft_salt) {
  test::LayeredSetting setting;
  setting.params.kind = sampling::DecodingKind::kBeamSampling;
  setting.params.method = FindMethod("dsbd");
  setting.params.beam_width = width;
  setting.params.num_hypotheses = width;
  setting.params.max_tokens = 12;
  setting.draft_width = 2 * width;
  setting.draft_depth = 3;
  const test::HashLm target{vocab, 7, 3, 0};
  const test::HashLm draft{vocab, draft_salt, 3, 0};
  setting.target = [target](uint64_t hash) { return target.TargetLogProbs(hash); };
  setting.draft = [draft](uint64_t hash) { return draft.TargetLogProbs(hash); };
  return setting;
}

// A whole row, drawn by the pruned kernel, gives the same decisions as the same row as a list,
// before and after rejections.
TEST(SeededChoices, WholeRowsDrawAsListedRowsDo) {
  const test::RowForms rows(/*beams=*/3, /*vocab=*/300, /*support=*/20, /*seed=*/99);
  for (const auto& row : rows.whole) ASSERT_TRUE(row->whole());
  Residual a_whole(rows.p_whole, rows.q), a_listed(rows.p_listed, rows.q);
  SeededChoices choices(5);
  choices.BeginRound(3);
  for (int rejections = 0; rejections < 4; ++rejections) {
    EXPECT_NEAR(a_whole.Overlap(), a_listed.Overlap(), 1e-12);
    const LayerDistribution distribution_whole = a_whole.Normalised();
    const LayerDistribution distribution_listed = a_listed.Normalised();
    double whole_sum = 0;
    for (const EntryMass& entry : ListEntries(distribution_whole))
      whole_sum += sampling::Exp(entry.log_mass);
    EXPECT_NEAR(whole_sum, 1.0, 1e-11);
    for (uint32_t slot = 0; slot < 300; ++slot) {
      const Draw x = choices.Choose(sampling::Domain::kResidual, slot, distribution_whole);
      const Draw y = choices.Choose(sampling::Domain::kResidual, slot, distribution_listed);
      ASSERT_EQ(x.entry, y.entry) << "rejections " << rejections << " slot " << slot;
      ASSERT_NEAR(std::min(x.margin, sampling::kMarginCap),
                  std::min(y.margin, sampling::kMarginCap), 1e-9);
    }
    a_whole.Reject();
    a_listed.Reject();
  }
}

// Both layers of seeded decodes, by G-test at 1e-6.
TEST(DsbdDecoder, SeededDecodesFollowTheBeamSamplingDistribution) {
  test::LayeredSetting setting = Setting(2, 2, 8);
  setting.params.max_tokens = 2;
  setting.params.stop_when_full = false;
  setting.draft_depth = 1;
  setting.draft_width = 3;
  const test::Sampler<std::vector<uint64_t>> decodes = [&](uint64_t seed,
                                                           std::vector<uint64_t>* outcome) {
    SeededChoices choices(seed);
    for (const std::vector<uint64_t>& layer : test::RunLayered(setting, &choices)) {
      outcome->push_back(layer.size());
      outcome->insert(outcome->end(), layer.begin(), layer.end());
    }
    return true;
  };
  const test::ExactDistribution distribution = test::ClosedFixedWidthDistribution(setting);
  EXPECT_GT(distribution.size(), 10u);
  EXPECT_TRUE(
      test::FitsOnceOfTwice(distribution, decodes, test::SamplesToSee(0.03, distribution.size())));
}

TEST(DsbdDecoder, DraftEqualToTheTargetIsAcceptedWhole) {
  test::LayeredSetting setting = Setting(6, 3, 7);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    setting.params.seed = seed;
    LayeredDecoder decoder = test::MakeLayered(setting, std::make_shared<SeededChoices>(seed));
    const DraftState state = decoder.draft_state();
    setting.draft_width = 3;  // all drafts are needed, so all drafted beams survive
    const DraftForest forest =
        test::DraftLayeredRound(setting, state, 3, std::make_shared<SeededChoices>(seed));
    ASSERT_TRUE(forest.Validate(6).ok());
    test::FunctionRows rows(setting.target, state.root_hash, forest);
    const Verdict verdict = decoder.Advance(forest, &rows);
    EXPECT_EQ(verdict.stats.layers, 4);
    EXPECT_NEAR(verdict.stats.overlap_sum, 3.0, 1e-9);
    EXPECT_EQ(verdict.stats.overlap_layers, 3);
  }
}

// Whole decodes with stop ids and refills. Checks what a worker relies on after every round.
TEST(DsbdDecoder, RoundsKeepTheirPromises) {
  for (double threshold : {0.0, 0.6}) {
    for (uint64_t seed = 0; seed < 60; ++seed) {
      test::LayeredSetting setting = Setting(7, 3, 8);
      setting.params.seed = seed;
      setting.params.stop_ids = {0};
      setting.params.min_tokens = 2;
      setting.params.refill = seed % 2 == 0;
      setting.params.stop_when_full = seed % 3 != 0;
      setting.params.width_threshold = threshold;
      auto decoder = MakeBeamDecoder(setting.params).value();
      std::vector<TokenId> stable;
      while (!decoder->finished()) {
        const DraftState state = decoder->draft_state();
        ASSERT_EQ(state.root_hash.size(), decoder->roots().size());
        DraftForest forest = DraftForest::Empty(static_cast<int>(state.root_hash.size()));
        const int depth = std::min(3, decoder->max_useful_depth());
        if (depth > 0 && seed % 5 != 0) {
          forest =
              test::DraftLayeredRound(setting, state, depth, std::make_shared<SeededChoices>(seed));
        }
        const int before = decoder->layers_committed();
        test::FunctionRows rows(setting.target, state.root_hash, forest);
        const Verdict verdict = decoder->Advance(forest, &rows);
        EXPECT_GE(verdict.stats.layers, 1);
        EXPECT_LE(verdict.stats.layers, forest.depth() + 1);
        EXPECT_EQ(decoder->layers_committed(), before + verdict.stats.layers);
        ASSERT_EQ(verdict.node_path.size(), forest.size());
        for (int node = 0; node < forest.size(); ++node) {
          if (verdict.node_path[node] == kNoPath) continue;
          EXPECT_EQ(decoder->paths().token(verdict.node_path[node]), forest.token[node]);
        }
        const std::vector<TokenId> now = decoder->StablePrefix();
        ASSERT_GE(now.size(), stable.size());
        EXPECT_TRUE(std::equal(stable.begin(), stable.end(), now.begin()));
        stable = now;
      }
      const std::vector<Hypothesis> result = decoder->Result();
      ASSERT_FALSE(result.empty());
      EXPECT_TRUE(decoder->roots().empty());
      for (const Hypothesis& hypothesis : result) {
        EXPECT_LE(hypothesis.tokens.size(), 12u);
        EXPECT_EQ(hypothesis.finished, hypothesis.tokens.back() == 0);
        EXPECT_TRUE(!hypothesis.finished || hypothesis.tokens.size() > 2);
      }
      EXPECT_TRUE(std::equal(stable.begin(), stable.end(), result[0].tokens.begin()));
    }
  }
}

// 5.3 and docs/algorithms.md 8: without refill, a slot whose hypothesis has ended is gone, also
// from a dynamic width. The draft is the target, so the width is as large as it may be.
TEST(DsbdDecoder, DynamicWidthHasNoRoomForEndedSlotsWithoutRefill) {
  constexpr int kMostWidth = 6;
  int tight = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    test::LayeredSetting setting = Setting(6, 4, 7);
    setting.params.seed = seed;
    setting.params.draft_width = setting.draft_width = kMostWidth;
    setting.params.width_threshold = 0.05;
    setting.params.stop_ids = {0, 1};
    setting.params.min_tokens = 1;
    setting.params.refill = false;
    setting.params.stop_when_full = false;
    LayeredDecoder decoder = test::MakeLayered(setting, std::make_shared<SeededChoices>(seed));
    int ended = 0;
    while (!decoder.finished()) {
      const DraftState state = decoder.draft_state();
      const int depth = std::min(3, decoder.max_useful_depth());
      const DraftForest forest =
          depth == 0 ? DraftForest::Empty(static_cast<int>(state.root_hash.size()))
                     : test::DraftLayeredRound(setting, state, depth,
                                               std::make_shared<SeededChoices>(seed));
      test::FunctionRows rows(setting.target, state.root_hash, forest);
      decoder.Advance(forest, &rows);
      for (const LayerRecord& record : decoder.last_round()) {
        const int most = std::max(1, kMostWidth - ended);
        ASSERT_LE(record.outputs.size(), most) << "seed " << seed << ", " << ended << " ended";
        tight += record.verified && ended > 0 && record.outputs.size() == most ? 1 : 0;
        ended += std::count_if(record.outputs.begin(), record.outputs.end(),
                               [](const LayerOutput& output) { return output.finished; });
      }
    }
  }
  EXPECT_GT(tight, 100);
}

TEST(DsbdDecoder, ForestWithoutItsProposalsIsAPlainStep) {
  const test::LayeredSetting setting = Setting(5, 2, 8);
  LayeredDecoder probe = test::MakeLayered(setting, std::make_shared<SeededChoices>(1));
  const DraftState state = probe.draft_state();
  const DraftForest good =
      test::DraftLayeredRound(setting, state, 2, std::make_shared<SeededChoices>(1));
  ASSERT_TRUE(CheckDsbdForest(good).ok());
  DraftForest no_proposals = good;
  no_proposals.proposals.clear();
  DraftForest no_draws = good;
  no_draws.draws.clear();
  no_draws.draws_begin.clear();
  DraftForest wrong_weight = good;
  wrong_weight.proposals[0].log_weight = -0.1;
  DraftForest missing_token = good;
  sampling::Distribution& row = missing_token.proposals[0].row;
  const int gone = FindToken(row, good.token[0]);
  row.tokens.erase(row.tokens.begin() + gone);
  row.log_probs.erase(row.log_probs.begin() + gone);
  for (const DraftForest& forest : {no_proposals, no_draws, wrong_weight, missing_token}) {
    EXPECT_FALSE(CheckDsbdForest(forest).ok());
    LayeredDecoder decoder = test::MakeLayered(setting, std::make_shared<SeededChoices>(1));
    test::FunctionRows rows(setting.target, state.root_hash, forest);
    EXPECT_EQ(decoder.Advance(forest, &rows).stats.layers, 1);
    EXPECT_FALSE(decoder.last_round()[0].verified);
    EXPECT_EQ(decoder.last_layer().size(), 2u);
  }
}

TEST(DsbdFactory, RefusesBadWidthRulesByName) {
  DecodingParams params = Setting(5, 2, 8).params;
  params.width_threshold = 1.5;
  EXPECT_NE(MakeBeamDecoder(params).status().message().find("width_threshold"),
            absl::string_view::npos);
  params.width_threshold = 0.5;
  params.min_width = 3;
  EXPECT_NE(MakeBeamDecoder(params).status().message().find("min_width"), absl::string_view::npos);
  params.min_width = 2;
  EXPECT_TRUE(MakeBeamDecoder(params).ok());
}

}  // namespace
}  // namespace coppice::decoding
