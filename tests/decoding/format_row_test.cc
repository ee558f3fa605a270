// Rows with a format (docs/algorithms.md 1): tokens that are not allowed have probability 0, the
// rest is renormalised. A few allowed tokens are listed and read alone; more are read from the
// whole row. Both must give the distribution of a row whose other logits are -inf already.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "decoding/device_drafting.h"
#include "decoding/method.h"
#include "decoding/row_need.h"
#include "sampling/candidate_list.h"
#include "sampling/logits_processing.h"
#include "sampling/processed_row.h"
#include "sampling/rng.h"
#include "sampling/target_row.h"
#include "tests/decoding/fixed_format.h"
#include "tests/testing/formatted_model.h"

namespace coppice::decoding {
namespace {

using testing::ElementsAre;

constexpr double kExact = 1e-12;

struct RowCase {
  std::string name;
  sampling::SamplingParams sampling;
};
std::vector<RowCase> Samplings() {
  std::vector<RowCase> cases;
  const auto add = [&](const char* name, auto change) {
    RowCase row{name, {}};
    change(&row.sampling);
    cases.push_back(row);
    row.name += " with biases";
    row.sampling.logit_bias = {{3, 2.5}, {7, -1.0}, {64, 4.0}, {130, kNothing}};
    cases.push_back(row);
  };
  add("as it is", [](sampling::SamplingParams*) {});
  add("temperature 0", [](sampling::SamplingParams* sampling) { sampling->temperature = 0; });
  add("temperature 0.7", [](sampling::SamplingParams* sampling) { sampling->temperature = 0.7; });
  add("top-k", [](sampling::SamplingParams* sampling) { sampling->top_k = 3; });
  add("top-p", [](sampling::SamplingParams* sampling) { sampling->top_p = 0.6; });
  add("min-p", [](sampling::SamplingParams* sampling) { sampling->min_p = 0.2; });
  add("all", [](sampling::SamplingParams* sampling) {
    sampling->temperature = 1.3, sampling->top_k = 20, sampling->top_p = 0.9,
    sampling->min_p = 0.05;
  });
  add("repetition", [](sampling::SamplingParams* sampling) { sampling->repetition_penalty = 1.4; });
  return cases;
}

// Every `apart`-th token, among them those with a bias.
std::vector<TokenId> EveryNth(int vocab, int apart) {
  std::vector<TokenId> tokens = {3, 64};
  for (TokenId token = 1; token < vocab; token += apart) tokens.push_back(token);
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  return tokens;
}

void ExpectSameRow(const sampling::Distribution& row, const sampling::Distribution& wanted) {
  ASSERT_EQ(row.tokens, wanted.tokens);
  for (size_t i = 0; i < row.size(); ++i)
    EXPECT_NEAR(row.log_probs[i], wanted.log_probs[i], kExact);
}

// Calls check(allowed as a list, allowed as bits, params of each setting, logits, masked logits).
template <typename Check>
void ForEveryRow(const Check& check) {
  for (const int vocab : {130, 131, 900}) {
    for (const int apart : {1, 2, 13, 200}) {
      AllowedTokens few = Tokens(vocab, EveryNth(vocab, apart));
      AllowedTokens many = few;
      many.listed.clear();
      for (const RowCase& row : Samplings()) {
        SCOPED_TRACE(testing::Message() << row.name << ", 1 of " << apart << " of " << vocab);
        DecodingParams params;
        params.sampling = row.sampling;
        SetPrompt(std::vector<TokenId>{3, 5}, &params);
        const std::vector<float> logits = RandomLogits(vocab, vocab + apart);
        std::vector<float> masked = logits;
        for (TokenId v = 0; v < vocab; ++v) {
          if (!few.Has(v)) masked[v] = -std::numeric_limits<float>::infinity();
        }
        check(few, many, params, logits, masked);
      }
    }
  }
}

TEST(FormatRow, ListedAndOtherTokensGiveTheDistributionOfTheMaskedRow) {
  ForEveryRow([](const AllowedTokens& few, const AllowedTokens& many, DecodingParams params,
                 const std::vector<float>& logits, const std::vector<float>& masked) {
    const sampling::RowPath path = std::vector<TokenId>{3, 3, 14};
    const sampling::Distribution wanted =
        sampling::ProcessRow(masked, sampling::SamplingAt(params, path));
    const std::vector<double> wide(logits.begin(), logits.end());
    for (const AllowedTokens& allowed : {few, many}) {
      params.format = std::make_shared<FixedFormat>(allowed);
      const sampling::SamplingParams sampling = sampling::SamplingAt(params, path);
      EXPECT_EQ(sampling::FewAllowed(sampling), !allowed.listed.empty());
      ExpectSameRow(sampling::ProcessRow(logits, sampling), wanted);
      ExpectSameRow(sampling::ProcessRow(wide, sampling), wanted);
    }
  });
}

// Every way in which a row comes, every way in which it is stored, and what is drawn from it.
TEST(FormatRow, ProcessedRowsInEveryForm) {
  ForEveryRow([](const AllowedTokens& few, const AllowedTokens& many, DecodingParams params,
                 const std::vector<float>& logits, const std::vector<float>& masked) {
    const sampling::RowPath path = std::vector<TokenId>{3, 3, 14};
    for (const sampling::SamplingScope mode :
         {sampling::SamplingScope::kRow, sampling::SamplingScope::kRowRaw}) {
      params.sampling.mode = mode;
      params.format = nullptr;
      OneRow source;
      source.logits = masked;
      sampling::ProcessedRow closed(params);
      closed.Read(&source, 0, path);
      const sampling::TargetRow wanted = closed.Materialise();
      for (const AllowedTokens& allowed : {few, many}) {
        params.format = std::make_shared<FixedFormat>(allowed);
        for (const bool exact : {false, true}) {
          source.logits = logits;
          source.exact.clear();
          if (exact) source.exact.assign(logits.begin(), logits.end());
          sampling::ProcessedRow row(params);
          row.Read(&source, 0, path);
          const sampling::TargetRow read = row.Materialise();
          ExpectSameRow(read.row, wanted.row);
          std::vector<double> raw(logits.begin(), logits.end());
          const double log_sum = sampling::LogSumExp(raw);
          for (size_t i = 0; i < read.row.size(); ++i) {
            const TokenId token = read.row.tokens[i];
            ASSERT_TRUE(allowed.Has(token));
            EXPECT_NEAR(row.LogProb(token), read.row.log_probs[i], kExact);
            // The score of mode ROW_RAW is the model's own.
            EXPECT_NEAR(read.score_log_probs[i],
                        mode == sampling::SamplingScope::kRow ? read.row.log_probs[i]
                                                              : raw[token] - log_sum,
                        kExact);
          }
          for (TokenId token = 0; token < static_cast<TokenId>(logits.size()); ++token) {
            ASSERT_TRUE(allowed.Has(token) || row.LogProb(token) == kNothing);
          }
          std::vector<sampling::ProcessedRow::Candidate> top;
          row.TopCandidates(logits.size(), &top);
          EXPECT_EQ(top.size(), wanted.row.size());
          for (uint64_t seed = 0; seed < 20; ++seed) {
            const sampling::NoiseKey key{seed, sampling::Domain::kToken, /*hash=*/9, /*slot=*/0};
            EXPECT_EQ(row.DrawToken(key).winner.token, closed.DrawToken(key).winner.token);
          }
        }
      }
    }
  });
}

// A row that is ranked where it lies has the bits of the row that is read, for all tokens and for
// those of a format; everything above the bound is listed, and the best of the row.
TEST(FormatRow, RankedRowsHaveTheBitsOfReadRows) {
  constexpr int kWide = 5000;
  std::vector<TokenId> few;
  for (TokenId token = 3; token < kWide + 40; token += 97) few.push_back(token);
  int ranked_rows = 0;
  for (const double spread : {0.01, 3.0}) {
    OneRow source;
    for (int v = 0; v < kWide; ++v) {
      source.logits.push_back(
          static_cast<float>(7 + spread * sampling::Gumbel(5, sampling::Domain::kDirect, 1, 0, v)));
    }
    source.logits[few[1]] = -std::numeric_limits<float>::infinity();
    for (const bool formatted : {false, true}) {
      sampling::RowParams params;
      params.kind = sampling::DecodingKind::kBeamSearch;
      if (formatted) params.format = std::make_shared<FixedFormat>(Tokens(kWide + 64, few));
      sampling::ProcessedRow read(params, /*for_draws=*/false), other(params, /*for_draws=*/false);
      read.Read(&source, 0, 0);
      std::vector<sampling::ProcessedRow::Candidate> all;
      read.TopCandidates(kWide, &all);
      std::sort(all.begin(), all.end(),
                [](const auto& a, const auto& b) { return a.log_prob > b.log_prob; });
      for (const size_t count : {size_t{1}, size_t{8}, size_t{60}, size_t{kWide}}) {
        for (const double least : {sampling::kLogZero, all[4].log_prob, 1.0}) {
          const sampling::RankQuery query = {count, least};
          sampling::RankedTokens ranked;
          ASSERT_TRUE(other.ReadOrRank(&source, 0, 0, &query, &ranked));
          ++ranked_rows;
          EXPECT_EQ(ranked.log_sum, read.log_sum().log);
          size_t wanted = 0;
          for (; wanted < std::min(count, all.size()) && all[wanted].log_prob >= least; ++wanted) {
            const auto found =
                std::find(ranked.tokens.begin(), ranked.tokens.end(), all[wanted].token);
            ASSERT_NE(found, ranked.tokens.end());
            EXPECT_EQ(ranked.log_probs[found - ranked.tokens.begin()], all[wanted].log_prob);
          }
          for (const double log_prob : ranked.log_probs) EXPECT_GE(log_prob, least - 2e-6);
        }
      }
    }
  }
  EXPECT_EQ(ranked_rows, 2 * 2 * 4 * 3);
}

// What the parameters change, or a format that allows many tokens, is read.
TEST(FormatRow, OtherRowsAreNotOnlyRanked) {
  OneRow source;
  source.logits.assign(100, 1.f);
  const sampling::RankQuery query = {5, sampling::kLogZero};
  const auto ranks = [&](const sampling::RowParams& params, const sampling::RowPath& path) {
    sampling::RankedTokens ranked;
    return sampling::ProcessedRow(params, false).ReadOrRank(&source, 0, path, &query, &ranked);
  };
  sampling::RowParams params;
  EXPECT_FALSE(ranks(params, 0));  // no beam search
  params.kind = sampling::DecodingKind::kBeamSearch;
  EXPECT_TRUE(ranks(params, 0));
  params.min_tokens = 3;
  params.stop_ids = {7};
  EXPECT_FALSE(ranks(params, 2));
  EXPECT_TRUE(ranks(params, 3));
  sampling::RowParams other = params;
  other.sampling.logit_bias = {{4, 1.0}};
  EXPECT_FALSE(ranks(other, 3));
  other = params;
  other.sampling.frequency_penalty = 1;
  EXPECT_FALSE(ranks(other, std::vector<TokenId>{1, 2, 3}));
  other = params;
  AllowedTokens many = Tokens(100, {1, 2});
  many.listed.clear();
  other.format = std::make_shared<FixedFormat>(many);
  EXPECT_FALSE(ranks(other, 3));
  other.format = std::make_shared<FixedFormat>(Tokens(200, {150}));  // no token of the row
  EXPECT_FALSE(ranks(other, 3));
}

// A candidate list may hold tokens that are not allowed. They are cut.
TEST(FormatRow, ListsKeepWhatIsAllowed) {
  const TokenList list{{2, 5, 64, 70}, {1.f, 2.f, 3.f, 4.f}};
  sampling::SamplingParams sampling;
  sampling.allowed = std::make_shared<const AllowedTokens>(Tokens(100, {5, 64, 99}));
  EXPECT_THAT(sampling::TemperList(list, sampling), ElementsAre(kNothing, 2, 3, kNothing));
  sampling.logit_bias = {{2, 9.0}, {5, 0.5}};
  EXPECT_THAT(sampling::TemperList(list, sampling), ElementsAre(kNothing, 2.5, 3, kNothing));
  sampling.top_k = 3;
  const sampling::Distribution row = sampling::ProcessList(list, {}, sampling);
  EXPECT_THAT(row.tokens, ElementsAre(5, 64));
}

TEST(FormatRow, DraftRowsKeepWhatIsAllowed) {
  ForEveryRow([](const AllowedTokens& few, const AllowedTokens& many, DecodingParams params,
                 const std::vector<float>& logits, const std::vector<float>& masked) {
    const sampling::RowPath path = std::vector<TokenId>{3, 3, 14};
    params.draft_top_k = 9;
    params.format = nullptr;
    const sampling::Distribution wanted = DraftRow(masked, params, path);
    for (const AllowedTokens& allowed : {few, many}) {
      params.format = std::make_shared<FixedFormat>(allowed);
      const sampling::Distribution row = DraftRow(logits, params, path);
      ExpectSameRow(row, wanted);
      EXPECT_LE(row.size(), 9u);
      for (const TokenId token : row.tokens) EXPECT_TRUE(allowed.Has(token));
    }
  });
}

// A row over more tokens than the format knows: those beyond are not allowed. Over fewer: those
// that the row lacks are not there.
TEST(FormatRow, VocabulariesOfDifferentSizes) {
  for (const bool listed : {true, false}) {
    sampling::SamplingParams sampling;
    AllowedTokens allowed = Tokens(70, {1, 64, 69});
    if (!listed) allowed.listed.clear();
    sampling.allowed = std::make_shared<const AllowedTokens>(allowed);
    EXPECT_THAT(sampling::ProcessRow(RandomLogits(300, 4), sampling).tokens,
                ElementsAre(1, 64, 69));
    EXPECT_THAT(sampling::ProcessRow(RandomLogits(65, 4), sampling).tokens, ElementsAre(1, 64));
  }
}

// As every row in which nothing is left.
TEST(FormatRow, NothingAllowedIsTokenZero) {
  sampling::SamplingParams sampling;
  sampling.allowed = std::make_shared<const AllowedTokens>(Tokens(70, {}));
  EXPECT_THAT(sampling::ProcessRow(RandomLogits(70, 4), sampling).tokens, ElementsAre(0));
  sampling.allowed = std::make_shared<const AllowedTokens>(Tokens(70, {5}));
  sampling.logit_bias = {{5, kNothing}};
  EXPECT_THAT(sampling::ProcessRow(RandomLogits(70, 4), sampling).tokens, ElementsAre(0));
}

// The device chooses without knowing what a format allows.
TEST(FormatRow, DevicesMakeNoForestsWithAFormat) {
  DecodingParams params;
  params.kind = sampling::DecodingKind::kBeamSampling;
  params.method = FindMethod("gumbel_coupling");
  params.beam_width = 2;
  DraftState state;
  state.root_hash = {sampling::kRootHash};
  state.root_score = {0};
  state.root_multiplicity = {2};
  state.slot_root = {0, 0};
  EXPECT_TRUE(DeviceForest(params, state, 3).has_value());
  params.format = std::make_shared<FixedFormat>(Tokens(8, {1}));
  EXPECT_FALSE(DeviceForest(params, state, 3).has_value());
}

// The state of a row is that after all tokens of its path, drafts included.
TEST(FormatRow, ThePathOfARowHasItsState) {
  DecodingParams params;
  params.stop_ids = {3};
  // "ab" | "aab": after "a" comes "b" or "ab", after both only the end.
  const test::ToyFormat format(grammar::Choice({grammar::Literal("ab"), grammar::Literal("aab")}),
                               4, params.stop_ids);
  params.format = format.Make();
  PathTree paths(params.format);
  const PathId a = paths.Extend(kRootPath, 0);
  const auto allowed = [&](PathId path, const std::vector<TokenId>& more) {
    const auto after = sampling::SamplingAt(params, MakeRowPath(params, paths, path, more)).allowed;
    return after == nullptr ? std::vector<TokenId>{-1} : after->listed;
  };
  EXPECT_THAT(allowed(kRootPath, {}), ElementsAre(0, 2));
  EXPECT_THAT(allowed(a, {}), ElementsAre(0, 1, 2));
  EXPECT_THAT(allowed(kRootPath, {0}), ElementsAre(0, 1, 2));
  EXPECT_THAT(allowed(a, {0}), ElementsAre(1));
  EXPECT_THAT(allowed(a, {2}), ElementsAre(3));
  EXPECT_THAT(allowed(a, {0, 1}), ElementsAre(3));
  EXPECT_THAT(allowed(a, {3}), ElementsAre(-1));
  EXPECT_EQ(paths.format_state(paths.Extend(a, 3)), OutputFormat::kBroken);
  EXPECT_EQ(paths.format_state(paths.Extend(kRootPath, 1)), OutputFormat::kBroken);
  // With penalties the path has its tokens, too.
  params.sampling.presence_penalty = 1;
  EXPECT_THAT(MakeRowPath(params, paths, a, {0}).tokens, ElementsAre(0, 0));
  EXPECT_THAT(allowed(a, {0}), ElementsAre(1));
}

}  // namespace
}  // namespace coppice::decoding
