// Draws without replacement from whole rows and from lists give the same entries in the same order.
// And the walk of docs/algorithms.md 8 over them.
#include "decoding/joint/choice_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "decoding/seeded/joint_gumbel_coupling.h"
#include "sampling/target_row.h"

namespace coppice::decoding {
namespace {

constexpr int kVocab = 300;

class RandomRows : public sampling::RowSource {
 public:
  explicit RandomRows(uint64_t seed) : bits_(seed) {}
  absl::Span<const float> Logits(int) override {
    std::normal_distribution<float> normal(0, 2);
    logits_.resize(kVocab);
    for (float& logit : logits_) logit = normal(bits_);
    return logits_;
  }

 private:
  std::mt19937_64 bits_;
  std::vector<float> logits_;
};

// A layer of three beams. The second keeps `top_k` tokens or all of them.
class Layer {
 public:
  Layer(uint64_t seed, int top_k) {
    RandomRows source(seed);
    DecodingParams params;
    std::vector<WeightedBeam> beams;
    for (int b = 0; b < 3; ++b) {
      params.sampling.top_k = b == 1 ? top_k : 0;
      rows_.push_back(std::make_unique<sampling::ProcessedRow>(params));
      rows_.back()->Read(&source, b, 0);
      beams.push_back({seed * 3 + b, -0.7 * b, 1, nullptr, rows_.back().get()});
    }
    p = MakeLayerDistribution(beams);
  }
  LayerDistribution p;

 private:
  std::vector<std::unique_ptr<sampling::ProcessedRow>> rows_;
};

TEST(ChoiceSourceTest, DistinctDrawsFromWholeRowsAreThoseOfDrawByDraw) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (const int top_k : {0, 7}) {
      const Layer layer(seed, top_k);
      SeededChoices choices(seed);
      choices.BeginRound(seed % 3);
      const std::vector<Entry> at_once =
          choices.ChooseDistinct(sampling::Domain::kDraft, 0, layer.p, 40);
      EXPECT_EQ(at_once.size(), 40u);
      EXPECT_EQ(at_once,
                choices.ChoiceSource::ChooseDistinct(sampling::Domain::kDraft, 0, layer.p, 40));
    }
  }
}

TEST(ChoiceSourceTest, TokensRemovedAtOnceAreThoseRemovedOneByOne) {
  const Layer layer(5, 7);
  const std::vector<TokenId> tokens = {299, 4, 17, 17, 1000, 0};
  for (int beam = 0; beam < 3; ++beam) {
    LayerDistribution one_by_one = layer.p, at_once = layer.p;
    RemoveEntry({beam, 17}, &one_by_one);
    RemoveEntry({beam, 17}, &at_once);
    for (TokenId token : tokens) RemoveEntry({beam, token}, &one_by_one);
    RemoveTokens(beam, tokens, &at_once);
    for (TokenId token = 0; token < kVocab; ++token) {
      EXPECT_EQ(LogMass(at_once, {beam, token}), LogMass(one_by_one, {beam, token}));
    }
    SeededChoices choices(1);
    for (uint32_t slot = 0; slot < 50; ++slot) {
      const Draw draw = choices.Choose(sampling::Domain::kToken, slot, at_once);
      EXPECT_EQ(draw.entry, choices.Choose(sampling::Domain::kToken, slot, one_by_one).entry);
      EXPECT_FALSE(draw.entry.beam == beam &&
                   std::count(tokens.begin(), tokens.end(), draw.entry.token) > 0);
    }
  }
}

// All entries, ranked by their keys and walked as section 8 says.
TEST(ChoiceSourceTest, DistinctSlotsWalkTheWholeRanking) {
  int ended = 0;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    const Layer layer(seed, 7);
    DecodingParams params;
    params.kind = sampling::DecodingKind::kBeamSamplingWithoutReplacement;
    params.seed = seed;
    params.beam_width = 1 + static_cast<int>(seed % 6);
    for (TokenId token = 0; token < 200; token += 1 + seed % 4) params.stop_ids.push_back(token);
    const std::vector<Entry> ranking =
        SeededChoices(seed).ChooseDistinct(sampling::Domain::kToken, 0, layer.p, 3 * kVocab);
    std::vector<Entry> wanted;
    int live = 0;
    for (int rank = 0; rank < ranking.size() && live < params.beam_width; ++rank) {
      const bool ends = IsStopId(params, ranking[rank].token);
      if (ends && rank >= params.beam_width) continue;
      wanted.push_back(ranking[rank]);
      live += !ends;
      ended += ends;
    }
    EXPECT_EQ(DrawDistinct(layer.p, params, params.stop_ids).entries, wanted) << seed;
  }
  EXPECT_GT(ended, 10);
}

}  // namespace
}  // namespace coppice::decoding
