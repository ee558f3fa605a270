// What a leader reports about a sequence: hypotheses, progress, statistics.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "proto/convert.h"
#include "tests/proto/expect_invalid.h"

namespace coppice::proto {
namespace {

using ::testing::ElementsAre;

TEST(ConvertProgressTest, HypothesisSurvivesAndTellsItsStopToken) {
  decoding::Hypothesis hypothesis{{4, 5, 2}, -1.25, -0.5, true};
  proto::Hypothesis message = HypothesisToMessage(hypothesis);
  EXPECT_EQ(message.stop_token(), 2);
  auto back = HypothesisFromMessage(message, 6);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->tokens, hypothesis.tokens);
  EXPECT_EQ(back->joint_log_probability, -1.25);
  EXPECT_TRUE(back->finished);
  hypothesis.finished = false;
  EXPECT_EQ(HypothesisToMessage(hypothesis).stop_token(), -1);
  message.set_tokens(1, -1);
  ExpectInvalid(HypothesisFromMessage(message, 6), "tokens[1]");
}

proto::SequenceUpdate SampleUpdate() {
  proto::SequenceUpdate update;
  update.set_sequence_id(3);
  update.add_stable_tokens(4);
  update.set_finished(true);
  *update.add_hypotheses() = HypothesisToMessage({{4, 5, 2}, -1.25, -0.5, true});
  *update.add_hypotheses() = HypothesisToMessage({{4, 5, 7, 1}, -2.5, -0.75, false});
  DecodingStats stats;
  stats.method = "gumbel_coupling";
  stats.rounds = 4;
  stats.plain_rounds = 1;
  stats.accepted_by_layer = {3};
  *update.mutable_stats() = StatsToMessage(stats);
  return update;
}

// One token's score with two alternatives.
coppice::TokenScore SampleScore() { return {-1.5, {{7, -0.25}, {9, -2.0}}}; }

proto::SequenceUpdate ScoredUpdate() {
  proto::SequenceUpdate update = SampleUpdate();
  for (int i = 0; i < 2; ++i) *update.add_prompt_scores() = ScoreToMessage(SampleScore());
  *update.add_stable_scores() = ScoreToMessage(SampleScore());
  for (proto::Hypothesis& hypothesis : *update.mutable_hypotheses()) {
    for (int i = 0; i < hypothesis.tokens_size(); ++i)
      *hypothesis.add_scores() = ScoreToMessage({-INFINITY, {}});
  }
  return update;
}

TEST(ConvertProgressTest, ScoresSurvive) {
  ProgressLimits limits{100, 4, 3, 2};
  limits.alternatives = 2;
  limits.prompt_scores = 2;
  const auto progress = ProgressFromMessage(ScoredUpdate(), limits);
  ASSERT_TRUE(progress.ok()) << progress.status();
  ASSERT_EQ(progress->prompt_scores.size(), 2u);
  EXPECT_EQ(progress->stable_scores.at(0).log_prob, -1.5);
  EXPECT_EQ(progress->stable_scores.at(0).top, SampleScore().top);
  ASSERT_EQ(progress->hypothesis_scores.size(), 2u);
  EXPECT_EQ(progress->hypothesis_scores[1].size(), 4u);
  EXPECT_EQ(progress->hypothesis_scores[1][3].log_prob, -INFINITY);
}

TEST(ConvertProgressTest, BadScoresAreNamed) {
  const auto refused = [](const char* names, void (*change)(proto::SequenceUpdate*)) {
    ProgressLimits limits{100, 4, 3, 2};
    limits.alternatives = 2;
    limits.prompt_scores = 2;
    proto::SequenceUpdate update = ScoredUpdate();
    change(&update);
    ExpectInvalid(ProgressFromMessage(update, limits), names);
  };
  refused("prompt_scores: length: 3", [](auto* u) { u->add_prompt_scores(); });
  refused("stable_scores.length: 0", [](auto* u) { u->clear_stable_scores(); });
  refused("hypotheses[1].scores.length: 5",
          [](auto* u) { u->mutable_hypotheses(1)->add_scores(); });
  refused("stable_scores.entry[0]: log_prob: 0.5",
          [](auto* u) { u->mutable_stable_scores(0)->set_log_prob(0.5); });
  refused("log_prob: nan", [](auto* u) { u->mutable_prompt_scores(1)->set_log_prob(NAN); });
  refused("prompt_scores.entry[1]: top_tokens[0]: 100",
          [](auto* u) { u->mutable_prompt_scores(1)->set_top_tokens(0, 100); });
  refused("top_tokens: length: 3", [](auto* u) {
    u->mutable_prompt_scores(0)->add_top_tokens(1);
    u->mutable_prompt_scores(0)->add_top_log_probs(-3);
  });
  refused("top_log_probs: 1 entries",
          [](auto* u) { u->mutable_prompt_scores(0)->mutable_top_log_probs()->RemoveLast(); });
  ExpectInvalid(ProgressFromMessage(ScoredUpdate(), ProgressLimits{100, 4, 3, 2}), "prompt_scores");
  proto::SequenceUpdate unasked = SampleUpdate();
  *unasked.add_stable_scores() = ScoreToMessage(SampleScore());
  ExpectInvalid(ProgressFromMessage(unasked, ProgressLimits{100, 4, 3, 2}),
                "stable_scores.length: 1");
}

TEST(ConvertProgressTest, ProgressSurvives) {
  const ProgressLimits limits{100, 4, 3, 2};
  auto progress = ProgressFromMessage(SampleUpdate(), limits);
  ASSERT_TRUE(progress.ok()) << progress.status();
  EXPECT_THAT(progress->stable_tokens, ElementsAre(4));
  ASSERT_EQ(progress->hypotheses.size(), 2);
  EXPECT_THAT(progress->hypotheses[1].tokens, ElementsAre(4, 5, 7, 1));
  EXPECT_EQ(progress->stats->rounds, 4);
  EXPECT_FALSE(progress->energy_joules);
  proto::SequenceUpdate measured = SampleUpdate();
  measured.set_energy_joules(0);
  EXPECT_EQ(ProgressFromMessage(measured, limits)->energy_joules, 0);
  proto::SequenceUpdate early;
  early.add_stable_tokens(99);
  progress = ProgressFromMessage(early, limits);
  ASSERT_TRUE(progress.ok()) << progress.status();
  EXPECT_FALSE(progress->finished);
  EXPECT_FALSE(progress->stats);
}

TEST(ConvertProgressTest, ProgressNamesTheBadField) {
  const auto with = [](auto change) {
    proto::SequenceUpdate message = SampleUpdate();
    change(&message);
    return ProgressFromMessage(message, {100, 4, 3, 2});
  };
  ExpectInvalid(with([](auto* m) { m->set_stable_tokens(0, 100); }), "stable_tokens[0]: 100");
  ExpectInvalid(with([](auto* m) { m->set_stable_tokens(0, -1); }), "stable_tokens[0]: -1");
  ExpectInvalid(with([](auto* m) { m->add_stable_tokens(1); }), "stable_tokens: length: 2");
  ExpectInvalid(with([](auto* m) { m->clear_hypotheses(); }), "hypotheses: length: 0");
  ExpectInvalid(with([](auto* m) { *m->add_hypotheses() = m->hypotheses(1); }),
                "hypotheses: length: 3");
  ExpectInvalid(with([](auto* m) { m->set_finished(false); }), "hypotheses: length: 2");
  ExpectInvalid(with([](auto* m) { m->mutable_hypotheses(1)->set_tokens(2, 100); }),
                "hypotheses[1].tokens[2]: 100");
  ExpectInvalid(with([](auto* m) { m->mutable_hypotheses(1)->add_tokens(1); }),
                "hypotheses[1].tokens: length: 5");
  ExpectInvalid(with([](auto* m) { m->mutable_hypotheses(1)->set_score(NAN); }),
                "hypotheses[1].score: is NaN");
  ExpectInvalid(with([](auto* m) { m->mutable_hypotheses(0)->set_score(INFINITY); }),
                "hypotheses[0].score: is infinite");
  ExpectInvalid(with([](auto* m) { m->mutable_hypotheses(0)->set_joint_log_probability(NAN); }),
                "hypotheses[0].joint_log_probability");
  ExpectInvalid(with([](auto* m) { m->mutable_hypotheses(0)->set_stop_token(5); }),
                "hypotheses[0].stop_token: 5, want 2");
  ExpectInvalid(with([](auto* m) { m->mutable_hypotheses(1)->set_stop_token(1); }),
                "hypotheses[1].stop_token: 1, want -1");
  ExpectInvalid(with([](auto* m) { m->set_energy_joules(NAN); }), "energy_joules");
  ExpectInvalid(with([](auto* m) { m->set_energy_joules(-0.5); }), "energy_joules: -0.5");
}

TEST(ConvertProgressTest, StatisticsNameTheBadField) {
  const auto with = [](auto change) {
    proto::SequenceUpdate message = SampleUpdate();
    change(message.mutable_stats());
    return ProgressFromMessage(message, {100, 4, 3, 2});
  };
  ExpectInvalid(with([](auto* m) { m->set_method("magic"); }), "stats.method: \"magic\"");
  ExpectInvalid(with([](auto* m) { m->set_plain_rounds(5); }), "stats.plain_rounds: 5");
  ExpectInvalid(with([](auto* m) {
                  for (int i = 0; i < 4; ++i) m->add_accepted_by_layer(1);
                }),
                "stats.accepted_by_layer: length: 5");
  ExpectInvalid(with([](auto* m) { m->set_accepted_by_layer(0, 1ull << 63); }),
                "stats.accepted_by_layer: 9223372036854775808");
  ExpectInvalid(with([](auto* m) { m->set_rounds(~0ull); }), "stats.rounds: 18446744073709551615");
  ExpectInvalid(with([](auto* m) { m->set_overlap_layers(2000000000000000); }),
                "stats.overlap_layers: 2000000000000000 is more than 1e+15");
  ExpectInvalid(with([](auto* m) { m->set_draft_width_sum(NAN); }), "stats.draft_width_sum");
  ExpectInvalid(with([](auto* m) { m->set_draft_depth_sum(INFINITY); }), "stats.draft_depth_sum");
  ExpectInvalid(with([](auto* m) { m->set_overlap_sum(-1); }), "stats.overlap_sum");
  ExpectInvalid(with([](auto* m) { m->set_queue_ms(-1e-9); }), "stats.queue_ms");
  ExpectInvalid(with([](auto* m) { m->set_prefill_ms(NAN); }), "stats.prefill_ms");
  ExpectInvalid(with([](auto* m) { m->set_draft_ms(NAN); }), "stats.draft_ms");
  ExpectInvalid(with([](auto* m) { m->set_draft_wait_ms(-1); }), "stats.draft_wait_ms");
  ExpectInvalid(with([](auto* m) { m->set_verify_ms(1e300); }), "stats.verify_ms");
  EXPECT_TRUE(with([](auto* m) { m->set_method("none"); }).ok());
}

decoding::RoundForest SampleRound() {
  decoding::RoundForest round;
  round.roots = {decoding::PathId{3}, decoding::PathId{4}};
  round.nodes.num_roots = 2;
  const NodeId first = round.nodes.Add(RootId{1}, 7);
  round.nodes.Add(first, 8);
  round.log_probs = {-0.5, -INFINITY};
  round.node_path = {decoding::PathId{5}, decoding::kNoPath};
  round.first_path = 5;
  round.path_parent = {decoding::PathId{4}, decoding::PathId{5}};
  round.path_token = {7, 9};
  round.outputs = {{decoding::PathId{6}, -1.5, true}, {decoding::PathId{6}, -1.5, false}};
  round.last = true;
  return round;
}

TEST(ConvertProgressTest, RoundsSurvive) {
  const decoding::RoundForest round = SampleRound();
  const auto back = RoundForestFromMessage(RoundForestToMessage(round), 10);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->roots, round.roots);
  EXPECT_EQ(back->nodes.num_roots, 2);
  EXPECT_EQ(back->nodes.token, round.nodes.token);
  EXPECT_EQ(back->nodes.parent, round.nodes.parent);
  EXPECT_EQ(back->log_probs, round.log_probs);
  EXPECT_EQ(back->node_path, round.node_path);
  EXPECT_EQ(back->first_path, 5);
  EXPECT_EQ(back->path_parent, round.path_parent);
  EXPECT_EQ(back->path_token, round.path_token);
  ASSERT_EQ(back->outputs.size(), 2u);
  EXPECT_EQ(back->outputs[0].path, decoding::PathId{6});
  EXPECT_TRUE(back->outputs[0].finished);
  EXPECT_FALSE(back->outputs[1].finished);
  EXPECT_TRUE(back->last);
}

TEST(ConvertProgressTest, BadRoundsAreNamed) {
  const auto refused = [](const char* names, void (*change)(proto::RoundForest*)) {
    proto::RoundForest message = RoundForestToMessage(SampleRound());
    change(&message);
    ExpectInvalid(RoundForestFromMessage(message, 10), names);
  };
  refused("roots[0]", [](proto::RoundForest* m) { m->set_roots(0, 5); });
  refused("tokens[1]", [](proto::RoundForest* m) { m->set_tokens(1, 10); });
  refused("parents[0]", [](proto::RoundForest* m) { m->set_parents(0, -3); });
  refused("parents[1]", [](proto::RoundForest* m) { m->set_parents(1, 1); });
  refused("parents: 3", [](proto::RoundForest* m) { m->add_parents(0); });
  refused("log_probs[0]", [](proto::RoundForest* m) { m->set_log_probs(0, NAN); });
  refused("log_probs: 3", [](proto::RoundForest* m) { m->add_log_probs(0); });
  refused("node_paths[0]", [](proto::RoundForest* m) { m->set_node_paths(0, 4); });
  refused("node_paths[1]", [](proto::RoundForest* m) { m->set_node_paths(1, 7); });
  refused("first_path", [](proto::RoundForest* m) { m->set_first_path(0); });
  refused("path_parents[1]", [](proto::RoundForest* m) { m->set_path_parents(1, 6); });
  refused("path_tokens[0]", [](proto::RoundForest* m) { m->set_path_tokens(0, -1); });
  refused("outputs[1]", [](proto::RoundForest* m) { m->set_outputs(1, 7); });
  refused("log_scores[0]", [](proto::RoundForest* m) { m->set_log_scores(0, NAN); });
  refused("finished: 1", [](proto::RoundForest* m) { m->mutable_finished()->RemoveLast(); });
}

}  // namespace
}  // namespace coppice::proto
