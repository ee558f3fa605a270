#include "coordinator/request/request.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "decoding/method.h"
#include "tests/coordinator/request/request_fixture.h"
#include "tests/testing/decoding_message.h"

namespace coppice::coordinator {
namespace {

using nlohmann::json;

TEST_F(RequestTest, BeamsAnswerInOrderOfScore) {
  Request& request = Make(Beams(2));
  request.OnUpdate(0, Stable("a"), 1);
  EXPECT_FALSE(request.ended());
  request.OnUpdate(0,
                   Finished({MakeHypothesis(Bytes("ab", true), -1, true),
                             MakeHypothesis(Bytes("ac"), -2, false)}),
                   2);
  ASSERT_TRUE(request.ended());
  const json choices = exchange_->body()["choices"];
  EXPECT_EQ(choices[0]["text"], "ab");
  EXPECT_EQ(choices[0]["finish_reason"], "stop");
  EXPECT_EQ(choices[1]["index"], 1);
  EXPECT_EQ(choices[1]["text"], "ac");
  EXPECT_EQ(choices[1]["finish_reason"], "length");
  const json timings = exchange_->body()["timings"];
  EXPECT_EQ(timings["queue_ms"], 500.0);
  EXPECT_EQ(timings["first_token_ms"], 1000.0);
  EXPECT_EQ(timings["total_ms"], 2000.0);
}

TEST_F(RequestTest, StreamShowsAllChoicesInTheLastEvent) {
  GenerateRequest generate = Beams(2);
  generate.stream = true;
  Request& request = Make(generate);
  request.OnUpdate(0, Stable("a"), 1);
  request.OnUpdate(0,
                   Finished({MakeHypothesis(Bytes("ab", true), -1, true),
                             MakeHypothesis(Bytes("ac"), -2, false)}),
                   2);
  EXPECT_EQ(exchange_->Streamed(0), "ab");
  EXPECT_EQ(exchange_->Streamed(1), "ac");
  EXPECT_EQ(exchange_->events.size(), 3);
  EXPECT_EQ(exchange_->events.back(), "[DONE]");
  EXPECT_EQ(exchange_->ended_cleanly, true);
}

// The replica is lost after two tokens. The next one scores the prompt and all tokens again.
TEST_F(RequestTest, AReplayRepeatsNoScore) {
  GenerateRequest generate;
  generate.logprobs = 0;
  generate.echo = true;
  generate.prompts = {Bytes("pq")};
  Request& request = Make(generate);
  const auto add = [](int count, auto* scores) {
    for (int i = 0; i < count; ++i) *scores->Add() = proto::ScoreToMessage({-0.5 * (i + 1), {}});
  };
  for (const char* text : {"ab", "abc"}) {
    proto::SequenceUpdate prompt;
    add(1, prompt.mutable_prompt_scores());
    EXPECT_TRUE(request.OnUpdate(0, prompt, 1));
    proto::SequenceUpdate stable = Stable(text);
    add(stable.stable_tokens_size(), stable.mutable_stable_scores());
    EXPECT_TRUE(request.OnUpdate(0, stable, 1));
    if (text[2] != '\0') break;
    ASSERT_TRUE(request.Requeue(0));
    request.Start(0, 9, "replica-1", "cop-0", 2);
  }
  proto::SequenceUpdate end = Finished({MakeHypothesis(Bytes("abcd"), -1, false)});
  add(4, end.mutable_hypotheses(0)->mutable_scores());
  EXPECT_TRUE(request.OnUpdate(0, end, 3));
  const json shown = exchange_->body()["choices"][0]["logprobs"];
  EXPECT_EQ(shown["tokens"], json({"p", "q", "a", "b", "c", "d"}));
  EXPECT_EQ(shown["token_logprobs"], json({nullptr, -0.5, -0.5, -1.0, -1.5, -2.0}));
}

TEST_F(RequestTest, TokensBeforeTheScoresOfTheirPromptAreRefused) {
  GenerateRequest generate;
  generate.logprobs = 0;
  generate.echo = true;
  generate.prompts = {Bytes("pq")};
  proto::SequenceUpdate stable = Stable("a");
  *stable.add_stable_scores() = proto::ScoreToMessage({-1, {}});
  EXPECT_FALSE(Make(generate).OnUpdate(0, stable, 1));
  EXPECT_EQ(request_->error()->message, "replica-0: prompt_scores: tokens come before all of them");
}

TEST_F(RequestTest, ChangedStableTokensAreAnError) {
  Request& request = Make(Beams(1));
  request.OnUpdate(0, Stable("ax"), 1);
  request.OnUpdate(0, Finished({MakeHypothesis(Bytes("ab"), -1, false)}), 2);
  EXPECT_EQ(exchange_->reply->status, 500);
}

TEST_F(RequestTest, BestOfReturnsTheBestScores) {
  GenerateRequest generate;
  generate.n = 2;
  generate.samples = 3;
  generate.params.seed = 10;
  Request& request = Make(generate);
  const double joints[] = {-3, -1, -2};
  for (int i = 0; i < 3; ++i) {
    request.OnUpdate(
        i, Finished({MakeHypothesis(Bytes(std::string(1, 'a' + i)), joints[i], false)}), 1);
  }
  const json body = exchange_->body();
  ASSERT_EQ(body["choices"].size(), 2);
  EXPECT_EQ(body["choices"][0]["text"], "b");
  EXPECT_EQ(body["choices"][0]["index"], 0);
  EXPECT_EQ(body["choices"][0]["seed"], 11);
  EXPECT_EQ(body["choices"][1]["text"], "c");
  EXPECT_EQ(body["usage"]["completion_tokens"], 2);
}

TEST_F(RequestTest, CachedTokensCountOnceForAPrompt) {
  GenerateRequest generate;
  generate.n = generate.samples = 2;
  Request& request = Make(generate);
  for (int i = 0; i < 2; ++i) {
    proto::SequenceUpdate update = Finished({MakeHypothesis(Bytes("a"), -1, false)});
    update.mutable_stats()->set_cached_tokens(16);
    request.OnUpdate(i, update, 1);
  }
  EXPECT_EQ(exchange_->body()["usage"]["prompt_tokens_details"]["cached_tokens"], 16);
}

TEST_F(RequestTest, SamplesStartWithTheirSeeds) {
  GenerateRequest generate;
  generate.n = generate.samples = 2;
  generate.params.seed = 0xffffffffffffffffull;
  const Request& request = Make(generate);
  const auto seed = [&](int sample) {
    return test::ParameterNamed("seed", request.StartMessage(sample).decoding()).seed();
  };
  EXPECT_EQ(seed(0), 0xffffffffffffffffull);
  EXPECT_EQ(seed(1), 0);
  EXPECT_EQ(request.StartMessage(1).prompt_size(), 1);
}

TEST_F(RequestTest, StopReasonIsTheRequestsOwnIdButNotEos) {
  GenerateRequest generate;
  generate.own_stop_ids = {'b'};
  Make(generate).OnUpdate(0, Finished({MakeHypothesis(Bytes("ab"), -1, true)}), 1);
  EXPECT_EQ(exchange_->body()["choices"][0]["stop_reason"], 'b');
  Make(generate).OnUpdate(0, Finished({MakeHypothesis(Bytes("a", true), -1, true)}), 1);
  EXPECT_TRUE(exchange_->body()["choices"][0]["stop_reason"].is_null());
}

TEST_F(RequestTest, AReplaySkipsWhatWasShown) {
  GenerateRequest generate;
  generate.stream = true;
  Request& request = Make(generate);
  request.OnUpdate(0, Stable("abc"), 1);
  ASSERT_TRUE(request.Requeue(0));
  EXPECT_EQ(request.sequences()[0].id, 0);
  request.Start(0, 9, "replica-1", "cop-0", 2);
  request.OnUpdate(0, Stable("ab"), 3);
  request.OnUpdate(0, Stable("cd"), 3);
  request.OnUpdate(0, Finished({MakeHypothesis(Bytes("abcde", true), -1, true)}), 4);
  EXPECT_EQ(exchange_->Streamed(0), "abcde");
}

TEST_F(RequestTest, AReplayThatSaysOtherwiseFails) {
  GenerateRequest generate;
  generate.stream = true;
  Request& request = Make(generate);
  request.OnUpdate(0, Stable("abc"), 1);
  ASSERT_TRUE(request.Requeue(0));
  request.Start(0, 9, "replica-1", "cop-0", 2);
  request.OnUpdate(0, Stable("ax"), 3);
  EXPECT_EQ(request.error()->code, "replica_lost");
  EXPECT_EQ(exchange_->ended_cleanly, false);
}

TEST_F(RequestTest, WithoutReproductionOnlyAnUnshownRequestIsReplayed) {
  GenerateRequest generate = Beams(1);
  generate.params.kind = sampling::DecodingKind::kBeamSampling;
  generate.params.method = decoding::FindMethod("dsbd");
  generate.stream = true;
  EXPECT_TRUE(Make(generate).Requeue(0));
  Request& shown = Make(generate);
  shown.OnUpdate(0, Stable("a"), 1);
  EXPECT_FALSE(shown.Requeue(0));
  generate.stream = false;
  Request& plain = Make(generate);
  plain.OnUpdate(0, Stable("abc"), 1);
  EXPECT_TRUE(plain.Requeue(0));
  plain.Start(0, 9, "replica-1", "cop-0", 2);
  plain.OnUpdate(0, Finished({MakeHypothesis(Bytes("xy"), -1, false)}), 4);
  EXPECT_EQ(exchange_->body()["choices"][0]["text"], "xy");
}

// It has shown nothing, so the new run may say what it likes.
TEST_F(RequestTest, AnUnshownReplayNeedNotRepeatTokens) {
  Request& request = Make(GenerateRequest());
  request.OnUpdate(0, Stable("abc"), 1);
  ASSERT_TRUE(request.Requeue(0));
  request.Start(0, 9, "replica-1", "cop-0", 2);
  EXPECT_TRUE(request.OnUpdate(0, Stable("ax"), 3));
  EXPECT_TRUE(request.OnUpdate(0, Finished({MakeHypothesis(Bytes("axy"), -1, false)}), 4));
  EXPECT_EQ(exchange_->body()["choices"][0]["text"], "axy");
}

class RequestTokensTest : public RequestTest {
 protected:
  using Tokens = std::pair<int64_t, int64_t>;  // of the prompt, generated
  Tokens Take(Request& request, int index, const proto::SequenceUpdate& update) {
    request.OnUpdate(index, update, 1);
    const Request::NewTokens tokens = request.TakeNewTokens(index);
    return {tokens.prompt, tokens.generated};
  }
};

TEST_F(RequestTokensTest, TokensAreNewOnce) {
  GenerateRequest generate;
  generate.prompts = {Bytes("pqr"), Bytes("st")};
  generate.n = generate.samples = 2;
  Request& request = Make(generate);
  EXPECT_EQ(Take(request, 1, {}), Tokens(0, 0));
  EXPECT_EQ(Take(request, 0, Stable("ab")), Tokens(3, 2));
  EXPECT_EQ(Take(request, 0, Stable("c")), Tokens(0, 1));
  EXPECT_EQ(Take(request, 1, Stable("d")), Tokens(0, 1));
  EXPECT_EQ(Take(request, 2, Finished({MakeHypothesis(Bytes("ef"), -1, false)})), Tokens(2, 2));
  EXPECT_EQ(Take(request, 0, Finished({MakeHypothesis(Bytes("abcde"), -1, false)})), Tokens(0, 2));
  EXPECT_EQ(request.generated_tokens(), 8);
}

TEST_F(RequestTokensTest, BeamsBringTheStablePrefixAndThenTheRest) {
  GenerateRequest generate = Beams(2);
  generate.params.num_hypotheses = 3;
  Request& request = Make(generate);
  EXPECT_EQ(Take(request, 0, Stable("a")), Tokens(1, 1));
  EXPECT_EQ(Take(request, 0,
                 Finished({MakeHypothesis(Bytes("abc"), -1, false),
                           MakeHypothesis(Bytes("abd"), -2, false),
                           MakeHypothesis(Bytes("axy"), -3, false)})),
            Tokens(0, 5));  // two of the three are returned
}

TEST_F(RequestTokensTest, AReplayBringsOnlyWhatIsNew) {
  Request& request = Make(GenerateRequest());
  EXPECT_EQ(Take(request, 0, Stable("abc")), Tokens(1, 3));
  ASSERT_TRUE(request.Requeue(0));
  request.Start(0, 9, "replica-1", "cop-0", 2);
  EXPECT_EQ(Take(request, 0, Stable("ab")), Tokens(0, 0));
  EXPECT_EQ(Take(request, 0, Stable("cd")), Tokens(0, 1));
}

// Best of 3 with a NaN score. It must not reach the sort, since NaN has no order.
TEST_F(RequestTest, ANanScoreFailsTheRequestAndIsNamed) {
  GenerateRequest generate;
  generate.n = 2;
  generate.samples = 3;
  Request& request = Make(generate);
  EXPECT_TRUE(request.OnUpdate(0, Finished({MakeHypothesis(Bytes("a"), -1, false)}), 1));
  EXPECT_FALSE(request.OnUpdate(1, Finished({MakeHypothesis(Bytes("b"), NAN, false)}), 1));
  EXPECT_TRUE(request.ended());
  EXPECT_EQ(exchange_->reply->status, 500);
  EXPECT_EQ(request.error()->code, "internal_error");
  EXPECT_EQ(request.error()->message, "replica-0: hypotheses[0].joint_log_probability: is NaN");
  EXPECT_TRUE(request.OnUpdate(2, Finished({MakeHypothesis(Bytes("c"), NAN, false)}), 2));
}

TEST_F(RequestTest, WhatAReplicaCannotSayFailsTheRequest) {
  const auto error_of = [&](const proto::SequenceUpdate& update) {
    Request& request = Make(Beams(2));
    EXPECT_FALSE(request.OnUpdate(0, update, 1));
    EXPECT_EQ(exchange_->reply->status, 500);
    return request.error().value_or(ApiError()).message;
  };
  const proto::Hypothesis good = MakeHypothesis(Bytes("ab", true), -1, true);
  proto::SequenceUpdate update;
  update.add_stable_tokens(1 << 30);
  EXPECT_EQ(error_of(update), "replica-0: stable_tokens[0]: 1073741824 is not in [0, 258)");
  update.set_stable_tokens(0, -1);
  EXPECT_EQ(error_of(update), "replica-0: stable_tokens[0]: -1 is not in [0, 258)");
  EXPECT_EQ(error_of(Finished({good, MakeHypothesis({258}, -1, false)})),
            "replica-0: hypotheses[1].tokens[0]: 258 is not in [0, 258)");
  EXPECT_EQ(error_of(Finished({good, good, good})),
            "replica-0: hypotheses: length: 3 is not in [1, 2]");
  EXPECT_EQ(error_of(Finished({})), "replica-0: hypotheses: length: 0 is not in [1, 2]");
  update = Finished({good});
  update.mutable_stats()->set_plain_rounds(5);
  EXPECT_EQ(error_of(update), "replica-0: stats.plain_rounds: 5 is not in [0, 4]");
}

TEST_F(RequestTest, StableTokensEndAtMaxTokensOfEachRun) {
  GenerateRequest generate;
  generate.params.max_tokens = 3;
  Request& request = Make(generate);
  EXPECT_TRUE(request.OnUpdate(0, Stable("ab"), 1));
  ASSERT_TRUE(request.Requeue(0));
  request.Start(0, 9, "replica-1", "cop-0", 2);
  EXPECT_TRUE(request.OnUpdate(0, Stable("abc"), 3));
  EXPECT_FALSE(request.OnUpdate(0, Stable("d"), 4));
  EXPECT_EQ(request.error()->message, "replica-1: stable_tokens: length: 1 is not in [0, 0]");
}

TEST_F(RequestTest, AShorterAnswerThanTheStablePrefixIsRefused) {
  Request& request = Make(Beams(1));
  EXPECT_TRUE(request.OnUpdate(0, Stable("abc"), 1));
  EXPECT_FALSE(request.OnUpdate(0, Finished({MakeHypothesis(Bytes("ab"), -1, false)}), 2));
  EXPECT_EQ(request.error()->message,
            "replica-0: hypotheses[0].tokens: not what it had declared stable");
}

TEST_F(RequestTest, ErrorsOfTheReplicaKeepTheirCode) {
  proto::SequenceUpdate failed;
  failed.set_error_code("kv_capacity_exceeded");
  failed.set_error_message("needs 9 blocks, has 4");
  Make(GenerateRequest()).OnUpdate(0, failed, 1);
  EXPECT_EQ(exchange_->reply->status, 400);
  EXPECT_EQ(exchange_->body()["error"]["code"], "kv_capacity_exceeded");
  failed.set_error_code("boom");
  Make(GenerateRequest()).OnUpdate(0, failed, 1);
  EXPECT_EQ(exchange_->reply->status, 500);
  EXPECT_EQ(exchange_->body()["error"]["code"], "internal_error");
}

// ---- stop strings ----

TEST_F(RequestTest, BeamsThatStopStringsEndedAreCutAndKeepTheirScores) {
  GenerateRequest generate = Beams(3);
  generate.params.stop_strings = {"b", "zc"};
  Request& request = Make(generate);
  request.OnUpdate(
      0,
      Finished({MakeHypothesis(Bytes("aab"), -1, true), MakeHypothesis(Bytes("aazc"), -2, true),
                MakeHypothesis(Bytes("aazz"), -4, false)}),
      1);
  ASSERT_TRUE(request.ended());
  const json choices = exchange_->body()["choices"];
  EXPECT_EQ(choices[0]["text"], "aa");
  EXPECT_EQ(choices[0]["stop_reason"], "b");
  EXPECT_EQ(choices[0]["joint_logprob"], -1);
  EXPECT_EQ(choices[1]["text"], "aa");
  EXPECT_EQ(choices[1]["stop_reason"], "zc");
  EXPECT_EQ(choices[2]["text"], "aazz");
  EXPECT_EQ(choices[2]["finish_reason"], "length");
}

TEST_F(RequestTest, TheStopStringIsShownWhenAskedFor) {
  GenerateRequest generate = Beams(1);
  generate.params.stop_strings = {"bc"};
  generate.include_stop = true;
  Request& request = Make(generate);
  request.OnUpdate(0, Finished({MakeHypothesis(Bytes("abc"), -1, true)}), 1);
  EXPECT_EQ(exchange_->body()["choices"][0]["text"], "abc");
}

// While other beams go on, the best hypothesis may have ended: its text is shown up to the stop
// string and nothing after it.
TEST_F(RequestTest, AStablePrefixWithAStopStringWaitsForTheOtherBeams) {
  GenerateRequest generate = Beams(2);
  generate.params.stop_strings = {"bc"};
  generate.stream = true;
  Request& request = Make(generate);
  request.OnUpdate(0, Stable("aab"), 1);
  request.OnUpdate(0, Stable("c"), 2);
  EXPECT_FALSE(request.ended());
  request.OnUpdate(
      0,
      Finished({MakeHypothesis(Bytes("aabc"), -1, true), MakeHypothesis(Bytes("aaa"), -2, false)}),
      3);
  ASSERT_TRUE(request.ended());
  std::string text;
  for (const std::string& event : exchange_->events) {
    if (event == "[DONE]") continue;
    const json choice = json::parse(event)["choices"][0];
    if (choice["index"] == 0) text += choice["text"].get<std::string>();
  }
  EXPECT_EQ(text, "aa");
}

TEST_F(RequestTest, HypothesesThatEndElsewhereThanTheirTextAreRefused) {
  for (const proto::Hypothesis& wrong :
       {MakeHypothesis(Bytes("abc"), -1, false), MakeHypothesis(Bytes("aa"), -1, true)}) {
    GenerateRequest generate = Beams(1);
    generate.params.stop_strings = {"b"};
    Request& request = Make(generate);
    EXPECT_FALSE(request.OnUpdate(0, Finished({wrong}), 1));
    EXPECT_NE(request.error()->message.find("tokenizer"), std::string::npos);
  }
}

class RequestEnergyTest : public RequestTest {
 protected:
  static proto::SequenceUpdate With(proto::SequenceUpdate update, double joules) {
    update.set_energy_joules(joules);
    return update;
  }
  static proto::SequenceUpdate End(const std::string& text) {
    return Finished({MakeHypothesis(Bytes(text), -1, false)});
  }
  json usage() const { return exchange_->body()["usage"]; }
};

TEST_F(RequestEnergyTest, SequencesAddUpAndTheLastReportCounts) {
  GenerateRequest generate;
  generate.n = generate.samples = 2;
  Request& request = Make(generate);
  request.OnUpdate(0, With(Stable("a"), 1), 1);
  request.OnUpdate(0, With(End("ab"), 2.5), 2);
  request.OnUpdate(1, With(End("c"), 4), 3);
  EXPECT_EQ(usage()["energy_joules"], 6.5);
  EXPECT_EQ(request.usage().energy_joules, 6.5);
}

TEST_F(RequestEnergyTest, APartThatWasNotMeasuredLeavesNoField) {
  GenerateRequest generate;
  generate.n = generate.samples = 2;
  Request& request = Make(generate);
  request.OnUpdate(0, With(Stable("a"), 1), 1);
  request.OnUpdate(0, End("ab"), 2);  // it was lost under way
  request.OnUpdate(1, With(End("c"), 4), 3);
  EXPECT_FALSE(usage().contains("energy_joules"));
  EXPECT_FALSE(usage()["speculation"].contains("energy_joules"));
  EXPECT_EQ(request.usage().energy_joules, std::nullopt);
}

TEST_F(RequestEnergyTest, NoneIsGivenOfARequestThatLostItsReplica) {
  GenerateRequest generate;
  generate.params.seed = 3;
  Request& request = Make(generate);
  request.OnUpdate(0, With(Stable("a"), 1), 1);
  ASSERT_TRUE(request.Requeue(0));
  request.Start(0, 9, "replica-1", "cop-0", 2);
  request.OnUpdate(0, With(End("ab"), 2), 3);
  EXPECT_FALSE(usage().contains("energy_joules"));
}

TEST_F(RequestEnergyTest, JoulesThatCannotBeFailTheRequest) {
  Request& request = Make(Beams(1));
  EXPECT_FALSE(request.OnUpdate(0, With(Stable("a"), -1), 1));
  EXPECT_EQ(request.error()->message, "replica-0: energy_joules: -1 is not in [0, 1e+15]");
}

}  // namespace
}  // namespace coppice::coordinator
