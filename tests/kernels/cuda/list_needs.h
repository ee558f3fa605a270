// Needs of every form, rows to serve them from, and what two backends make of one of them. For
// tests of candidate lists.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "plan/candidate_row.h"
#include "plan/step_plan.h"
#include "sampling/raw_scores.h"
#include "tests/kernels/kernel_fixture.h"

namespace coppice::kernels {

inline constexpr float kInfiniteLogit = std::numeric_limits<float>::infinity();

inline void ExpectSameSums(const ChunkSums& got, const ChunkSums& want) {
  for (int c = 0; c < kLseChunks; ++c) {
    EXPECT_EQ(got.max[c], want.max[c]) << "chunk " << c;
    EXPECT_EQ(got.sum[c], want.sum[c]) << "chunk " << c;
  }
}

inline void ExpectSameList(const RowNeed& need, const CandidateRow& got, const CandidateRow& want) {
  EXPECT_EQ(got.bad_token, want.bad_token);
  EXPECT_EQ(testing::PrintToString(got.bad_logit), testing::PrintToString(want.bad_logit));
  if (want.bad_token >= 0) return;  // nothing is decided from the row
  EXPECT_EQ(got.slots, want.slots);
  EXPECT_EQ(got.overflow, want.overflow);
  if (need.sums) ExpectSameSums(got.sums, want.sums);
  if (need.raw_sums) ExpectSameSums(got.raw_sums, want.raw_sums);
  EXPECT_THAT(got.raw.tokens, testing::ElementsAreArray(want.raw.tokens));
  EXPECT_THAT(got.raw.logits, testing::ElementsAreArray(want.raw.logits));
  ASSERT_EQ(got.lists.size(), want.lists.size());
  for (size_t l = 0; l < want.lists.size(); ++l) {
    EXPECT_THAT(got.lists[l].tokens, testing::ElementsAreArray(want.lists[l].tokens))
        << "list " << l;
    EXPECT_THAT(got.lists[l].logits, testing::ElementsAreArray(want.lists[l].logits))
        << "list " << l;
  }
}

inline std::vector<float> RandomLogits(int64_t count, uint64_t seed, float spread = 3) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(count);
  for (float& logit : logits) {
    logit = random() % 2 == 0 ? std::round(normal(random) * 8) / 8 : normal(random);  // ties
    if (random() % 16 == 0) logit = -kInfiniteLogit;
  }
  return logits;
}

inline RowNeed Top(int row, int count, double temperature, bool sums) {
  RowNeed need;
  need.form = RowNeed::Form::kTop;
  need.row = row;
  need.count = count;
  need.temperature = temperature;
  need.sums = sums;
  return need;
}

inline RowNeed GumbelNeed(int row, int count, double temperature, uint32_t slots) {
  RowNeed need = Top(row, count, temperature, /*sums=*/true);
  need.form = RowNeed::Form::kGumbel;
  need.slack = count == 1 ? 0.01 : 4e-6;
  need.slots = slots;
  need.seed = 0x1234567890abcdefull + row;
  need.path_hash = 0xfedcba0987654321ull * (row + 1);
  return need;
}

// Every form in one step, with and without bias.
inline StepPlan MixedPlan(uint64_t seed) {
  StepPlan plan = PlanOfRows(12);
  plan.bias = {{5, -std::numeric_limits<double>::infinity()},
               {17, 30.0},
               {17, 0.25},
               {899, 2.5},
               {0, -3.0},
               {998, 40.0}};
  RowNeed raw = Top(3, 5, 0.7, true);
  raw.raw_sums = true;
  plan.needs = {Top(0, 1, 1, false),
                Top(1, 9, 1.3, true),
                RowNeed(),
                raw,
                GumbelNeed(4, 1, 1, 0xf),
                GumbelNeed(5, 1, 0.6, 0x80000011),
                GumbelNeed(6, 7, 1.7, 1),
                GumbelNeed(7, 1, 0.05, 0x6)};
  plan.needs[2].row = 2;
  // What `logprobs` adds to a need, and what `echo` needs of a prompt's row.
  for (const int i : {0, 3, 5}) plan.needs[i] = sampling::WithRawScores(plan.needs[i], 4);
  plan.needs.push_back(sampling::RawScoreNeed(7));
  plan.needs.push_back(sampling::RawScoreNeed(1));
  plan.needs[8].row = 8;
  plan.needs[9].row = 9;
  plan.needs[8].bias_begin = 3;
  plan.needs[8].bias_end = 4;
  for (const int i : {1, 3, 5, 6}) {
    plan.needs[i].bias_begin = static_cast<int>(seed % 3);
    plan.needs[i].bias_end = 6;
  }
  plan.needs[6].seed = seed;
  return plan;
}

}  // namespace coppice::kernels
