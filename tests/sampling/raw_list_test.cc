// Lists of the largest logits, from which answers report raw log-probabilities: beside the
// candidate list of a decision, and alone with the tokens asked for. On any number of ranks they
// give the same bits as the whole row, and so does what a device has found.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "sampling/candidate_list.h"
#include "sampling/raw_scores.h"

namespace coppice::kernels {
namespace {

using BiasList = std::vector<std::pair<TokenId, double>>;
constexpr float kBanned = -std::numeric_limits<float>::infinity();

// With ties, and every 20th token impossible.
std::vector<float> RowWithHoles(int vocab, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> row(vocab);
  for (float& logit : row)
    logit = random() % 20 == 0 ? kBanned : std::round(normal(random) * 64) / 64;
  return row;
}

std::vector<std::vector<float>> RecordsOfRanks(const RowNeed& need, absl::Span<const float> logits,
                                               int ranks, const BiasList& bias) {
  const auto vocab = static_cast<int64_t>(logits.size());
  std::vector<std::vector<float>> records;
  for (int rank = 0; rank < ranks; ++rank) {
    const sampling::TokenRange tokens = sampling::VocabularyShard(vocab, rank, ranks);
    std::vector<float>& record = records.emplace_back(sampling::RecordWords(need), NAN);
    sampling::WriteRecord(need, {logits.subspan(tokens.begin, tokens.size()), tokens, vocab, bias},
                          record.data());
  }
  return records;
}

CandidateRow RawListOnRanks(const RowNeed& need, absl::Span<const float> logits, int ranks,
                            const BiasList& bias) {
  const auto records = RecordsOfRanks(need, logits, ranks, bias);
  std::vector<const float*> pointers;
  for (const auto& record : records) pointers.push_back(record.data());
  return sampling::JoinRecords(need, pointers, bias);
}

// The need of a decision, with bias: x is not the logit.
RowNeed NeedOf(RowNeed::Form form, int top) {
  RowNeed need;
  need.form = form;
  need.count = 2;
  need.temperature = 0.6;
  need.sums = true;
  need.seed = 5;
  need.slots = 3;
  return sampling::WithRawScores(need, top);
}

TEST(RawListTest, GivesTheScoresOfTheWholeRow) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const std::vector<float> logits = RowWithHoles(4099, seed);
    const BiasList bias = {{7, 30.0}, {8, -30.0}, {4000, 9.0}};
    for (const RowNeed::Form form : {RowNeed::Form::kTop, RowNeed::Form::kGumbel}) {
      for (const int top : {0, 1, 20}) {
        RowNeed need = NeedOf(form, top);
        need.bias_end = static_cast<int32_t>(bias.size());
        ASSERT_FALSE(sampling::IsWhole(need, 4099));
        const sampling::RawScores whole(logits, top);
        ASSERT_EQ(whole.top().size(), static_cast<size_t>(top));
        for (const int ranks : {1, 2, 3, 7, 16}) {
          const CandidateRow row = RawListOnRanks(need, logits, ranks, bias);
          ASSERT_TRUE(sampling::IsComplete(need, row, bias));
          const sampling::RawScores listed(row, top);
          EXPECT_EQ(listed.top(), whole.top());
          for (const TokenList& list : row.lists) {
            for (const TokenId token : list.tokens)
              EXPECT_EQ(listed.LogProb(token), whole.LogProb(token));
          }
        }
      }
    }
  }
}

TEST(RawListTest, ATokenThatIsAskedForIsListedWhereverItLies) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const std::vector<float> logits = RowWithHoles(3001, seed);
    for (const TokenId token : {TokenId{0}, TokenId(seed * 73 % 3001), TokenId{3000}}) {
      for (const int top : {0, 4}) {
        RowNeed need = sampling::RawScoreNeed(top);
        need.bias_end = 1;
        ASSERT_FALSE(sampling::IsWhole(need, 3001));
        for (const int ranks : {1, 2, 5, 16}) {
          const CandidateRow row = RawListOnRanks(need, logits, ranks, {{token, 0.0}});
          ASSERT_TRUE(sampling::IsComplete(need, row, {}));
          EXPECT_TRUE(row.lists.empty());
          EXPECT_TRUE(std::binary_search(row.raw.tokens.begin(), row.raw.tokens.end(), token));
          const sampling::RawScores whole(logits, top), listed(row, top);
          EXPECT_EQ(listed.LogProb(token), whole.LogProb(token));
          EXPECT_EQ(listed.top(), whole.top());
        }
      }
    }
  }
}

TEST(RawListTest, MoreTiesThanRoomAreAnOverflow) {
  std::vector<float> logits(3001, 1.0f);
  RowNeed need = sampling::RawScoreNeed(5);
  EXPECT_FALSE(sampling::IsComplete(need, RawListOnRanks(need, logits, 1, {}), {}));
  for (int i = 0; i < 5; ++i) logits[i * 600] = 2.0f;
  EXPECT_TRUE(sampling::IsComplete(need, RawListOnRanks(need, logits, 1, {}), {}));
}

TEST(RawListTest, TheBadLogitIsNamed) {
  std::vector<float> logits = RowWithHoles(3001, 1);
  logits[2000] = NAN;
  EXPECT_EQ(RawListOnRanks(sampling::RawScoreNeed(1), logits, 4, {}).bad_token, 2000);
}

// What a device finds of the logits: the biased tokens and the `wanted` largest others.
sampling::FoundList FindLargest(const std::vector<float>& logits, const BiasList& asked_for,
                                size_t wanted) {
  std::vector<TokenId> others, chosen;
  for (TokenId token = 0; token < static_cast<TokenId>(logits.size()); ++token) {
    const bool asked = std::any_of(asked_for.begin(), asked_for.end(),
                                   [&](const auto& entry) { return entry.first == token; });
    (asked ? chosen : others).push_back(token);
  }
  std::stable_sort(others.begin(), others.end(),
                   [&](TokenId a, TokenId b) { return logits[a] > logits[b]; });
  sampling::FoundList found;
  found.bound = logits[others[wanted - 1]];
  chosen.insert(chosen.end(), others.begin(), others.begin() + static_cast<int>(wanted));
  std::sort(chosen.begin(), chosen.end());
  for (const TokenId token : chosen) {
    found.tokens.tokens.push_back(token);
    found.tokens.logits.push_back(logits[token]);
  }
  return found;
}

TEST(RawListTest, WhatADeviceHasFoundGivesTheSameWords) {
  int proven = 0, overflows = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const std::vector<float> logits = RowWithHoles(2003, seed);
    const BiasList asked_for = {{static_cast<TokenId>(seed * 31 % 2003), 0.0}};
    RowNeed need = sampling::RawScoreNeed(1 + static_cast<int>(seed % 7));
    need.raw_sums = false;
    need.bias_end = 1;
    const std::vector<float> want = RecordsOfRanks(need, logits, 1, asked_for)[0];
    for (const size_t wanted : {need.raw_top, sampling::RawCapacity(need)}) {
      sampling::FoundRow row;
      row.lists.push_back(FindLargest(logits, asked_for, wanted));
      std::vector<float> record(sampling::RecordWords(need), NAN);
      sampling::WriteFoundRecord(need, row, asked_for, record.data());
      int32_t count = 0;
      std::memcpy(&count, &record[2], sizeof count);
      if (count < 0) {  // too few were found to know that none is missing
        ++overflows;
        continue;
      }
      ++proven;
      EXPECT_EQ(std::memcmp(record.data(), want.data(), record.size() * sizeof(float)), 0)
          << "seed " << seed;
    }
  }
  EXPECT_GE(proven, 60);
  EXPECT_GT(overflows, 20);
}

}  // namespace
}  // namespace coppice::kernels
