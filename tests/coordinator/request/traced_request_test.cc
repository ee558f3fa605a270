// Requests with `trace`: what is shown of their rounds, streamed and whole, and up to which limits.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "decoding/round_forest.h"
#include "tests/coordinator/request/request_fixture.h"

namespace coppice::coordinator {
namespace {

using nlohmann::json;

class TracedRequestTest : public RequestTest {};

// A round of one beam that has drafted "x" and "y", of which "x" was taken.
proto::RoundTimes Round(int number) {
  decoding::RoundForest forest;
  forest.roots = {decoding::PathId{number - 1}};
  forest.nodes.num_roots = 1;
  forest.nodes.Add(RootId{0}, 'x');
  forest.nodes.Add(RootId{0}, 0xc3);
  forest.log_probs = {-0.25, -INFINITY};
  forest.node_path = {decoding::PathId{number}, decoding::kNoPath};
  forest.first_path = number;
  forest.path_parent = {decoding::PathId{number - 1}};
  forest.path_token = {'x'};
  forest.outputs = {{decoding::PathId{number}, -1.5, false}};
  proto::RoundTimes times;
  times.set_round(number);
  times.set_end_s(0.01 * number);
  times.set_draft_s(0.002);
  times.set_rows(3);
  times.set_layers(1);
  *times.mutable_forest() = proto::RoundForestToMessage(forest);
  return times;
}

GenerateRequest Traced(bool stream) {
  GenerateRequest generate;
  generate.trace = true;
  generate.stream = stream;
  return generate;
}

TEST_F(TracedRequestTest, ATracedStreamShowsRoundsBeforeTheirText) {
  Request& request = Make(Traced(/*stream=*/true));
  EXPECT_TRUE(request.StartMessage(0).forests());
  proto::SequenceUpdate update = Stable("x");
  *update.add_rounds() = Round(1);
  *update.add_rounds() = Round(2);
  EXPECT_TRUE(request.OnUpdate(0, update, 1));
  proto::SequenceUpdate no_text;
  *no_text.add_rounds() = Round(3);
  EXPECT_TRUE(request.OnUpdate(0, no_text, 1));
  ASSERT_EQ(exchange_->events.size(), 3u);
  const json shown = json::parse(exchange_->events[0]);
  EXPECT_EQ(shown["choices"], json::array());
  ASSERT_EQ(shown["trace"].size(), 2u);
  EXPECT_EQ(json::parse(exchange_->events[1])["choices"][0]["text"], "x");
  EXPECT_EQ(json::parse(exchange_->events[2])["trace"][0]["round"], 3);
  const json& round = shown["trace"][1];
  EXPECT_EQ(round["round"], 2);
  EXPECT_EQ(round["run"], 0);
  EXPECT_EQ(round["time_ms"], 20.0);
  EXPECT_EQ(round["draft_ms"], 2.0);
  EXPECT_EQ(round["rows"], 3);
  EXPECT_EQ(round["layers"], 1);
  EXPECT_EQ(round["roots"], json({1}));
  EXPECT_EQ(
      round["nodes"][0],
      json({{"parent", -1}, {"token", 'x'}, {"text", "x"}, {"log_prob", -0.25}, {"path", 2}}));
  EXPECT_EQ(round["nodes"][1], json({{"parent", -1}, {"token", 0xc3}, {"text", "bytes:\\xc3"}}));
  EXPECT_EQ(round["paths"],
            json::array({{{"path", 2}, {"parent", 1}, {"token", 'x'}, {"text", "x"}}}));
  EXPECT_EQ(round["beams"], json::array({{{"path", 2}, {"log_score", -1.5}, {"finished", false}}}));
}

TEST_F(TracedRequestTest, AWholeAnswerHasAllRoundsUpToTheLimits) {
  Request& request = Make(Traced(/*stream=*/false));
  int sent = 0;
  while (sent < decoding::kMostShownRounds + 10) {
    proto::SequenceUpdate update;
    *update.add_rounds() = Round(++sent);
    EXPECT_TRUE(request.OnUpdate(0, update, 1));
  }
  EXPECT_TRUE(request.OnUpdate(0, Finished({MakeHypothesis(Bytes("xx"), -1, false)}), 2));
  const json trace = exchange_->body()["trace"];
  ASSERT_EQ(trace.size(), static_cast<size_t>(decoding::kMostShownRounds));
  EXPECT_EQ(trace.back()["truncated"], true);
  EXPECT_EQ(trace[0].count("truncated"), 0u);
}

TEST_F(TracedRequestTest, ARunAfterAFailOverIsNamed) {
  Request& request = Make(Traced(/*stream=*/false));
  proto::SequenceUpdate update;
  *update.add_rounds() = Round(1);
  EXPECT_TRUE(request.OnUpdate(0, update, 1));
  ASSERT_TRUE(request.Requeue(0));
  request.Start(0, 9, "replica-1", "cop-0", 2);
  EXPECT_TRUE(request.OnUpdate(0, update, 3));
  EXPECT_TRUE(request.OnUpdate(0, Finished({MakeHypothesis(Bytes("x"), -1, false)}), 4));
  const json trace = exchange_->body()["trace"];
  ASSERT_EQ(trace.size(), 2u);
  EXPECT_EQ(trace[0]["run"], 0);
  EXPECT_EQ(trace[1]["run"], 1);
}

TEST_F(TracedRequestTest, RoundsAreShownOnlyToWhoAsks) {
  GenerateRequest generate;
  Request& request = Make(generate);
  EXPECT_FALSE(request.StartMessage(0).forests());
  proto::SequenceUpdate update = Finished({MakeHypothesis(Bytes("x"), -1, false)});
  *update.add_rounds() = Round(1);
  EXPECT_TRUE(request.OnUpdate(0, update, 1));
  EXPECT_EQ(exchange_->body().count("trace"), 0u);
}

TEST_F(TracedRequestTest, AnImpossibleRoundIsRefused) {
  Request& request = Make(Traced(/*stream=*/false));
  proto::SequenceUpdate update;
  *update.add_rounds() = Round(1);
  update.mutable_rounds(0)->mutable_forest()->set_roots(0, 4);
  EXPECT_FALSE(request.OnUpdate(0, update, 1));
  EXPECT_EQ(request.error()->message, "replica-0: rounds: forest.roots[0]: 4 is not in [0, 1)");
}

}  // namespace
}  // namespace coppice::coordinator
