// What is needed of rows with a format (decoding/row_need.h): the logits of the allowed tokens where
// these are few, from any number of ranks. They decide as whole rows do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "decoding/row_need.h"
#include "sampling/candidate_list.h"
#include "sampling/processed_row.h"
#include "tests/decoding/fixed_format.h"

namespace coppice::decoding {
namespace {

// Draws and ranks need the logits of the allowed tokens; beam search also the sum of the row, so
// nothing may change that.
TEST(FormatRow, RowsAreNeededByTheirAllowedTokens) {
  const RowUse draws{RowUse::Kind::kDraws}, ranks{RowUse::Kind::kRanks, 5};
  DecodingParams params;
  params.format = std::make_shared<FixedFormat>(Tokens(8, {1}));
  for (const double temperature : {1.0, 0.0, 0.7}) {
    params.sampling.temperature = temperature;
    params.kind = sampling::DecodingKind::kBeamSampling;
    EXPECT_EQ(TargetNeed(params, draws).form, RowNeed::Form::kRaw);
    EXPECT_FALSE(TargetNeed(params, draws).raw_sums);
    EXPECT_EQ(TargetNeed(params, {}).form, RowNeed::Form::kWhole);  // any entry
    EXPECT_EQ(TargetNeed(params, {RowUse::Kind::kRanks, 5, true}).form, RowNeed::Form::kWhole);
    params.kind = sampling::DecodingKind::kBeamSearch;
    EXPECT_EQ(TargetNeed(params, ranks).form,
              temperature == 1 ? RowNeed::Form::kRaw : RowNeed::Form::kWhole);
    EXPECT_EQ(DraftNeed(params).form, RowNeed::Form::kWhole);
  }
  params.sampling.temperature = 1;
  EXPECT_TRUE(TargetNeed(params, ranks).raw_sums);
  DecodingParams other = params;
  other.sampling.logit_bias = {{3, 1.0}};
  EXPECT_EQ(TargetNeed(other, ranks).form, RowNeed::Form::kWhole);
  other = params;
  other.sampling.presence_penalty = 1;
  EXPECT_EQ(TargetNeed(other, ranks).form, RowNeed::Form::kWhole);
  other = params;
  other.kind = sampling::DecodingKind::kBeamSampling;
  other.sampling.mode = sampling::SamplingScope::kJoint;
  EXPECT_EQ(TargetNeed(other, draws).form, RowNeed::Form::kWhole);
}

TEST(FormatRow, TooManyAllowedTokensAndBannedStopsNeedTheWholeRow) {
  DecodingParams params;
  params.kind = sampling::DecodingKind::kBeamSearch;
  params.format = std::make_shared<FixedFormat>(Tokens(8, {1, 5}));
  ASSERT_NE(AllowedAfter(params, 0, 0), nullptr);
  EXPECT_THAT(AllowedAfter(params, 0, 0)->listed, testing::ElementsAre(1, 5));
  ASSERT_NE(AllowedAfter(params, 0, OutputFormat::kBroken), nullptr);
  EXPECT_THAT(AllowedAfter(params, 0, OutputFormat::kBroken)->listed, testing::ElementsAre());
  params.min_tokens = 2;
  params.stop_ids = {5};
  EXPECT_EQ(AllowedAfter(params, 1, 0), nullptr);
  EXPECT_NE(AllowedAfter(params, 2, 0), nullptr);
  std::vector<TokenId> many(kMostListedAllowed + 1);
  std::iota(many.begin(), many.end(), 0);
  params.format = std::make_shared<FixedFormat>(Tokens(5000, many));
  EXPECT_EQ(AllowedAfter(params, 2, 0), nullptr);
}

CandidateRow AllowedOnRanks(RowNeed need, const std::vector<float>& logits, int ranks,
                            const std::vector<TokenId>& tokens) {
  const auto vocab = static_cast<int64_t>(logits.size());
  std::vector<std::pair<TokenId, double>> bias;
  for (const TokenId token : tokens) bias.emplace_back(token, 0.0);
  need.bias_end = static_cast<int32_t>(bias.size());
  EXPECT_FALSE(sampling::IsWhole(need, vocab));
  std::vector<std::vector<float>> records;
  std::vector<const float*> pointers;
  for (int rank = 0; rank < ranks; ++rank) {
    const sampling::TokenRange range = sampling::VocabularyShard(vocab, rank, ranks);
    const auto shard = absl::MakeConstSpan(logits).subspan(range.begin, range.size());
    records.emplace_back(sampling::RecordWords(need));
    sampling::WriteRecord(need, {shard, range, vocab, bias}, records.back().data());
  }
  for (const auto& record : records) pointers.push_back(record.data());
  return sampling::JoinRecords(need, pointers, bias);
}

// Lists of the allowed tokens, from any number of ranks, decide as whole rows do, bit for bit.
TEST(FormatRow, ListsOfAllowedTokensHaveTheBitsOfWholeRows) {
  const std::vector<TokenId> tokens = {2, 3, 64, 700, 1033, 1999};
  const std::vector<float> logits = RandomLogits(2000, 4);
  std::vector<DecodingParams> all(7);
  all[0].kind = sampling::DecodingKind::kBeamSearch;
  all[1].sampling.temperature = 0.7;
  all[2].sampling.top_k = 3;
  all[3].sampling.top_p = 0.8;
  all[4].sampling.logit_bias = {{3, 2.0}, {700, kNothing}};
  all[5].sampling.repetition_penalty = 1.4;
  all[6].min_tokens = 9;
  all[6].stop_ids = {64};
  for (DecodingParams& params : all) {
    params.format = std::make_shared<FixedFormat>(Tokens(2100, tokens));
    const bool ranked = params.kind == sampling::DecodingKind::kBeamSearch;
    const RowUse use{ranked ? RowUse::Kind::kRanks : RowUse::Kind::kDraws, 4};
    const sampling::RowPath path = std::vector<TokenId>{3, 3, 64};
    OneRow source;
    source.logits = logits;
    sampling::ProcessedRow want(params), got(params);
    want.Read(&source, 0, path);
    for (const int ranks : {1, 2, 5}) {
      const CandidateRow row = AllowedOnRanks(TargetNeed(params, use), logits, ranks, tokens);
      OneRow listed;
      listed.listed = &row;
      got.Read(&listed, 0, path);
      std::vector<sampling::ProcessedRow::Candidate> a, b;
      got.TopCandidates(use.reach, &a);
      want.TopCandidates(use.reach, &b);
      ASSERT_EQ(a.size(), b.size());
      for (size_t i = 0; i < a.size(); ++i) {
        EXPECT_EQ(a[i].token, b[i].token);
        EXPECT_EQ(a[i].log_prob, b[i].log_prob);
        EXPECT_EQ(a[i].score_log_prob, b[i].score_log_prob);
      }
      if (ranked) continue;
      EXPECT_EQ(got.sparse().tokens, want.sparse().tokens);
      EXPECT_EQ(got.sparse().log_probs, want.sparse().log_probs);
    }
  }
}

}  // namespace
}  // namespace coppice::decoding
