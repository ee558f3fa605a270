// Candidate lists compared with whole rows. For any number of ranks, decoding from a joined list
// must give the same as from the whole row, bit for bit.
#include "sampling/candidate_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "decoding/drafter.h"
#include "decoding/row_need.h"
#include "sampling/gumbel_kernels.h"
#include "sampling/processed_row.h"
#include "sampling/target_row.h"

namespace coppice::kernels {
namespace {

constexpr int kSlots = 4;
constexpr uint64_t kPathHash = 0x123456789abcdefull;

// One row in both forms.
class BothForms : public sampling::RowSource {
 public:
  explicit BothForms(std::vector<float> logits) : logits_(std::move(logits)) {}
  void List(CandidateRow row) { listed_ = std::move(row); }
  void GoWhole() { listed_.reset(); }
  absl::Span<const float> Logits(int) override { return logits_; }
  const CandidateRow* Listed(int) override { return listed_ ? &*listed_ : nullptr; }

 private:
  std::vector<float> logits_;
  std::optional<CandidateRow> listed_;
};

std::vector<float> RandomRow(int vocab, double spread, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, static_cast<float>(spread));
  std::vector<float> row(vocab);
  for (float& logit : row) logit = std::round(normal(random) * 64) / 64;  // so there are ties
  return row;
}

CandidateRow ListOnRanks(RowNeed need, absl::Span<const float> logits, int ranks,
                         absl::Span<const std::pair<TokenId, double>> bias) {
  const auto vocab = static_cast<int64_t>(logits.size());
  std::vector<std::vector<float>> records;
  std::vector<const float*> pointers;
  for (int rank = 0; rank < ranks; ++rank) {
    const sampling::TokenRange tokens = sampling::VocabularyShard(vocab, rank, ranks);
    std::vector<float>& record = records.emplace_back(sampling::RecordWords(need), NAN);
    sampling::WriteRecord(need, {logits.subspan(tokens.begin, tokens.size()), tokens, vocab, bias},
                          record.data());
  }
  for (const auto& record : records) pointers.push_back(record.data());
  return sampling::JoinRecords(need, pointers, bias);
}

RowNeed NeedFor(const decoding::DecodingParams& params, decoding::RowUse use) {
  RowNeed need = decoding::TargetNeed(params, use);
  need.path_hash = kPathHash;
  need.slots = use.kind == decoding::RowUse::Kind::kDraws ? (1u << kSlots) - 1 : 1;
  return need;
}

void ExpectSameCandidate(const sampling::ProcessedRow::Candidate& got,
                         const sampling::ProcessedRow::Candidate& want) {
  EXPECT_EQ(got.token, want.token);
  EXPECT_EQ(got.log_prob, want.log_prob);
  EXPECT_EQ(got.score_log_prob, want.score_log_prob);
}

// Everything that a decoder with this use reads from a row.
void ExpectSameRow(const sampling::ProcessedRow& got, const sampling::ProcessedRow& want,
                   const decoding::DecodingParams& params, decoding::RowUse use) {
  if (want.cut()) {
    ASSERT_TRUE(got.cut());
    ASSERT_EQ(got.sparse().tokens, want.sparse().tokens);
    EXPECT_EQ(got.sparse().log_probs, want.sparse().log_probs);
    for (TokenId token : want.sparse().tokens)
      ExpectSameCandidate(got.Find(token), want.Find(token));
  }
  if (use.kind == decoding::RowUse::Kind::kDraws) {
    for (uint32_t slot = 0; slot < kSlots; ++slot) {
      const sampling::NoiseKey key{params.seed, sampling::Domain::kToken, kPathHash, slot};
      const auto a = got.DrawToken(key), b = want.DrawToken(key);
      ExpectSameCandidate(a.winner, b.winner);
      EXPECT_EQ(a.margin, b.margin);
    }
  }
  if (use.kind == decoding::RowUse::Kind::kRanks) {
    std::vector<sampling::ProcessedRow::Candidate> a, b;
    got.TopCandidates(use.reach, &a);
    want.TopCandidates(use.reach, &b);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) ExpectSameCandidate(a[i], b[i]);
  }
}

struct Setting {
  const char* name;
  sampling::SamplingParams sampling;
  decoding::RowUse use;
};

std::vector<Setting> Settings() {
  const decoding::RowUse distribution, draws{decoding::RowUse::Kind::kDraws},
      ranks{decoding::RowUse::Kind::kRanks, 6};
  const auto sampling = [](auto change) {
    sampling::SamplingParams params;
    change(&params);
    return params;
  };
  return {
      {"Greedy", sampling([](auto* w) { w->temperature = 0; }), distribution},
      {"TopK", sampling([](auto* w) { w->top_k = 9; }), distribution},
      {"TopKAndTopP",
       sampling([](auto* w) { w->top_k = 30, w->top_p = 0.6, w->temperature = 1.3; }),
       distribution},
      {"TopKAndMinP", sampling([](auto* w) { w->top_k = 30, w->min_p = 0.1; }), draws},
      {"TopP", sampling([](auto* w) { w->top_p = 0.8; }), distribution},
      {"TopPAndMinP",
       sampling([](auto* w) { w->top_p = 0.9, w->min_p = 0.01, w->temperature = 0.7; }),
       distribution},
      {"MinP", sampling([](auto* w) { w->min_p = 0.02; }), ranks},
      {"Draws", sampling([](auto*) {}), draws},
      {"HotDraws", sampling([](auto* w) { w->temperature = 1.7; }), draws},
      {"ColdDraws", sampling([](auto* w) { w->temperature = 0.01; }), draws},
      {"Ranks", sampling([](auto*) {}), ranks},
      {"RawTopK",
       sampling([](auto* w) { w->mode = sampling::SamplingScope::kRowRaw, w->top_k = 9; }),
       distribution},
      {"RawGreedy",
       sampling([](auto* w) { w->mode = sampling::SamplingScope::kRowRaw, w->temperature = 0; }),
       distribution},
      {"RawDraws",
       sampling([](auto* w) { w->mode = sampling::SamplingScope::kRowRaw, w->temperature = 0.6; }),
       draws},
      {"RawRanks", sampling([](auto* w) { w->mode = sampling::SamplingScope::kRowRaw; }), ranks},
  };
}

class CandidateListTest : public testing::TestWithParam<Setting> {};

TEST_P(CandidateListTest, GivesWhatTheWholeRowGives) {
  const Setting& setting = GetParam();
  int listed = 0, complete = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    for (const int vocab : {1000, 4099, 20011}) {
      decoding::DecodingParams params;
      params.sampling = setting.sampling;
      params.seed = seed;
      if (seed % 2 == 1) {
        params.stop_ids = {static_cast<TokenId>(seed), 500};
        params.min_tokens = seed % 4 == 1 ? 3 : 0;  // banned at length 2
        params.sampling.logit_bias = {{3, 4.0}, {7, -2.0}, {700, 3.0}, {3, 0.5}};
      }
      const std::vector<float> logits = RandomRow(vocab, 2 + seed % 3, seed * 7 + vocab);
      // The path has the best token of the row and, with every second penalty, a biased one.
      const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
      const sampling::RowPath path(std::vector<TokenId>{static_cast<TokenId>(best), 7});
      if (seed % 3 == 2) {
        params.sampling.frequency_penalty = 0.7;
        params.sampling.presence_penalty = seed % 4 == 2 ? 1.3 : -0.9;
      }
      const auto bias = sampling::SamplingAt(params, path).logit_bias;
      RowNeed need = NeedFor(params, setting.use);
      need.bias_end = static_cast<int32_t>(bias.size());
      if (sampling::IsWhole(need, vocab)) continue;
      BothForms rows(logits);
      sampling::ProcessedRow whole(params), list(params);
      whole.Read(&rows, 0, path);
      for (const int ranks : {1, 2, 3, 4, 7, 16}) {
        CandidateRow row = ListOnRanks(need, logits, ranks, bias);
        ++listed;
        if (!sampling::IsComplete(need, row, bias)) continue;
        ++complete;
        rows.List(std::move(row));
        list.Read(&rows, 0, path);
        SCOPED_TRACE(testing::Message()
                     << "seed " << seed << " vocab " << vocab << " ranks " << ranks);
        ExpectSameRow(list, whole, params, setting.use);
        rows.GoWhole();
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GT(listed, 100);
  EXPECT_GT(complete, listed / 4);
}

INSTANTIATE_TEST_SUITE_P(Uses, CandidateListTest, testing::ValuesIn(Settings()),
                         [](const auto& info) { return info.param.name; });

TEST(CandidateListSumsTest, AreThoseOfTheWholeRowOnAnyNumberOfRanks) {
  RowNeed need;
  need.form = RowNeed::Form::kTop;
  need.count = 4;
  need.sums = need.raw_sums = true;
  need.temperature = 0.9;
  for (const int vocab : {401, 32000}) {
    const std::vector<float> logits = RandomRow(vocab, 3, vocab);
    std::vector<double> raw(logits.begin(), logits.end()), x = raw;
    sampling::DivideRow(0.9, absl::MakeSpan(x));
    for (int ranks = 1; ranks <= kLseChunks; ++ranks) {
      const CandidateRow row = ListOnRanks(need, logits, ranks, {});
      EXPECT_EQ(sampling::JoinChunks(row.sums).log, sampling::ChunkedLogSumExp(x, nullptr).log)
          << ranks;
      EXPECT_EQ(sampling::JoinChunks(row.raw_sums).log,
                sampling::ChunkedLogSumExp(raw, nullptr).log)
          << ranks;
      EXPECT_EQ(sampling::JoinChunks(row.raw_sums).max,
                sampling::ChunkedLogSumExp(raw, nullptr).max)
          << ranks;
    }
  }
}

TEST(CandidateListShardTest, CoverTheVocabularyInOrder) {
  for (const int64_t vocab : {16, 17, 401, 128256}) {
    for (int ranks = 1; ranks <= kLseChunks; ++ranks) {
      int64_t end = 0, largest = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const sampling::TokenRange shard = sampling::VocabularyShard(vocab, rank, ranks);
        EXPECT_EQ(shard.begin, end);
        end = shard.end;
        largest = std::max(largest, shard.size());
      }
      EXPECT_EQ(end, vocab);
      EXPECT_EQ(sampling::LargestShard(vocab, ranks), largest);
    }
  }
}

TEST(CandidateListTestOfRanks, NoisyRanksHoldTheBestOfTheWholeRow) {
  decoding::DecodingParams params;
  params.kind = sampling::DecodingKind::kBeamSamplingWithoutReplacement;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    params.seed = seed;
    const std::vector<float> logits = RandomRow(3001, 2, seed);
    const RowNeed need = NeedFor(params, {decoding::RowUse::Kind::kNoisyRanks, 8});
    std::vector<TokenId> tokens(logits.size());
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i);
    std::vector<double> keys(logits.size());
    sampling::GumbelMany({seed, sampling::Domain::kToken, kPathHash, 0}, tokens, keys.data());
    for (size_t i = 0; i < keys.size(); ++i) keys[i] += logits[i];
    std::sort(tokens.begin(), tokens.end(),
              [&](TokenId a, TokenId b) { return keys[a] > keys[b]; });
    for (const int ranks : {1, 2, 5}) {
      const CandidateRow row = ListOnRanks(need, logits, ranks, {});
      const std::vector<TokenId>& got = row.OfSlot(0).tokens;
      for (int i = 0; i < 8; ++i) {
        EXPECT_TRUE(std::binary_search(got.begin(), got.end(), tokens[i])) << ranks << " " << i;
      }
    }
  }
}

TEST(CandidateListEdgeTest, TheLowestBadLogitIsNamedOnWhicheverRankItLies) {
  std::vector<float> logits = RandomRow(1000, 2, 1);
  logits[900] = NAN;
  logits[700] = std::numeric_limits<float>::infinity();
  RowNeed need;
  need.form = RowNeed::Form::kTop;
  need.count = 4;
  for (const int ranks : {1, 2, 4}) {
    const CandidateRow row = ListOnRanks(need, logits, ranks, {});
    EXPECT_EQ(row.bad_token, 700);
    EXPECT_EQ(row.bad_logit, std::numeric_limits<float>::infinity());
  }
  logits.assign(1000, -std::numeric_limits<float>::infinity());  // banned tokens are not an error
  EXPECT_EQ(ListOnRanks(need, logits, 2, {}).bad_token, -1);
  EXPECT_TRUE(ListOnRanks(need, logits, 2, {}).lists[0].tokens.empty());
}

TEST(CandidateListEdgeTest, MoreTiesThanRoomAreAnOverflow) {
  const std::vector<float> logits(1000, 1.0f);
  RowNeed need;
  need.form = RowNeed::Form::kTop;
  need.count = 4;
  EXPECT_FALSE(sampling::IsComplete(need, ListOnRanks(need, logits, 1, {}), {}));
  std::vector<float> few(1000, -5.0f);
  for (int i = 0; i < 4; ++i) few[i * 250] = 2.0f + i;
  EXPECT_TRUE(sampling::IsComplete(need, ListOnRanks(need, few, 1, {}), {}));
}

TEST(CandidateListEdgeTest, AFlatRowDoesNotReachTopP) {
  const std::vector<float> logits = RandomRow(60000, 0.1, 5);
  decoding::DecodingParams params;
  params.sampling.top_p = 0.9;
  const RowNeed need = NeedFor(params, {});
  ASSERT_FALSE(sampling::IsWhole(need, 60000));
  EXPECT_FALSE(sampling::IsComplete(need, ListOnRanks(need, logits, 2, {}), {}));
}

TEST(CandidateListDraftTest, DraftRowsAreTheSame) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    for (const double top_p : {1.0, 0.7}) {
      for (const double temperature : {0.0, 0.8}) {
        decoding::DecodingParams params;
        params.draft_top_k = 24;
        params.sampling.top_p = top_p;
        params.sampling.temperature = temperature;
        params.sampling.mode =
            seed % 3 == 0 ? sampling::SamplingScope::kRowRaw : sampling::SamplingScope::kRow;
        const std::vector<float> logits = RandomRow(9001, 3, seed);
        RowNeed need = decoding::DraftNeed(params);
        ASSERT_FALSE(sampling::IsWhole(need, 9001));
        const CandidateRow row = ListOnRanks(need, logits, 1, {});
        if (!sampling::IsComplete(need, row, {})) continue;
        const sampling::Distribution got = decoding::DraftRow(row, params, 0),
                                     want = decoding::DraftRow(logits, params, 0);
        EXPECT_EQ(got.tokens, want.tokens);
        EXPECT_EQ(got.log_probs, want.log_probs);
      }
    }
  }
}

}  // namespace
}  // namespace coppice::kernels
