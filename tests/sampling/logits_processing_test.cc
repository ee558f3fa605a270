#include "sampling/logits_processing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include "decoding/beam_decoder.h"
#include "decoding/drafter.h"
#include "sampling/row_kernels.h"
#include "sampling/target_row.h"

namespace coppice::decoding {
namespace {

using testing::ElementsAre;

constexpr double kNothing = -std::numeric_limits<double>::infinity();

sampling::Distribution Sampling(const std::vector<double>& logits,
                                const sampling::SamplingParams& sampling) {
  return sampling::ProcessRow(absl::Span<const double>(logits), sampling);
}

double Mass(const sampling::Distribution& row) {
  double sum = 0;
  for (double log_prob : row.log_probs) sum += std::exp(log_prob);
  return sum;
}

std::vector<double> ManyLogits(int n) {
  std::vector<double> logits;
  for (int v = 0; v < n; ++v) logits.push_back(6 * std::sin(v * 1.7) + 2 * std::cos(v * v * 0.3));
  return logits;
}

TEST(LogitsProcessingTest, TemperatureZeroIsTheLowestArgmax) {
  sampling::SamplingParams sampling;
  sampling.temperature = 0;
  EXPECT_THAT(Sampling({1, 3, 3, 2}, sampling).tokens, ElementsAre(1));
  sampling.logit_bias = {{3, 2.0}};
  EXPECT_THAT(Sampling({1, 3, 3, 2}, sampling).tokens, ElementsAre(3));
}

TEST(LogitsProcessingTest, TopKKeepsExactlyKOnTies) {
  sampling::SamplingParams sampling;
  sampling.top_k = 3;
  EXPECT_THAT(Sampling({5, 1, 1, 1, 1}, sampling).tokens, ElementsAre(0, 1, 2));
  sampling.top_k = 9;
  EXPECT_THAT(Sampling({5, 1, kNothing}, sampling).tokens, ElementsAre(0, 1));
}

TEST(LogitsProcessingTest, TopPKeepsTheTokenThatCrosses) {
  sampling::SamplingParams sampling;
  sampling.top_p = 0.5;
  EXPECT_THAT(Sampling({0, 0, 0, 0}, sampling).tokens,
              ElementsAre(0, 1, 2));  // mass before the third is exactly 0.5
  sampling.top_p = 1e-9;
  EXPECT_THAT(Sampling({0, 4, 0, 0}, sampling).tokens, ElementsAre(1));
}

// A token is kept iff the mass before it is at most top_p. The cut examines more and more tokens
// until it finds one that is not kept.
TEST(LogitsProcessingTest, TopPKeepsAsManyEqualTokensAsItNeeds) {
  const auto kept = [](int vocab, int top_k, double top_p) {
    sampling::SamplingParams sampling;
    sampling.top_k = top_k;
    sampling.top_p = top_p;
    return Sampling(std::vector<double>(vocab, 1.5), sampling).tokens;
  };
  const auto first = [](int count) {
    std::vector<TokenId> tokens(count);
    std::iota(tokens.begin(), tokens.end(), 0);
    return tokens;
  };
  EXPECT_EQ(kept(1024, 0, 0.5), first(513));  // mass before the last is exactly 0.5
  EXPECT_EQ(kept(1024, 600, 0.5), first(301));
  for (int vocab : {63, 64, 65, 255, 257, 1000, 5000}) {
    for (double top_p : {0.1013, 0.4999, 0.7505, 0.9999}) {
      EXPECT_EQ(kept(vocab, 0, top_p), first(static_cast<int>(vocab * top_p) + 1))
          << vocab << " tokens, top_p " << top_p;
    }
  }
}

TEST(LogitsProcessingTest, TopPOfASlowlyFallingRowIsThatOfTheDefinition) {
  std::vector<double> logits;  // decreasing with the token id
  for (int v = 0; v < 3000; ++v) logits.push_back(-0.002 * v);
  double total = 0;
  for (double logit : logits) total += std::exp(logit);
  for (double top_p : {0.05, 0.1, 0.3, 0.6, 0.9, 0.99}) {
    size_t want = 0;
    for (double before = 0; before / total <= top_p; ++want) before += std::exp(logits[want]);
    sampling::SamplingParams sampling;
    sampling.top_p = top_p;
    EXPECT_EQ(Sampling(logits, sampling).size(), want) << "top_p " << top_p;
  }
}

// A ratio to the likeliest token: what else the row holds changes nothing.
TEST(LogitsProcessingTest, MinPIsARatioToTheLikeliestToken) {
  const double l = std::log(2.0);
  const std::vector<double> logits = {-3 * l, 0, -1 * l, -4 * l, -2 * l};  // ratios 2^-3, 1, ...
  const auto kept = [&](double min_p, int top_k, double top_p, double temperature) {
    const sampling::SamplingParams sampling{temperature, top_k, top_p,
                                            min_p,       {},    sampling::SamplingScope::kRow};
    return Sampling(logits, sampling).tokens;
  };
  for (const auto& [top_k, top_p] : {std::pair{0, 1.0}, {5, 1.0}, {0, 0.999}, {5, 0.999}}) {
    SCOPED_TRACE(top_k);
    EXPECT_THAT(kept(0.9, top_k, top_p, 1), ElementsAre(1));
    EXPECT_THAT(kept(0.45, top_k, top_p, 1), ElementsAre(1, 2));
    EXPECT_THAT(kept(0.2, top_k, top_p, 1), ElementsAre(1, 2, 4));
    EXPECT_THAT(kept(0.1, top_k, top_p, 1), ElementsAre(0, 1, 2, 4));
    EXPECT_THAT(kept(0.05, top_k, top_p, 1), ElementsAre(0, 1, 2, 3, 4));
    // At temperature 2 the ratios are their square roots.
    EXPECT_THAT(kept(0.45, top_k, top_p, 2), ElementsAre(1, 2, 4));
  }
  EXPECT_THAT(kept(0.2, 2, 1, 1), ElementsAre(1, 2));
}

TEST(LogitsProcessingTest, EveryCutOfALongRowIsAPrefixOfTheOrderAndSumsToOne) {
  const std::vector<double> logits = ManyLogits(1500);
  for (int top_k : {0, 1, 40, 1499}) {
    for (double top_p : {1.0, 0.3, 0.95, 0.99999}) {
      for (double min_p : {0.0, 0.01, 1.0}) {
        for (double temperature : {0.5, 1.0, 3.0}) {
          const sampling::SamplingParams sampling{
              temperature, top_k, top_p, min_p, {}, sampling::SamplingScope::kRow};
          const sampling::Distribution row = Sampling(logits, sampling);
          ASSERT_NEAR(Mass(row), 1, 1e-12);
          ASSERT_TRUE(std::is_sorted(row.tokens.begin(), row.tokens.end()));
          const std::vector<TokenId> order = sampling::TopTokens(logits, row.size());
          ASSERT_THAT(row.tokens, testing::UnorderedElementsAreArray(order));
          for (double log_prob : row.log_probs) ASSERT_LE(log_prob, 0);
        }
      }
    }
  }
}

TEST(LogitsProcessingTest, NothingFiniteIsOneHotAndNanIsNothing) {
  EXPECT_THAT(Sampling({kNothing, kNothing}, {}).tokens, ElementsAre(0));
  EXPECT_THAT(Sampling({std::nan(""), 1, kNothing}, {}).tokens, ElementsAre(1));
  const std::vector<float> infinite = {0, std::numeric_limits<float>::infinity(), std::nanf("")};
  EXPECT_NEAR(Mass(sampling::ProcessRow(absl::Span<const float>(infinite), {})), 1, 1e-12);
}

TEST(LogitsProcessingTest, StopIdsAreBannedBeforeMinTokensForTargetAndDraft) {
  DecodingParams params;
  params.stop_ids = {1};
  params.min_tokens = 2;
  const std::vector<float> logits = {0, 9, 1};
  EXPECT_THAT(DraftRow(logits, params, 1).tokens, ElementsAre(0, 2));
  EXPECT_THAT(DraftRow(logits, params, 2).tokens, ElementsAre(0, 1, 2));
  EXPECT_EQ(sampling::SamplingAt(params, 1).logit_bias.size(), 1u);
  EXPECT_TRUE(sampling::SamplingAt(params, 2).logit_bias.empty());
}

TEST(LogitsProcessingTest, DraftRowIsCutToItsSupportAndRenormalised) {
  std::vector<float> logits;
  for (double logit : ManyLogits(2000)) logits.push_back(static_cast<float>(logit));
  for (double top_p : {1.0, 0.9}) {
    DecodingParams params;
    params.draft_top_k = 16;
    params.sampling.top_p = top_p;
    const sampling::Distribution row = DraftRow(logits, params, 0);
    EXPECT_EQ(row.size(), 16u);
    EXPECT_NEAR(Mass(row), 1, 1e-12);
    const std::vector<double> wide(logits.begin(), logits.end());
    EXPECT_THAT(row.tokens, testing::UnorderedElementsAreArray(sampling::TopTokens(wide, 16)));
  }
}

// The sizes are top_k and the draft's support; the row has the smaller of the two.
TEST(LogitsProcessingTest, DraftRowHasTheSmallerOfTopKAndItsSupport) {
  std::vector<float> logits;
  for (double logit : ManyLogits(200)) logits.push_back(static_cast<float>(logit));
  DecodingParams params;
  for (const auto& [top_k, support, size] : std::vector<std::array<int, 3>>{
           {5, 16, 5}, {16, 5, 5}, {1, 2, 1}, {0, 7, 7}, {300, 16, 16}, {16, 300, 16}}) {
    params.sampling.top_k = top_k;
    params.draft_top_k = support;
    EXPECT_EQ(DraftRow(logits, params, 0).size(), size)
        << "top_k " << top_k << ", support " << support;
  }
}

// The short cut over the largest logits is plain logits processing, ties and NaN included.
TEST(LogitsProcessingTest, DraftRowLooksAtTheLargestLogitsAlone) {
  for (int n : {1, 5, 31, 500, 3000}) {
    std::vector<float> logits;
    for (double logit : ManyLogits(n))
      logits.push_back(std::round(static_cast<float>(logit) * 8) / 8);
    if (n > 5) logits[3] = std::nanf("");
    for (double temperature : {0.6, 1.0}) {
      DecodingParams params;
      params.draft_top_k = 24;
      params.sampling.temperature = temperature;
      sampling::SamplingParams want = params.sampling;
      want.top_k = 24;
      const sampling::Distribution row = DraftRow(logits, params, 0);
      const sampling::Distribution plain =
          sampling::ProcessRow(absl::Span<const float>(logits), want);
      EXPECT_EQ(row.tokens, plain.tokens);
      EXPECT_EQ(row.log_probs, plain.log_probs);
    }
  }
}

// Sampling with top-k examines only a few of the f32 logits. The bits are those of the whole row.
TEST(LogitsProcessingTest, FewLogitsGiveTheRowOfAllLogits) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 bits(seed);
    std::vector<float> logits(1 + bits() % 300);
    for (float& logit : logits) logit = static_cast<float>(bits() % 64) / 8;  // many ties
    if (seed % 3 == 0) logits[bits() % logits.size()] = std::numeric_limits<float>::quiet_NaN();
    if (seed % 5 == 0) logits[bits() % logits.size()] = std::numeric_limits<float>::infinity();
    if (seed % 7 == 0) logits.assign(logits.size(), -std::numeric_limits<float>::infinity());
    sampling::SamplingParams sampling;
    sampling.temperature = seed % 4 == 0 ? 0 : 0.7;
    sampling.top_k = 1 + bits() % 40;
    sampling.top_p = seed % 2 == 0 ? 0.8 : 1;
    sampling.min_p = seed % 6 == 0 ? 0.1 : 0;
    for (uint32_t i = 0; i < seed % 4; ++i) {
      const double bias = i == 0 ? -std::numeric_limits<double>::infinity() : 1.5;
      sampling.logit_bias.emplace_back(static_cast<TokenId>(bits() % 310), bias);
    }
    std::vector<double> wide(logits.size());
    sampling::WidenRow(logits, wide.data());
    const sampling::Distribution few =
        sampling::ProcessRow(absl::Span<const float>(logits), sampling);
    const sampling::Distribution all =
        sampling::ProcessRow(absl::Span<const double>(wide), sampling);
    EXPECT_EQ(few.tokens, all.tokens) << seed;
    EXPECT_EQ(few.log_probs, all.log_probs) << seed;
  }
}

// The largest logits may be banned or biased down. So the short cut must examine the next ones too.
TEST(LogitsProcessingTest, FewLogitsGiveTheRowOfAllLogitsWhereTheFirstAreBanned) {
  std::vector<float> logits;
  for (double logit : ManyLogits(700)) logits.push_back(static_cast<float>(logit));
  std::vector<double> wide(logits.size());
  sampling::WidenRow(logits, wide.data());
  const std::vector<TokenId> order = sampling::TopTokens(wide, 12);
  for (int banned = 0; banned <= 6; ++banned) {
    for (double bias : {kNothing, -30.0}) {
      for (int top_k : {0, 1, 3}) {  // 0: greedy
        sampling::SamplingParams sampling;
        sampling.temperature = top_k == 0 ? 0 : 1;
        sampling.top_k = top_k;
        for (int i = 0; i < banned; ++i) sampling.logit_bias.emplace_back(order[i], bias);
        const sampling::Distribution few =
            sampling::ProcessRow(absl::Span<const float>(logits), sampling);
        const sampling::Distribution all =
            sampling::ProcessRow(absl::Span<const double>(wide), sampling);
        EXPECT_EQ(few.tokens, all.tokens) << banned << " banned, top_k " << top_k;
        EXPECT_EQ(few.log_probs, all.log_probs);
        std::vector<TokenId> want(order.begin() + banned,
                                  order.begin() + banned + std::max(1, top_k));
        EXPECT_THAT(few.tokens, testing::UnorderedElementsAreArray(want));
      }
    }
  }
}

// One row of f32 logits.
class OneRow : public sampling::RowSource {
 public:
  explicit OneRow(std::vector<float> logits) : logits_(std::move(logits)) {}
  absl::Span<const float> Logits(int) override { return logits_; }

 private:
  std::vector<float> logits_;
};

// The end of sequence is the argmax but is not allowed yet. The best of the other tokens is taken.
TEST(LogitsProcessingTest, GreedyBeforeMinTokensTakesTheBestThatDoesNotEnd) {
  std::vector<float> logits(500);
  for (size_t v = 0; v < logits.size(); ++v) logits[v] = static_cast<float>(v % 17) / 4;
  logits[2] = 9;
  logits[77] = 8;
  logits[331] = 7;
  for (int top_k : {0, 1}) {
    DecodingParams params;
    params.sampling.temperature = top_k == 0 ? 0 : 0.8;
    params.sampling.top_k = top_k;
    params.max_tokens = 6;
    params.min_tokens = 3;
    params.stop_ids = {2, 77};
    OneRow rows(logits);
    EXPECT_THAT(sampling::ReadTargetRow(&rows, 0, params, 2).row.tokens, ElementsAre(331));
    EXPECT_THAT(sampling::ReadTargetRow(&rows, 0, params, 3).row.tokens, ElementsAre(2));
    const auto decoder = MakeBeamDecoder(params).value();
    while (!decoder->finished()) decoder->Advance(DraftForest::Empty(1), &rows);
    EXPECT_THAT(decoder->Result()[0].tokens, ElementsAre(331, 331, 331, 2)) << "top_k " << top_k;
  }
}

}  // namespace
}  // namespace coppice::decoding
