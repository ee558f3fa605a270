// Records made from the tokens that a device found against those made from the shard itself: the
// same words, or an overflow when the bound on the other tokens proves too little.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "sampling/candidate_list.h"
#include "sampling/gumbel_kernels.h"
#include "sampling/logits_processing.h"

namespace coppice::kernels {
namespace {

using BiasList = std::vector<std::pair<TokenId, double>>;

struct FoundCase {
  RowNeed need;
  BiasList bias;
  sampling::TokenRange tokens;
  std::vector<float> logits;  // of the tokens
};

// Keys of all tokens of the case, for one slot.
std::vector<double> AllKeys(const FoundCase& c, uint32_t slot) {
  TokenList all;
  all.tokens.resize(c.logits.size());
  std::iota(all.tokens.begin(), all.tokens.end(), static_cast<TokenId>(c.tokens.begin));
  all.logits = c.logits;
  sampling::SamplingParams sampling;
  sampling.temperature = c.need.temperature;
  sampling.logit_bias = c.bias;
  std::vector<double> keys = sampling::TemperList(all, sampling);
  if (c.need.form == RowNeed::Form::kTop) return keys;
  std::vector<double> noise(keys.size());
  sampling::GumbelMany({c.need.seed, sampling::Domain::kToken, c.need.path_hash, slot}, all.tokens,
                       noise.data());
  for (size_t i = 0; i < keys.size(); ++i) keys[i] += noise[i];
  return keys;
}

// All biased tokens and the count + spare largest others, and what bounds the rest.
sampling::FoundList Find(const FoundCase& c, uint32_t slot, int spare) {
  const std::vector<double> keys = AllKeys(c, slot);
  std::vector<int> order, chosen;
  for (int i = 0; i < static_cast<int>(keys.size()); ++i) {
    const auto token = static_cast<TokenId>(c.tokens.begin + i);
    const bool biased = std::any_of(c.bias.begin(), c.bias.end(),
                                    [&](const auto& entry) { return entry.first == token; });
    (biased ? chosen : order).push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return keys[a] > keys[b]; });
  const size_t wanted = std::min<size_t>(order.size(), c.need.count + spare);
  sampling::FoundList found;
  found.bound =
      wanted < order.size() ? keys[order[wanted - 1]] : -std::numeric_limits<double>::infinity();
  chosen.insert(chosen.end(), order.begin(), order.begin() + wanted);
  std::sort(chosen.begin(), chosen.end());
  for (const int i : chosen) {
    found.tokens.tokens.push_back(static_cast<TokenId>(c.tokens.begin + i));
    found.tokens.logits.push_back(c.logits[i]);
  }
  return found;
}

std::vector<uint32_t> Words(const std::vector<float>& record) {
  std::vector<uint32_t> words(record.size());
  std::memcpy(words.data(), record.data(), record.size() * sizeof(float));
  return words;
}

std::vector<uint32_t> RecordOf(const FoundCase& c, int64_t vocab) {
  std::vector<float> record(sampling::RecordWords(c.need), NAN);
  sampling::WriteRecord(c.need, {c.logits, c.tokens, vocab, c.bias}, record.data());
  return Words(record);
}

std::vector<uint32_t> FoundRecordOf(const FoundCase& c, int spare) {
  sampling::FoundRow row;
  uint32_t slots = c.need.form == RowNeed::Form::kGumbel ? c.need.slots : 1;
  for (uint32_t slot = 0; slot < 32; ++slot) {
    if ((slots >> slot & 1) != 0) row.lists.push_back(Find(c, slot, spare));
  }
  std::vector<float> record(sampling::RecordWords(c.need), NAN);
  sampling::WriteFoundRecord(c.need, row, c.bias, record.data());
  return Words(record);
}

FoundCase RandomCase(uint64_t seed, int64_t vocab, int rank, int ranks) {
  std::mt19937_64 random(seed);
  FoundCase c;
  c.tokens = sampling::VocabularyShard(vocab, rank, ranks);
  std::normal_distribution<float> normal(0, 2);
  for (int64_t i = 0; i < c.tokens.size(); ++i) {
    const float logit = normal(random);
    c.logits.push_back(seed % 3 == 0 ? std::round(logit * 8) / 8 : logit);
    if (random() % 20 == 0) c.logits.back() = -std::numeric_limits<float>::infinity();
  }
  c.need.form = seed % 2 == 0 ? RowNeed::Form::kTop : RowNeed::Form::kGumbel;
  c.need.count = 1 + static_cast<int>(seed % 9);
  c.need.slack = seed % 5 == 0 ? 0.3 : 4e-6;
  if (c.need.count == 1) c.need.slack = sampling::kMarginCap;  // what draws ask for
  c.need.temperature = seed % 4 < 2 ? 1 : 0.7;
  c.need.slots = 0x80000005u;
  c.need.seed = seed;
  c.need.path_hash = seed * 77;
  if (seed % 3 != 1) {
    c.bias = {{static_cast<TokenId>(c.tokens.begin), 6.0},
              {3, -1.0},
              {3, 2.5},
              {static_cast<TokenId>(c.tokens.end - 1), -std::numeric_limits<double>::infinity()}};
    c.need.bias_end = static_cast<int32_t>(c.bias.size());
  }
  return c;
}

TEST(FoundRowTest, EnoughTokensGiveTheSameWords) {
  for (uint64_t seed = 0; seed < 120; ++seed) {
    for (const auto& [rank, ranks] : {std::pair(0, 1), {1, 3}, {15, 16}}) {
      const FoundCase c = RandomCase(seed, 2003, rank, ranks);
      // One more than a list holds proves the list, or that it overflows.
      const int spare = sampling::ListCapacity(c.need) + 1 - c.need.count;
      ASSERT_EQ(FoundRecordOf(c, spare), RecordOf(c, 2003)) << "seed " << seed << " rank " << rank;
    }
  }
}

// Fewer may prove too little; they never give another list.
TEST(FoundRowTest, TooFewTokensAreAnOverflow) {
  int same = 0, overflows = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    FoundCase c = RandomCase(seed, 2003, 0, 1);
    c.need.slots = 1;  // one list, whose count is word 2
    for (const int spare : {0, 1, 3}) {
      const std::vector<uint32_t> found = FoundRecordOf(c, spare), wanted = RecordOf(c, 2003);
      if (found[2] == 0xffffffffu) {
        ++overflows;
      } else {
        ++same;
        ASSERT_EQ(found, wanted) << "seed " << seed << " spare " << spare;
      }
    }
  }
  EXPECT_GT(same, 300);
  EXPECT_GT(overflows, 200);
}

TEST(FoundRowTest, ABoundThatIsNoNumberProvesNothing) {
  FoundCase c = RandomCase(2, 2003, 0, 1);
  sampling::FoundRow row;
  row.lists.push_back(Find(c, 0, 16));
  row.lists[0].bound = std::numeric_limits<double>::quiet_NaN();
  std::vector<float> record(sampling::RecordWords(c.need), NAN);
  sampling::WriteFoundRecord(c.need, row, c.bias, record.data());
  EXPECT_EQ(Words(record)[2], 0xffffffffu);
}

}  // namespace
}  // namespace coppice::kernels
