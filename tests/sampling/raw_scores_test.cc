// Raw log-probabilities of a row: log softmax of the logits, the most likely tokens in order.
#include "sampling/raw_scores.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace coppice::decoding {
namespace {

constexpr float kBanned = -std::numeric_limits<float>::infinity();
constexpr double kImpossible = -std::numeric_limits<double>::infinity();

TEST(RawScoresTest, AreTheLogSoftmaxOfTheLogits) {
  std::mt19937_64 random(3);
  std::normal_distribution<float> normal(0, 8);
  for (const int vocab : {2, 17, 1000, 4099}) {
    std::vector<float> logits(vocab);
    for (float& logit : logits) logit = normal(random);
    long double max = *std::max_element(logits.begin(), logits.end()), sum = 0;
    for (const float logit : logits) sum += std::exp(logit - max);
    const sampling::RawScores scores(logits, 1);
    for (TokenId token = 0; token < vocab; ++token) {
      EXPECT_NEAR(scores.LogProb(token), static_cast<double>(logits[token] - max - std::log(sum)),
                  1e-12);
    }
    EXPECT_EQ(scores.top()[0].second, scores.LogProb(scores.top()[0].first));
  }
}

TEST(RawScoresTest, ListTheMostLikelyTokensFirstAndOfEqualOnesTheLowestId) {
  const std::vector<float> logits = {1, 4, kBanned, 4, 0, 2};
  const Alternatives top = sampling::RawScores(logits, 4).top();
  ASSERT_EQ(top.size(), 4u);
  EXPECT_EQ(top[0].first, 1);
  EXPECT_EQ(top[1].first, 3);
  EXPECT_EQ(top[2].first, 5);
  EXPECT_EQ(top[3].first, 0);
  EXPECT_EQ(top[0].second, top[1].second);
  EXPECT_GT(top[1].second, top[2].second);
}

TEST(RawScoresTest, AnImpossibleTokenIsMinusInfinityAndIsNotListed) {
  const std::vector<float> logits = {kBanned, 3, kBanned};
  const sampling::RawScores scores(logits, 3);
  EXPECT_EQ(scores.top().size(), 1u);
  EXPECT_EQ(scores.LogProb(0), kImpossible);
  EXPECT_EQ(scores.LogProb(1), 0.0);
  EXPECT_EQ(scores.LogProb(99), kImpossible);
  const std::vector<float> nothing(4, kBanned);
  EXPECT_EQ(sampling::RawScores(nothing, 2).LogProb(0), kImpossible);
}

TEST(RawScoresTest, AWholeRowNeedsNothingMore) {
  const RowNeed need = sampling::WithRawScores(RowNeed(), 5);
  EXPECT_EQ(need.raw_top, 0);
  EXPECT_FALSE(need.raw_sums);
}

}  // namespace
}  // namespace coppice::decoding
