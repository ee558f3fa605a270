// `logprobs`, `echo` and `beam_mass` through a whole coordinator, with a fake replica that scores
// every token by its id.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "absl/strings/str_replace.h"
#include "tests/coordinator/cluster_fixture.h"
#include "tests/testing/decoding_message.h"

namespace coppice::coordinator {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// -0.01 times the id; the alternatives are the ids that follow.
void Score(TokenId token, int top, proto::TokenScore* score) {
  score->set_log_prob(token == 'z' ? -std::numeric_limits<double>::infinity() : -0.01 * token);
  for (int i = 1; i <= top; ++i) {
    score->add_top_tokens(token + i > 255 ? 0 : token + i);
    score->add_top_log_probs(-0.01 * token - i);
  }
}

// Scores the prompt in two updates, says "b" as stable, and ends: one hypothesis, or two.
std::vector<proto::SequenceUpdate> ScoredUpdates(const proto::StartSequence& start,
                                                 const std::string& first,
                                                 const std::string& second) {
  std::vector<proto::SequenceUpdate> updates;
  const int top = start.logprobs();
  for (int half = 0; start.score_prompt() && half < 2; ++half) {
    updates.emplace_back();
    const int middle = start.prompt_size() / 2;
    for (int i = half == 0 ? 1 : middle; i < (half == 0 ? middle : start.prompt_size()); ++i)
      Score(start.prompt(i), top, updates.back().add_prompt_scores());
  }
  const auto add_hypothesis = [&](const std::string& text, double joint, bool finished) {
    proto::Hypothesis* hypothesis = updates.back().add_hypotheses();
    // A stop string ends it where its text does, without a token of its own.
    const bool eos = finished && start.decoding().stop_strings().empty();
    *hypothesis = MakeHypothesis(Bytes(text, eos), joint, finished);
    for (const TokenId token : hypothesis->tokens()) {
      if (start.has_logprobs()) Score(token, top, hypothesis->add_scores());
    }
  };
  if (!start.score_only()) {
    updates.emplace_back();
    updates.back().add_stable_tokens(first[0]);
    if (start.has_logprobs()) Score(first[0], top, updates.back().add_stable_scores());
  }
  updates.emplace_back();
  updates.back().set_finished(true);
  *updates.back().mutable_stats() = MakeStats();
  if (start.score_only()) {
    DecodingStats stats;
    stats.method = "gumbel_coupling";
    *updates.back().mutable_stats() = proto::StatsToMessage(stats);
    *updates.back().add_hypotheses() = proto::HypothesisToMessage(decoding::Hypothesis());
    return updates;
  }
  add_hypothesis(first, -1, true);
  if (test::ParameterNamed("num_hypotheses", start.decoding()).integer() > 1) {
    add_hypothesis(second, -2, true);
    if (test::ParameterNamed("num_hypotheses", start.decoding()).integer() > 2)
      add_hypothesis("bz", -3, false);
  }
  return updates;
}

std::vector<proto::SequenceUpdate> Scoring(const proto::StartSequence& start) {
  return ScoredUpdates(start, "b\xe2\x82\xac!", "beast");
}

class LogprobsServingTest : public ClusterTest {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    chat_template_ = "{% for m in messages %}{{ m.content }}{% endfor %}";
    StartCluster();
    worker_ = Join("replica-0", Scoring);
    WaitReady();
  }
  json Complete(const std::string& body, const char* path = "/v1/completions") {
    const RawAnswer answer = Ask(absl::StrReplaceAll(Post(body), {{"/v1/completions", path}}));
    EXPECT_EQ(answer.status, 200) << answer.body;
    return json::parse(answer.body, nullptr, false);
  }
  std::unique_ptr<FakeWorker> worker_;
};

TEST_F(LogprobsServingTest, ArraysHaveAnEntryForEveryToken) {
  const json answer = Complete(R"({"prompt": "hi", "logprobs": 2, "return_token_ids": true})");
  const json& shown = answer["choices"][0]["logprobs"];
  // 'b', the three bytes of a euro sign, '!', EOS.
  EXPECT_EQ(shown["tokens"], json({"b", "bytes:\\xe2", "bytes:\\x82", "bytes:\\xac", "!", "</s>"}));
  EXPECT_EQ(shown["text_offset"], json({0, 1, 1, 1, 2, 3}));
  EXPECT_EQ(shown["token_logprobs"][0], -0.98);
  EXPECT_EQ(shown["top_logprobs"][0], json({{"c", -1.98}, {"d", -2.98}, {"b", -0.98}}));
  EXPECT_EQ(shown["token_logprobs"].size(), 6);
  EXPECT_EQ(shown["top_logprobs"].size(), 6);
  EXPECT_TRUE(Complete(R"({"prompt": "hi"})")["choices"][0]["logprobs"].is_null());
  const json none = Complete(R"({"prompt": "hi", "logprobs": 0})");
  EXPECT_EQ(none["choices"][0]["logprobs"]["top_logprobs"][0], json({{"b", -0.98}}));
}

TEST_F(LogprobsServingTest, TokensAreCalledByTheirIdsIfAsked) {
  const json answer = Complete(
      R"({"prompt": "hi", "logprobs": 2, "return_token_ids": true, "return_tokens_as_token_ids": true})");
  const json& choice = answer["choices"][0];
  const json& shown = choice["logprobs"];
  const auto name = [](int id) { return absl::StrCat("token_id:", id); };
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(shown["tokens"][i], name(choice["token_ids"][i]));
  const int b = choice["token_ids"][0];
  EXPECT_EQ(shown["top_logprobs"][0],
            json({{name(b + 1), -1.98}, {name(b + 2), -2.98}, {name(b), -0.98}}));
  EXPECT_EQ(shown["text_offset"], json({0, 1, 1, 1, 2, 3}));

  const json chat = Complete(
      R"({"messages": [{"role": "user", "content": "hi"}], "logprobs": true, "top_logprobs": 1, "return_tokens_as_token_ids": true})",
      "/v1/chat/completions");
  const json& first = chat["choices"][0]["logprobs"]["content"][0];
  EXPECT_EQ(first["token"], name(b));
  EXPECT_EQ(first["bytes"], json({'b'}));
  EXPECT_EQ(first["top_logprobs"],
            json({{{"token", name(b + 1)}, {"logprob", -1.98}, {"bytes", {'c'}}}}));
}

TEST_F(LogprobsServingTest, ChatHasItsOwnShape) {
  const json answer = Complete(
      R"({"messages": [{"role": "user", "content": "hi"}], "logprobs": true, "top_logprobs": 1})",
      "/v1/chat/completions");
  const json& shown = answer["choices"][0]["logprobs"];
  ASSERT_EQ(shown["content"].size(), 6);
  EXPECT_EQ(shown["content"][0]["token"], "b");
  EXPECT_EQ(shown["content"][0]["logprob"], -0.98);
  EXPECT_EQ(shown["content"][0]["bytes"], json({'b'}));
  EXPECT_EQ(shown["content"][0]["top_logprobs"],
            json({{{"token", "c"}, {"logprob", -1.98}, {"bytes", {'c'}}}}));
  EXPECT_EQ(shown["content"][1]["bytes"], json({0xe2}));
  EXPECT_TRUE(shown["refusal"].is_null());
}

TEST_F(LogprobsServingTest, EchoBeginsWithThePrompt) {
  const json answer = Complete(R"({"prompt": "hi", "logprobs": 1, "echo": true})");
  const json& choice = answer["choices"][0];
  EXPECT_EQ(choice["text"], "hib\xe2\x82\xac!");
  const json& shown = choice["logprobs"];
  EXPECT_EQ(shown["tokens"][0], "<s>");
  EXPECT_EQ(shown["tokens"][1], "h");
  EXPECT_TRUE(shown["token_logprobs"][0].is_null());
  EXPECT_TRUE(shown["top_logprobs"][0].is_null());
  EXPECT_EQ(shown["token_logprobs"][1], -1.04);
  EXPECT_EQ(shown["token_logprobs"][3], -0.98);
  EXPECT_EQ(shown["text_offset"], json({0, 0, 1, 2, 3, 3, 3, 4, 5}));
  EXPECT_EQ(answer["usage"]["completion_tokens"], 6);
  EXPECT_EQ(Complete(R"({"prompt": "hi", "echo": true})")["choices"][0]["text"],
            "hib\xe2\x82\xac!");
}

TEST_F(LogprobsServingTest, MaxTokensZeroOnlyScores) {
  const json answer = Complete(
      R"({"prompt": ["hi", "you"], "max_tokens": 0, "echo": true, "logprobs": 0, "n": 2})");
  ASSERT_EQ(answer["choices"].size(), 4);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(answer["choices"][i]["index"], i);
    EXPECT_EQ(answer["choices"][i]["text"], i < 2 ? "hi" : "you");
    EXPECT_EQ(answer["choices"][i]["finish_reason"], "length");
    EXPECT_EQ(answer["choices"][i]["logprobs"]["tokens"].size(), i < 2 ? 3 : 4);
  }
  EXPECT_EQ(answer["usage"]["completion_tokens"], 0);
  EXPECT_EQ(Metric("coppice_prompt_tokens_total{model_name=\"demo\"}"), 7);
  EXPECT_EQ(Metric("coppice_generation_tokens_total{model_name=\"demo\"}"), 0);
  const json beams =
      Complete(R"({"prompt": "hi", "max_tokens": 0, "echo": true, "use_beam_search": true})");
  EXPECT_EQ(beams["choices"].size(), 1);
  EXPECT_EQ(beams["choices"][0]["text"], "hi");
}

TEST_F(LogprobsServingTest, AnImpossibleTokenIsMinus9999) {
  const json answer =
      Complete(R"({"prompt": "hi", "logprobs": 1, "use_beam_search": true, "n": 3})");
  EXPECT_EQ(answer["choices"][2]["logprobs"]["token_logprobs"], json({-0.98, -9999.0}));
}

TEST_F(LogprobsServingTest, StreamsConcatenateToThePlainAnswer) {
  for (const std::string fields :
       {R"("seed": 2)", R"("use_beam_search": true, "n": 2)", R"("echo": true, "stop": "!")"}) {
    SCOPED_TRACE(fields);
    const std::string body = R"({"prompt": "hi", "logprobs": 2, )" + fields;
    const json plain = Complete(body + "}");
    std::map<int, json> tokens, logprobs, offsets;
    std::map<int, std::string> text;
    double mass = -1;
    const std::string stream = Ask(Post(body + R"(, "stream": true})")).body;
    for (size_t at = 0; (at = stream.find("data: {", at)) != std::string::npos; ++at) {
      const json event = json::parse(stream.substr(at + 6, stream.find("\n\n", at) - at - 6));
      if (event.contains("beam_mass")) mass = event["beam_mass"];
      for (const json& choice : event["choices"]) {
        const int index = choice["index"];
        text[index] += choice["text"].get<std::string>();
        const json& shown = choice["logprobs"];
        for (const json& token : shown["tokens"]) tokens[index].push_back(token);
        for (const json& value : shown["token_logprobs"]) logprobs[index].push_back(value);
        for (const json& offset : shown["text_offset"]) offsets[index].push_back(offset);
      }
    }
    for (const json& choice : plain["choices"]) {
      EXPECT_EQ(text[choice["index"]], choice["text"]);
      EXPECT_EQ(tokens[choice["index"]], choice["logprobs"]["tokens"]);
      EXPECT_EQ(logprobs[choice["index"]], choice["logprobs"]["token_logprobs"]);
      EXPECT_EQ(offsets[choice["index"]], choice["logprobs"]["text_offset"]);
    }
    EXPECT_EQ(mass, plain.value("beam_mass", -1.0));
  }
}

// The third has not ended: what it would still become is not known.
TEST_F(LogprobsServingTest, BeamMassAddsUpTheChoicesThatHaveEnded) {
  const json answer = Complete(R"({"prompt": "hi", "use_beam_search": true, "n": 3})");
  EXPECT_NEAR(answer["beam_mass"].get<double>(), std::exp(-1.0) + std::exp(-2.0), 1e-12);
  const json two = Complete(R"({"prompt": ["a", "b"], "use_beam_search": true})");
  ASSERT_EQ(two["beam_mass"].size(), 2);
  EXPECT_NEAR(two["beam_mass"][1].get<double>(), std::exp(-1.0), 1e-12);
  EXPECT_FALSE(Complete(R"({"prompt": "hi"})").contains("beam_mass"));
}

// A replica that leaves scores out, or sends too many, is named.
TEST_F(LogprobsServingTest, AReplicaThatDoesNotScoreWhatWasAskedIsAnError) {
  worker_.reset();
  const auto silent = Join("silent", [](const proto::StartSequence& start) {
    proto::StartSequence plain = start;
    plain.set_score_prompt(false);
    return Scoring(plain);
  });
  WaitReady();
  const RawAnswer answer = Ask(Post(R"({"prompt": "hi", "logprobs": 1, "echo": true})"));
  EXPECT_EQ(answer.status, 500);
  EXPECT_THAT(answer.body, HasSubstr("prompt_scores"));
}

}  // namespace
}  // namespace coppice::coordinator
