// The scores of prompts and answers that the leader reports (`logprobs`, `echo`): chunk by chunk,
// beside other sequences, and only where they are asked for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/model/reference_model.h"
#include "tests/worker/engine_fixture.h"

namespace coppice::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr double kTolerance = 1e-5;  // nats: f32 against f64

class EngineScoresTest : public EngineTest {
 protected:
  static std::vector<TokenId> Prompt(int length, int seed) {
    std::vector<TokenId> prompt(length);
    for (int i = 0; i < length; ++i) prompt[i] = (seed * 31 + i * 17) % kVocab;
    return prompt;
  }
  // log p of each token after those before it, from the second on.
  static std::vector<double> Reference(const std::vector<TokenId>& tokens) {
    const auto rows = model::ReferenceLogits(Tiny(), tokens);
    std::vector<double> scores;
    for (size_t i = 1; i < tokens.size(); ++i) {
      double sum = 0;
      for (const double logit : rows[i - 1]) sum += std::exp(logit);
      scores.push_back(rows[i - 1][tokens[i]] - std::log(sum));
    }
    return scores;
  }
  proto::StartSequence ScoreOnly(uint64_t id, const std::vector<TokenId>& prompt, int top = 2) {
    decoding::DecodingParams params = Params();
    params.max_tokens = 1;
    proto::StartSequence start = MakeStart(id, params, prompt);
    start.set_logprobs(top);
    start.set_score_prompt(true);
    start.set_score_only(true);
    return start;
  }
  void ExpectScored(uint64_t id, const std::vector<TokenId>& prompt, size_t top = 2) {
    const std::vector<double> want = Reference(prompt);
    const std::vector<proto::TokenScore>& got = coordinator_.prompt_scores(id);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(got[i].log_prob(), want[i], kTolerance) << "sequence " << id << " token " << i;
      EXPECT_EQ(static_cast<size_t>(got[i].top_tokens_size()), top);
    }
  }
};

// Chunks of 32 rows: prompts that fit, that need two or three, and that fill the context; twice, so
// that the second could come from the prefix cache; and a single token, which has no score.
TEST_F(EngineScoresTest, PromptsOfAnyLengthAreScoredAlike) {
  uint64_t id = 0;
  const std::vector<int> lengths = {1, 2, 17, 32, 33, 34, kPositions};
  for (int again = 0; again < 2; ++again) {
    const uint64_t first = id;
    for (const int length : lengths)
      coordinator_.Start(ScoreOnly(++id, Prompt(length, length), again == 0 ? 2 : 0));
    Run();
    ASSERT_THAT(coordinator_.errors(), IsEmpty());
    for (size_t i = 0; i < lengths.size(); ++i) {
      ExpectScored(first + 1 + i, Prompt(lengths[i], lengths[i]), again == 0 ? 2 : 0);
      const proto::SequenceUpdate& end = coordinator_.finished().at(first + 1 + i);
      ASSERT_EQ(end.hypotheses_size(), 1);
      EXPECT_EQ(end.hypotheses(0).tokens_size(), 0);
      EXPECT_FALSE(end.hypotheses(0).finished());
      EXPECT_EQ(end.stats().cached_tokens(), 0u);
      EXPECT_EQ(end.stats().rounds(), 0u);
    }
  }
}

// The answer's tokens are scored by the rows that decide them, the prompt's by rows of prefill.
TEST_F(EngineScoresTest, PromptAndAnswerAreScoredInOneRun) {
  decoding::DecodingParams params = Params();
  params.kind = sampling::DecodingKind::kBeamSearch;
  params.max_tokens = 12;
  uint64_t id = 0;
  for (const bool echo : {true, false}) {
    proto::StartSequence start = MakeStart(++id, params, Prompt(40, 3));
    start.set_logprobs(3);
    start.set_score_prompt(echo);
    coordinator_.Start(start);
    coordinator_.Start(MakeStart(id + 100, params, Prompt(40, 5)));  // not asked for
  }
  Run();
  ASSERT_THAT(coordinator_.errors(), IsEmpty());
  ExpectScored(1, Prompt(40, 3), 3);
  EXPECT_THAT(coordinator_.prompt_scores(2), IsEmpty());
  for (uint64_t scored : {1, 2}) {
    const proto::SequenceUpdate& end = coordinator_.finished().at(scored);
    ASSERT_EQ(end.hypotheses_size(), 3);
    for (const proto::Hypothesis& hypothesis : end.hypotheses()) {
      std::vector<TokenId> tokens = Prompt(40, 3);
      tokens.insert(tokens.end(), hypothesis.tokens().begin(), hypothesis.tokens().end());
      const std::vector<double> want = Reference(tokens);
      ASSERT_EQ(hypothesis.scores_size(), hypothesis.tokens_size());
      double sum = 0;
      for (int i = 0; i < hypothesis.scores_size(); ++i) {
        EXPECT_NEAR(hypothesis.scores(i).log_prob(), want[39 + i], kTolerance);
        EXPECT_EQ(hypothesis.scores(i).top_tokens_size(), 3);
        sum += hypothesis.scores(i).log_prob();
      }
      EXPECT_NEAR(hypothesis.joint_log_probability(), sum, 1e-9);
    }
    EXPECT_EQ(coordinator_.finished().at(scored + 100).hypotheses(0).scores_size(), 0);
  }
}

TEST_F(EngineScoresTest, StableTokensComeWithTheirScores) {
  decoding::DecodingParams params = Params();
  params.beam_width = params.num_hypotheses = 1;
  params.max_tokens = 20;
  proto::StartSequence start = MakeStart(1, params);
  start.set_logprobs(1);
  coordinator_.Start(start);
  Run();
  const proto::Hypothesis& answer = coordinator_.finished().at(1).hypotheses(0);
  const std::vector<proto::TokenScore>& stable = coordinator_.stable_scores(1);
  ASSERT_EQ(stable.size(), coordinator_.stable(1).size());
  for (size_t i = 0; i < stable.size(); ++i) {
    EXPECT_EQ(stable[i].SerializeAsString(),
              answer.scores(static_cast<int>(i)).SerializeAsString());
  }
}

TEST_F(EngineScoresTest, WhatCannotBeScoredIsRefusedByName) {
  for (const int top : {-1, 21}) {
    coordinator_.Start(ScoreOnly(static_cast<uint64_t>(10 + top), Prompt(4, 1), top));
  }
  proto::StartSequence unscored = ScoreOnly(50, Prompt(4, 1));
  unscored.clear_logprobs();
  coordinator_.Start(unscored);
  coordinator_.Start(ScoreOnly(51, Prompt(kPositions + 1, 1)));
  Run();
  ASSERT_EQ(coordinator_.errors().size(), 4u);
  EXPECT_THAT(coordinator_.errors().at(9).error_message(), HasSubstr("logprobs"));
  EXPECT_THAT(coordinator_.errors().at(31).error_message(), HasSubstr("logprobs"));
  EXPECT_THAT(coordinator_.errors().at(50).error_message(), HasSubstr("score_prompt"));
  EXPECT_EQ(coordinator_.errors().at(51).error_code(), "context_length_exceeded");
}

// The prompt's rows and the root of the first round are in one step; only one error is reported.
TEST_F(EngineScoresTest, ARowThatIsNoNumberEndsItsSequence) {
  test::TinyLlama broken = Tiny();
  broken.tensors.at("lm_head.weight").values[5] = std::numeric_limits<float>::quiet_NaN();
  test::TempDir dir;
  const auto runner = test::LoadTinyRunner(broken, dir.path(), single_.get());
  proto::StartSequence start = MakeStart(1, Params(), Prompt(8, 1));
  start.set_logprobs(1);
  start.set_score_prompt(true);
  coordinator_.Start(start);
  coordinator_.Start(ScoreOnly(2, Prompt(8, 2)));
  RunOn(runner.get());
  ASSERT_EQ(coordinator_.errors().size(), 2u);
  for (const uint64_t id : {1, 2}) {
    EXPECT_THAT(coordinator_.errors().at(id).error_message(), HasSubstr("prompt row: token 0 is"));
  }
}

}  // namespace
}  // namespace coppice::worker
