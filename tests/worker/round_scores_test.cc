// Scores of answers' tokens (`logprobs`) from whole rounds with real (tiny) models: for every
// method and decoding, with drafts and without, from whole rows and from candidate lists, they are
// the raw log-probabilities of a double-precision forward pass.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "decoding/method.h"
#include "tests/model/reference_model.h"
#include "tests/testing/checked_replica.h"
#include "tests/testing/method_case.h"
#include "tests/testing/temp_dir.h"
#include "tests/testing/tiny_llama.h"

namespace coppice::worker {
namespace {

constexpr int kVocab = 1400, kTop = 3;  // candidate lists are worth it
constexpr TokenId kEos = 2;
constexpr double kTolerance = 1e-5;  // nats: f32 against f64
const std::vector<TokenId> kPrompt = {5, 600, 7, 8, 1399};

test::TinyLlama Tiny(uint64_t seed) {
  test::TinyLlamaOptions options;
  options.vocab = kVocab;
  options.seed = seed;
  return test::MakeTinyLlama(options);
}

// log softmax of the rows after prompt and tokens.
class Reference {
 public:
  explicit Reference(test::TinyLlama model) : model_(std::move(model)) {}
  std::vector<std::vector<double>> LogProbs(const std::vector<TokenId>& tokens) const {
    std::vector<TokenId> all = kPrompt;
    all.insert(all.end(), tokens.begin(), tokens.end());
    std::vector<std::vector<double>> rows = model::ReferenceLogits(model_, all);
    rows.erase(rows.begin(), rows.begin() + static_cast<int>(kPrompt.size()) - 1);
    for (std::vector<double>& row : rows) {
      const double max = *std::max_element(row.begin(), row.end());
      double sum = 0;
      for (const double logit : row) sum += std::exp(logit - max);
      for (double& logit : row) logit -= max + std::log(sum);
    }
    return rows;
  }

 private:
  const test::TinyLlama model_;
};

void ExpectScored(const std::vector<TokenId>& tokens, const std::vector<TokenScore>& scores,
                  const Reference& reference) {
  ASSERT_EQ(scores.size(), tokens.size());
  const auto rows = reference.LogProbs(tokens);
  for (size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_NEAR(scores[i].log_prob, rows[i][tokens[i]], kTolerance) << "token " << i;
    ASSERT_EQ(scores[i].top.size(), static_cast<size_t>(kTop));
    std::vector<double> sorted = rows[i];
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    for (int k = 0; k < kTop; ++k) {
      EXPECT_NEAR(scores[i].top[k].second, sorted[k], kTolerance) << "token " << i << " rank " << k;
      EXPECT_NEAR(rows[i][scores[i].top[k].first], sorted[k], kTolerance);
    }
  }
}

class RoundScoresTest : public ::testing::TestWithParam<test::MethodCase> {
 protected:
  RoundScoresTest() {
    test::WriteTinyLlama(Tiny(1), target_.path());
    test::WriteTinyLlama(Tiny(2), draft_.path());
  }
  static decoding::DecodingParams Params(uint64_t seed) {
    decoding::DecodingParams params = GetParam().Params(/*max_tokens=*/9, kEos, seed);
    params.min_tokens = seed == 1 ? 0 : 3;
    if (GetParam().fixed_sampling()) return params;
    // Scores know neither temperature nor cut nor bias.
    params.sampling.temperature = seed % 3 == 0 ? 1 : 0.4;
    params.sampling.top_k = seed % 3 == 1 ? 12 : 0;
    params.sampling.mode =
        seed % 2 == 0 ? sampling::SamplingScope::kRow : sampling::SamplingScope::kRowRaw;
    if (seed % 3 != 2) params.sampling.logit_bias = {{3, 6.0}, {700, 5.0}};
    return params;
  }
  // Of a draft; 0: none.
  static int Width(int depth) { return depth == 0 ? 0 : GetParam().DraftWidth(4); }
  test::TempDir target_, draft_;
};

TEST_P(RoundScoresTest, AreTheRawLogProbabilitiesOfTheTarget) {
  const Reference reference(Tiny(1));
  for (const bool listed : {false, true}) {
    for (const std::string& draft : {target_.path(), draft_.path()}) {
      lab::LocalReplicaOptions options = test::CheckedReplica::OptionsOf(target_.path(), draft);
      options.always_list = listed;
      test::CheckedReplica replica(options);
      for (uint64_t seed = 0; seed < 3; ++seed) {
        const decoding::DecodingParams params = Params(seed);
        if (!decoding::CheckServes(*params.method, params).ok()) continue;
        SCOPED_TRACE(testing::Message() << "listed " << listed << " seed " << seed);
        const bool drafts = params.method->form != decoding::DraftForm::kNone;
        for (const int depth : drafts ? std::vector<int>{0, 3} : std::vector<int>{0}) {
          const auto outcome = replica.Decode(kPrompt, params, Width(depth), depth, kTop);
          ASSERT_FALSE(outcome.hypotheses.empty());
          for (size_t h = 0; h < outcome.hypotheses.size(); ++h)
            ExpectScored(outcome.hypotheses[h].tokens, outcome.scores[h], reference);
          if (HasFailure()) return;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, RoundScoresTest,
                         ::testing::ValuesIn(test::MethodCases([](const decoding::MethodRow&) {
                           return true;
                         })),
                         [](const auto& info) { return info.param.Name(); });

// With a method that answers alike with drafts and without, so are the scores, bit for bit.
TEST(RoundScoresEqualityTest, DraftsChangeNoBit) {
  test::TempDir target, draft;
  test::WriteTinyLlama(Tiny(1), target.path());
  test::WriteTinyLlama(Tiny(2), draft.path());
  test::CheckedReplica replica(target.path(), draft.path());
  int compared = 0;
  for (const decoding::MethodRow& row : decoding::Methods()) {
    if (!row.reproducible || row.form == decoding::DraftForm::kNone) continue;
    for (const sampling::DecodingKind kind : row.serves) {
      decoding::DecodingParams params;
      params.kind = kind;
      params.method = &row;
      params.beam_width = params.num_hypotheses =
          kind == sampling::DecodingKind::kMultinomial ? 1 : 4;
      params.max_tokens = 12;
      if (row.greedy_only) params.sampling.temperature = 0;
      if (!decoding::CheckServes(row, params).ok()) continue;
      const auto plain = replica.Decode(kPrompt, params, 0, 0, kTop);
      const auto drafted = replica.Decode(kPrompt, params, 4, 3, kTop);
      ASSERT_EQ(drafted.scores.size(), plain.scores.size());
      for (size_t h = 0; h < plain.scores.size(); ++h) {
        ASSERT_EQ(drafted.hypotheses[h].tokens, plain.hypotheses[h].tokens) << row.name;
        for (size_t i = 0; i < plain.scores[h].size(); ++i) {
          EXPECT_EQ(drafted.scores[h][i].log_prob, plain.scores[h][i].log_prob);
          EXPECT_EQ(drafted.scores[h][i].top, plain.scores[h][i].top);
          ++compared;
        }
      }
    }
  }
  EXPECT_GT(compared, 100);
}

}  // namespace
}  // namespace coppice::worker
