// The leader's loop with a tiny model and a queue as coordinator: what a start may request, what is
// returned, and that nothing is held afterwards.
#include "worker/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <map>

#include "decoding/method.h"
#include "tests/testing/decoding_message.h"
#include "tests/worker/engine_fixture.h"

namespace coppice::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(EngineTest, WhatCannotBeServedIsRefusedByNameAndTheRestGoesOn) {
  struct Case {
    const char *code, *names;
    std::function<void(proto::StartSequence*)> change;
  };
  const Case cases[] = {
      {"invalid_value", "prompt: no tokens", [](auto* s) { s->clear_prompt(); }},
      {"invalid_value", "prompt[1]: 96", [](auto* s) { s->set_prompt(1, kVocab); }},
      {"invalid_value", "temperature",
       [](auto* s) { test::SetNumber("temperature", -1, s->mutable_decoding()); }},
      {"unsupported_combination", "speculative_beam_search",
       [](auto* s) { s->mutable_decoding()->set_method("speculative_beam_search"); }},
      {"context_length_exceeded", "64",
       [](auto* s) { test::SetInteger("max_tokens", kPositions, s->mutable_decoding()); }},
      {"unsupported_combination", "values of noise a layer",
       [](auto* s) {
         s->mutable_decoding()->set_method("joint_gumbel_coupling");
         test::SetInteger("beam_width", 4000, s->mutable_decoding());
         test::SetInteger("num_hypotheses", 1, s->mutable_decoding());
       }},
      {"kv_capacity_exceeded", "forward pass of 64 rows",
       [](auto* s) {
         test::SetInteger("beam_width", 1000, s->mutable_decoding());
         test::SetInteger("num_hypotheses", 1, s->mutable_decoding());
         test::SetInteger("max_tokens", 40, s->mutable_decoding());
       }},
  };
  uint64_t id = 0;
  for (const Case& refused : cases) {
    proto::StartSequence start = MakeStart(++id, Params());
    refused.change(&start);
    coordinator_.Start(start);
  }
  coordinator_.Start(MakeStart(100, Params()));
  proto::StartSequence longest = MakeStart(101, Params());
  test::SetInteger("max_tokens", kPositions - longest.prompt_size(), longest.mutable_decoding());
  coordinator_.Start(longest);
  Run();
  id = 0;
  for (const Case& refused : cases) {
    ASSERT_EQ(coordinator_.errors().count(++id), 1u) << refused.names;
    const proto::SequenceUpdate& error = coordinator_.errors().at(id);
    EXPECT_EQ(error.error_code(), refused.code) << error.error_message();
    EXPECT_THAT(error.error_message(), HasSubstr(refused.names));
  }
  EXPECT_EQ(coordinator_.errors().size(), id);
  ASSERT_EQ(coordinator_.finished().size(), 2u);
  EXPECT_GT(coordinator_.finished().at(100).hypotheses_size(), 0);
  EXPECT_GT(coordinator_.finished().at(101).hypotheses_size(), 0);
}

// One that is not streamed is reported at its first tokens, every 32 layers, and at its end.
TEST_F(EngineTest, WhatIsNotStreamedIsReportedFewTimes) {
  decoding::DecodingParams params;
  params.plain = true;
  params.max_tokens = 60;
  std::map<bool, std::vector<size_t>> reported;  // by quiet: tokens after each report
  for (const bool quiet : {false, true}) {
    const uint64_t id = quiet ? 2 : 1;
    proto::StartSequence start = MakeStart(id, params);
    start.set_quiet(quiet);
    coordinator_.Start(start);
    coordinator_.EveryTurn([&](int) {
      const size_t tokens = coordinator_.tokens(id);
      std::vector<size_t>& seen = reported[quiet];
      if (tokens > 0 && (seen.empty() || seen.back() != tokens)) seen.push_back(tokens);
    });
    Run();
    ASSERT_EQ(coordinator_.finished().at(id).hypotheses(0).tokens_size(), 60);
  }
  EXPECT_GT(reported[false].size(), 50u);
  EXPECT_EQ(reported[true], (std::vector<size_t>{1, 33, 60}));
}

// Who watches a stream sees every round when it ends, though its beams share no new token yet.
TEST_F(EngineTest, WatchedRoundsAreReportedOneByOne) {
  for (const bool quiet : {false, true}) {
    const uint64_t id = quiet ? 2 : 1;
    decoding::DecodingParams params = Params();
    params.max_tokens = 40;
    proto::StartSequence start = MakeStart(id, params);
    start.set_forests(true);
    start.set_quiet(quiet);
    coordinator_.Start(start);
    Run();
    std::vector<proto::RoundTimes> all;
    for (const auto& update : coordinator_.rounds(id))
      all.insert(all.end(), update.begin(), update.end());
    ASSERT_EQ(all.size(), 40u);
    for (int round = 0; round < 40; ++round) {
      EXPECT_EQ(all[round].round(), static_cast<uint32_t>(round));
      ASSERT_TRUE(all[round].has_forest());
      EXPECT_EQ(all[round].forest().outputs_size(), 3);
    }
    const size_t updates = coordinator_.rounds(id).size();
    EXPECT_TRUE(quiet ? updates < 5 : updates == 40) << updates;
  }
}

TEST_F(EngineTest, EveryStepMovesTheClockOn) {
  coordinator_.Start(MakeStart(1, Params()));
  Run();
  const ProgressReport report = runner_->progress_watchdog()->Look(/*longest_gap_s=*/3600);
  EXPECT_EQ(report.steps, runner_->steps());
  EXPECT_GT(report.steps, 1);
  EXPECT_GT(report.longest_stall_s, 0);
}

TEST_F(EngineTest, ASecondStartOfASequenceIsDropped) {
  coordinator_.Start(MakeStart(1, Params()));
  coordinator_.Start(MakeStart(1, Params()), /*will_end=*/false);
  Run();
  EXPECT_THAT(coordinator_.errors(), IsEmpty());
  EXPECT_EQ(coordinator_.finished().size(), 1u);
}

TEST_F(EngineTest, ACancelledSequenceReportsNothingAndFreesItsBlocks) {
  coordinator_.Start(MakeStart(1, Params()), /*will_end=*/false);
  coordinator_.Cancel(1);
  coordinator_.Cancel(77);  // an unknown sequence
  coordinator_.Start(MakeStart(2, Params()));
  Run();
  EXPECT_THAT(coordinator_.errors(), IsEmpty());
  EXPECT_EQ(coordinator_.finished().count(1), 0u);
  EXPECT_EQ(coordinator_.finished().count(2), 1u);
}

// The next coordinator knows nothing of what the one before had started, and may use its ids.
TEST_F(EngineTest, AReplicaThatJoinsAgainDropsWhatItHad) {
  coordinator_.Accept();
  coordinator_.Start(MakeStart(1, Params()), /*will_end=*/false);
  coordinator_.Start(MakeStart(2, Params()), /*will_end=*/false);
  coordinator_.EveryTurn([this](int turn) {
    if (turn != 2) return;  // they are under way
    coordinator_.Accept();
    coordinator_.Start(MakeStart(1, Params(), {8, 9}), /*will_end=*/false);
  });
  coordinator_.WaitFor(1);  // only the last one ends
  Run();
  EXPECT_THAT(coordinator_.errors(), IsEmpty());
  EXPECT_EQ(coordinator_.finished().count(2), 0u);
  ASSERT_EQ(coordinator_.finished().count(1), 1u);
  const proto::SequenceUpdate again = coordinator_.finished().at(1);
  coordinator_.EveryTurn(nullptr);
  coordinator_.Start(MakeStart(3, Params(), {8, 9}));
  Run();
  ExpectSameAnswer(again, coordinator_.finished().at(3));
}

TEST_F(EngineTest, StableTokensAreToldOnceAndBeginTheAnswer) {
  decoding::DecodingParams params = Params();
  params.beam_width = params.num_hypotheses = 1;
  params.max_tokens = 20;
  coordinator_.Start(MakeStart(1, params));
  Run();
  const auto& tokens = coordinator_.finished().at(1).hypotheses(0).tokens();
  EXPECT_EQ(coordinator_.stable(1), std::vector<TokenId>(tokens.begin(), tokens.end()));
}

TEST_F(EngineTest, ASequenceMayFillAPass) {
  decoding::DecodingParams params = Params();
  params.kind = sampling::DecodingKind::kBeamSearch;
  params.beam_width = 64;  // max_rows
  params.num_hypotheses = 1;
  coordinator_.Start(MakeStart(1, params));
  Run();
  EXPECT_THAT(coordinator_.errors(), IsEmpty());
  EXPECT_EQ(coordinator_.finished().size(), 1u);
}

// The answer of a sequence does not depend on the sequences that share its passes.
TEST_F(EngineTest, AnswersAreTheSameAloneAndAmongOthers) {
  coordinator_.Start(MakeStart(1, Params()));
  Run();
  const proto::SequenceUpdate alone = coordinator_.finished().at(1);
  for (uint64_t id = 2; id < 8; ++id) {
    decoding::DecodingParams params = Params();
    params.seed = id == 5 ? Params().seed : id;
    params.beam_width = params.num_hypotheses = id == 5 ? 3 : static_cast<int>(id);
    coordinator_.Start(MakeStart(id, params));
  }
  Run();
  ExpectSameAnswer(coordinator_.finished().at(5), alone);
  EXPECT_NE(coordinator_.finished().at(6).hypotheses(0).SerializeAsString(),
            alone.hypotheses(0).SerializeAsString());
}

// Sequences that share a pass are verified concurrently. A single sequence spreads its rows over
// the threads.
TEST_F(EngineTest, AnswersAreTheSameOnSeveralThreads) {
  test::TempDir dir;
  const auto threaded = test::LoadTinyRunner(Tiny(), dir.path(), single_.get(), /*threads=*/3);
  for (const int sequences : {1, 8}) {
    std::map<uint64_t, proto::SequenceUpdate> finished[2];
    for (const bool several : {false, true}) {
      for (int id = 1; id <= sequences; ++id) {
        decoding::DecodingParams params = Params();
        params.seed = id;
        params.beam_width = params.num_hypotheses = 2 + id % 5;
        if (id % 3 == 0) {
          params.kind = sampling::DecodingKind::kBeamSearch;
        } else {
          params.sampling.top_p = id % 2 == 0 ? 0.8 : 1;
        }
        coordinator_.Start(MakeStart(id, params));
      }
      RunOn(several ? threaded.get() : runner_.get());
      finished[several] = coordinator_.finished();
    }
    EXPECT_THAT(coordinator_.errors(), IsEmpty());
    for (int id = 1; id <= sequences; ++id) {
      ExpectSameAnswer(finished[0].at(id), finished[1].at(id));
    }
  }
}

// A model whose logits after these tokens are NaN.
test::TinyLlama WithBadTokens(test::TinyLlama model, TokenId first, TokenId end) {
  test::TinyTensor& embeddings = model.tensors.at("model.embed_tokens.weight");
  const int64_t hidden = embeddings.shape[1];
  for (int64_t i = first * hidden; i < end * hidden; ++i) {
    embeddings.values[i] = std::numeric_limits<float>::quiet_NaN();
  }
  return model;
}

TEST_F(EngineTest, ABadRowEndsItsSequenceAmongOthers) {
  test::TempDir dir;
  const auto runner =
      test::LoadTinyRunner(WithBadTokens(Tiny(), 9, 10), dir.path(), single_.get(), 3);
  decoding::DecodingParams params = Params();
  params.sampling.logit_bias = {{9, -std::numeric_limits<double>::infinity()}};
  coordinator_.Start(MakeStart(1, params));
  RunOn(runner.get());
  ASSERT_THAT(coordinator_.errors(), IsEmpty());
  const proto::SequenceUpdate alone = coordinator_.finished().at(1);
  for (uint64_t id = 2; id < 10; ++id) {
    proto::StartSequence start = MakeStart(id, params);
    if (id % 2 == 1) start.set_prompt(2, 9);
    coordinator_.Start(start);
  }
  RunOn(runner.get());
  for (uint64_t id = 2; id < 10; ++id) {
    ASSERT_EQ(coordinator_.errors().count(id), id % 2);
    if (id % 2 == 1) {
      EXPECT_EQ(coordinator_.errors().at(id).error_code(), "internal_error");
      EXPECT_THAT(coordinator_.errors().at(id).error_message(),
                  HasSubstr("target logits of row 0 of the round: token 0 is nan"));
      continue;
    }
    ExpectSameAnswer(coordinator_.finished().at(id), alone);
  }
}

// All beams of the second layer have bad rows, which are read concurrently.
TEST_F(EngineTest, SeveralBadRowsOfALayerEndTheirSequence) {
  test::TempDir dir;
  const auto runner =
      test::LoadTinyRunner(WithBadTokens(Tiny(), 8, kVocab), dir.path(), single_.get(), 3);
  uint64_t id = 0;
  for (const char* method : {"none", "gumbel_coupling", "joint_gumbel_coupling", "dsbd"}) {
    SCOPED_TRACE(method);
    decoding::DecodingParams params = Params();
    const decoding::MethodRow* row = decoding::FindMethod(method);
    params.plain = row == nullptr;
    if (row != nullptr) params.method = row;
    params.beam_width = params.num_hypotheses = 6;
    for (TokenId token = 0; token < 8; ++token) params.sampling.logit_bias.push_back({token, -1e3});
    for (const int sequences : {1, 4}) {
      const uint64_t first = id + 1;
      for (int i = 0; i < sequences; ++i) coordinator_.Start(MakeStart(++id, params));
      RunOn(runner.get());
      for (uint64_t bad = first; bad <= id; ++bad) {
        ASSERT_EQ(coordinator_.errors().count(bad), 1u);
        EXPECT_EQ(coordinator_.errors().at(bad).error_code(), "internal_error");
        EXPECT_THAT(coordinator_.errors().at(bad).error_message(), HasSubstr("target logits"));
      }
    }
  }
  EXPECT_THAT(coordinator_.finished(), IsEmpty());
}

}  // namespace
}  // namespace coppice::worker
