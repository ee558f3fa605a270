// The leader's loop without draft nodes: drafts that were found in the texts of the requests. The
// answers must be those without drafts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/testing/method_case.h"
#include "tests/worker/engine_fixture.h"
#include "tests/worker/fake_draft_node.h"
#include "tests/worker/ticking_clock.h"

namespace coppice::worker {
namespace {

using ::testing::IsEmpty;

class SuffixEngineTest : public EngineTest {
 protected:
  // A prompt that repeats, as the answers of a tiny greedy model do.
  static std::vector<TokenId> Prompt(uint64_t id) {
    std::vector<TokenId> prompt;
    for (uint64_t i = 0; i < 12 + id % 4; ++i)
      prompt.push_back(static_cast<TokenId>(1 + (i % 5 * 7 + id) % 60));
    return prompt;
  }
  static decoding::DecodingParams Greedy(uint64_t seed) {
    decoding::DecodingParams params;
    params.kind = sampling::DecodingKind::kMultinomial;
    params.sampling.temperature = 0;
    params.seed = seed;
    params.max_tokens = 40;
    params.draft_width = 2;
    params.draft_depth = 4;
    return params;
  }
  static decoding::DecodingParams Plain(decoding::DecodingParams params) {
    params.plain = true;
    return params;
  }
  // Time goes on with every look at it, so that the engine reports its counters.
  void RunWith(const EngineOptions& options) { RunOn(runner_.get(), options, time_); }
  const proto::SequenceStats& stats(uint64_t id) const {
    return coordinator_.finished().at(id).stats();
  }

  test::TempDir other_;
  TickingClock time_;
};

TEST_F(SuffixEngineTest, EveryReproducibleMethodAnswersAsWithoutDrafts) {
  uint64_t drafted = 0, accepted = 0, id = 0;
  for (const test::MethodCase& method : test::MethodCases([](const auto& row) {
         return row.reproducible && row.form != decoding::DraftForm::kNone;
       })) {
    for (int seed = 0; seed < 6; ++seed) {
      SCOPED_TRACE(method.Name() + " " + std::to_string(seed));
      decoding::DecodingParams params = method.Params(/*max_tokens=*/40, /*eos=*/95, seed);
      if (seed % 2 == 0 && !method.fixed_sampling()) params.sampling.temperature = 0.1;
      if (seed % 3 == 2) params.sampling.repetition_penalty = 1.2;
      params.draft_width = method.DraftWidth(2 * params.beam_width);
      params.draft_depth = 1 + seed % 5;
      coordinator_.Start(MakeStart(++id, Plain(params), Prompt(seed)));
      coordinator_.Start(MakeStart(++id, params, Prompt(seed)));
      Run();
      ASSERT_THAT(coordinator_.errors(), IsEmpty());
      ExpectSameAnswer(coordinator_.finished().at(id - 1), coordinator_.finished().at(id));
      EXPECT_EQ(stats(id - 1).drafted_nodes(), 0u);
      EXPECT_EQ(stats(id - 1).suffix_rounds(), 0u);
      EXPECT_EQ(stats(id).suffix_rounds(), stats(id).rounds() - stats(id).plain_rounds());
      drafted += stats(id).drafted_nodes();
      accepted += stats(id).accepted_nodes();
    }
  }
  EXPECT_GT(drafted, 500u);
  EXPECT_GT(accepted, 100u);
}

// An answer that repeats takes fewer passes than it has tokens.
TEST_F(SuffixEngineTest, TextThatRepeatsNeedsFewerPasses) {
  decoding::DecodingParams params = Greedy(1);
  params.sampling.logit_bias = {{40, 1e4}};  // the only possible token
  for (uint64_t id = 1; id <= 200; ++id) coordinator_.Start(MakeStart(id, params));
  RunWith(Options(runner_.get()));
  for (uint64_t id = 1; id <= 200; ++id) {
    EXPECT_EQ(stats(id).layers(), 39u);
    EXPECT_LT(stats(id).target_passes(), 14u);
  }
  const proto::NodeStatus& status = coordinator_.status();
  const proto::NodeCounters& counters = status.counters();
  EXPECT_TRUE(status.suffix_drafts().used());
  EXPECT_GT(counters.suffix_nodes_accepted().at("answer"), 100u);
  EXPECT_GE(counters.suffix_nodes_drafted().at("answer"),
            counters.suffix_nodes_accepted().at("answer"));
  EXPECT_THAT(counters.rounds_without_draft(), IsEmpty());
}

// What follows in the prompt or in the answer of another request is not proposed.
TEST_F(SuffixEngineTest, ARequestSeesNoTextOfAnother) {
  std::vector<TokenId> no_pair_twice;
  for (int i = 0; i < 20; ++i) no_pair_twice.push_back(10 + i);
  decoding::DecodingParams params = Greedy(1);
  params.max_tokens = 3;
  params.sampling.logit_bias = {{40, 1e4}};  // the only possible token
  for (uint64_t id = 1; id <= 6; id += 2) {
    coordinator_.Start(MakeStart(id, params, {29, 40, 50, 51, 29, 40, 50, 51}));
    coordinator_.Start(MakeStart(id + 1, params, no_pair_twice));
  }
  Run();
  for (uint64_t id = 1; id <= 6; ++id) EXPECT_EQ(stats(id).layers(), 2u);
  for (uint64_t id = 2; id <= 6; id += 2) EXPECT_EQ(stats(id).drafted_nodes(), 0u) << id;
}

// It draws from the target and looks whether the draw was drafted, so any tree will do.
TEST_F(SuffixEngineTest, SampleAndCheckTakesThem) {
  decoding::DecodingParams params = Greedy(1);
  params.sampling.temperature = 1;
  params.sampling.logit_bias = {{40, 1e4}, {41, 1e4}};  // no other token is possible
  params.method = decoding::FindMethod("sample_and_check");
  for (const char* tree : {"", "2-1-1"}) {
    SCOPED_TRACE(tree);
    params.draft_tree = tree;
    if (*tree != 0) params.draft_width = params.draft_depth = 0;
    const uint64_t first = *tree == 0 ? 1 : 21;
    uint64_t drafted = 0, accepted = 0, most = 0;
    for (uint64_t id = first; id < first + 20; ++id) {
      params.seed = id;
      coordinator_.Start(MakeStart(id, params));
    }
    Run();
    ASSERT_THAT(coordinator_.errors(), IsEmpty());
    for (uint64_t id = first; id < first + 20; ++id) {
      for (const TokenId token : coordinator_.finished().at(id).hypotheses(0).tokens())
        ASSERT_TRUE(token == 40 || token == 41);
      drafted += stats(id).drafted_nodes();
      accepted += stats(id).accepted_nodes();
      most += (*tree == 0 ? 8 : 6) * (stats(id).rounds() - stats(id).plain_rounds());
    }
    EXPECT_GT(drafted, 200u);
    EXPECT_LE(drafted, most);
    EXPECT_GT(accepted, 50u);
  }
}

TEST_F(SuffixEngineTest, TheOperatorsCorpusIsAsked) {
  decoding::DecodingParams params = Greedy(1);
  params.max_tokens = 12;
  params.draft_depth = 3;
  coordinator_.Start(MakeStart(1, Plain(params), {5, 6, 7}));
  Run();
  std::vector<TokenId> text = {5, 6, 7};
  for (const TokenId token : coordinator_.finished().at(1).hypotheses(0).tokens())
    text.push_back(token);
  text.push_back(decoding::SuffixCorpus::kEnd);
  EngineOptions options = Options(runner_.get());
  options.suffixes.corpus = std::make_shared<const decoding::SuffixCorpus>(text);
  coordinator_.Start(MakeStart(2, params, {5, 6, 7}));
  RunWith(options);
  ExpectSameAnswer(coordinator_.finished().at(1), coordinator_.finished().at(2));
  EXPECT_LE(stats(2).target_passes(), 4u);
  EXPECT_GE(stats(2).accepted_nodes(), 6u);
  EXPECT_EQ(coordinator_.status().suffix_drafts().corpus_tokens(), text.size());
}

TEST_F(SuffixEngineTest, ThereAreNoneWhereTheyAreNotWanted) {
  EngineOptions off = Options(runner_.get());
  off.suffixes.on = false;
  coordinator_.Start(MakeStart(1, Greedy(1), Prompt(1)));
  RunWith(off);
  EXPECT_EQ(stats(1).drafted_nodes(), 0u);
  EXPECT_FALSE(coordinator_.status().has_suffix_drafts());

  EngineOptions no_memory = Options(runner_.get());
  no_memory.suffixes.index_bytes = 0;
  coordinator_.Start(MakeStart(2, Greedy(1), Prompt(1)));
  RunWith(no_memory);
  EXPECT_EQ(stats(2).drafted_nodes(), 0u);

  // A method that needs the draft's distribution.
  decoding::DecodingParams rejection = Greedy(1);
  rejection.method = decoding::FindMethod("rejection");
  rejection.draft_width = 1;
  coordinator_.Start(MakeStart(3, rejection, Prompt(1)));
  Run();
  EXPECT_EQ(stats(3).drafted_nodes(), 0u);
  ASSERT_THAT(coordinator_.errors(), IsEmpty());
}

// With a draft node the drafts are its own, also when it has left.
TEST_F(SuffixEngineTest, ThereAreNoneOnceADraftNodeHasJoined) {
  FakeDraftNode node("direct://127.0.0.1:*");
  proto::DraftNodes nodes;
  *nodes.add_nodes() = node.Announce("draft");
  coordinator_.Send(nodes);
  coordinator_.Send(proto::DraftNodes());
  for (uint64_t id = 1; id <= 20; ++id) coordinator_.Start(MakeStart(id, Greedy(1), Prompt(1)));
  RunWith(Options(runner_.get()));
  for (uint64_t id = 1; id <= 20; ++id) EXPECT_EQ(stats(id).drafted_nodes(), 0u);
  EXPECT_FALSE(coordinator_.status().suffix_drafts().used());
  EXPECT_GT(coordinator_.status().counters().rounds_without_draft().at("no_node"), 0u);
}

// The size that the server chooses: also then the answer is the same.
TEST_F(SuffixEngineTest, SizesThatTheServerChoosesChangeNoAnswer) {
  const auto runner = test::LoadTinyRunner(
      [] {
        test::TinyLlamaOptions tiny;
        tiny.vocab = kVocab;
        tiny.max_positions = 512;
        return test::MakeTinyLlama(tiny);
      }(),
      other_.path(), single_.get());
  decoding::DecodingParams params = Greedy(1);
  params.draft_width = params.draft_depth = 0;
  params.max_tokens = 400;
  for (uint64_t id = 1; id <= 4; ++id) {
    coordinator_.Start(MakeStart(2 * id, Plain(params), Prompt(id)));
    coordinator_.Start(MakeStart(2 * id + 1, params, Prompt(id)));
    RunOn(runner.get());
    ASSERT_THAT(coordinator_.errors(), IsEmpty());
    ExpectSameAnswer(coordinator_.finished().at(2 * id), coordinator_.finished().at(2 * id + 1));
  }
}

}  // namespace
}  // namespace coppice::worker
