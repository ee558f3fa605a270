// On which draft nodes sessions are, and when they move: slow, loaded, late, dead and new nodes.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "tests/worker/draft_world.h"
#include "worker/draft_placement.h"

namespace coppice::worker {
namespace {

NodeSpeed Slower(double factor) {
  NodeSpeed speed;
  speed.level_s *= factor;
  speed.session_s *= factor;
  speed.token_s *= factor;
  return speed;
}
NodeSpeed Far(double message_s) {
  NodeSpeed speed;
  speed.message_s = message_s;
  return speed;
}

TEST(DraftMovesTest, EqualNodesShareTheSessions) {
  DraftWorld world(1, {{"a", {}}, {"b", {}}}, {"a", "b"});
  for (uint64_t id = 1; id <= 8; ++id) world.Begin(0, id);
  world.Advance(20);
  EXPECT_EQ(world.sessions("a"), 4);
  EXPECT_EQ(world.sessions("b"), 4);
  EXPECT_EQ(world.moves(DraftMove::kSlow), 0u);
}

TEST(DraftMovesTest, ASlowNodeKeepsFewSessions) {
  DraftWorld world(1, {{"fast", {}}, {"slow", Slower(4)}}, {"fast", "slow"});
  for (uint64_t id = 1; id <= 8; ++id) world.Begin(0, id);
  EXPECT_EQ(world.sessions("slow"), 4) << "nothing is known yet";
  world.Advance(20);
  EXPECT_LE(world.sessions("slow"), 1);
  const uint64_t moves = world.moves(DraftMove::kSlow);
  EXPECT_LE(moves, 4u);
  EXPECT_GE(moves, 3u);
  world.Advance(200);
  // After a minute without news the slow node is tried: one session goes there and comes back.
  EXPECT_LE(world.moves(DraftMove::kSlow), moves + 8);
}

TEST(DraftMovesTest, AFarNodeKeepsFewSessions) {
  DraftWorld world(1, {{"near", {}}, {"far", Far(0.03)}}, {"near", "far"});
  for (uint64_t id = 1; id <= 4; ++id) world.Begin(0, id);
  world.Advance(20);
  EXPECT_EQ(world.sessions("far"), 0);
  EXPECT_EQ(world.moves(DraftMove::kSlow), 2u);
}

// The old node makes drafts until the new one has read all, and no round waits for that.
TEST(DraftMovesTest, ASessionThatMovesGoesOnMeanwhile) {
  NodeSpeed fast;
  fast.token_s = 0.01;  // reads for longer than a second
  DraftWorld world(1, {{"fast", fast}, {"slow", Slower(8)}}, {"slow"});
  world.Begin(0, 1);
  world.Advance(4);
  EXPECT_EQ(world.run(1).plain, 0u);
  world.Join("fast");
  world.Begin(0, 2, /*prompt=*/2);
  world.Advance(0.5);  // the fast node is known
  const uint64_t before = world.run(1).drafted;
  while (world.moves(DraftMove::kSlow) == 0 && world.now_s() < 60) world.Advance(0.01);
  EXPECT_EQ(world.moves(DraftMove::kSlow), 1u);
  EXPECT_GT(world.run(1).drafted, before);
  world.Advance(1);
  EXPECT_EQ(world.run(1).plain, 0u);
  EXPECT_EQ(world.sessions("slow"), 0);
  EXPECT_EQ(world.sessions("fast"), 2);
}

TEST(DraftMovesTest, ANodeThatDiesMeanwhileLeavesTheMoveAsItIs) {
  NodeSpeed fast;
  fast.token_s = 0.01;
  DraftWorld world(1, {{"fast", fast}, {"slow", Slower(8)}}, {"slow"});
  world.Begin(0, 1);
  world.Advance(4);
  world.Join("fast");
  world.Begin(0, 2, /*prompt=*/2);
  while (world.sessions("fast") < 2 && world.now_s() < 60) world.Advance(0.01);
  world.Advance(1);
  EXPECT_EQ(world.sessions("slow"), 1);
  const double begun_s = world.now_s() - 1;
  world.Leave("slow", /*kill=*/true);
  while (world.run(1).reasons[NoDraftReason::kReading] == 0 && world.now_s() < 60)
    world.Advance(0.01);
  const uint64_t before = world.run(1).drafted;
  while (world.run(1).drafted == before && world.now_s() < 60) world.Advance(0.01);
  const int tokens = 100 + static_cast<int>(before);
  EXPECT_LT(world.now_s() - begun_s, 1.2 * tokens * fast.token_s) << "it was read once";
  EXPECT_EQ(world.sessions("fast"), 2);
}

TEST(DraftMovesTest, AMoveMustPay) {
  NodeSpeed fast;
  fast.token_s = 0.001;
  for (const int max_tokens : {200, 1000000}) {
    DraftWorld world(1, {{"fast", fast}, {"slow", Slower(2)}}, {"slow"});
    world.Begin(0, 1, /*prompt=*/1000, max_tokens);
    world.Advance(0.5);
    world.Join("fast");
    world.Begin(0, 2, /*prompt=*/10);
    world.Advance(2);
    // Each round saves 4 ms, and to read the prompt takes a second.
    EXPECT_EQ(world.moves(DraftMove::kSlow), 0u);
    world.Advance(20);
    EXPECT_EQ(world.moves(DraftMove::kSlow), max_tokens == 200 ? 0u : 1u);
  }
}

TEST(DraftMovesTest, ANewNodeGetsItsShare) {
  DraftWorld world(1, {{"old", {}}, {"new", {}}}, {"old"});
  for (uint64_t id = 1; id <= 8; ++id) world.Begin(0, id);
  world.Advance(5);
  world.Join("new");
  world.Advance(10);
  EXPECT_GE(world.sessions("new"), 2);
  EXPECT_LE(world.sessions("new"), 4);
  EXPECT_EQ(world.moves(DraftMove::kSlow), static_cast<uint64_t>(world.sessions("new")));
}

// Otherwise both replicas would take the same node for free.
TEST(DraftMovesTest, SessionsOfOtherReplicasCount) {
  DraftWorld world(2, {{"a", {}}, {"b", {}}}, {"a"});
  for (uint64_t id = 1; id <= 6; ++id) world.Begin(0, id);
  world.Advance(2);
  world.Join("b");
  world.Begin(1, 11);
  world.Begin(1, 12);
  world.Advance(0.1);  // it knows both
  for (uint64_t id = 13; id <= 20; ++id) world.Begin(1, id);
  EXPECT_EQ(world.sessions("a") + world.sessions("b"), 16);
  EXPECT_LE(std::abs(world.sessions("a") - world.sessions("b")), 2);
}

TEST(DraftMovesTest, ALateNodeIsLeftAfterAWhileAndReturnsWithoutAStampede) {
  DraftWorld world(1, {{"a", {}}, {"b", {}}}, {"a", "b"});
  for (uint64_t id = 1; id <= 8; ++id) world.Begin(0, id);
  world.Advance(2);
  world.Stop("a", 0.15);  // a stall
  world.Advance(1);
  EXPECT_EQ(world.moves(DraftMove::kLate), 0u);
  EXPECT_EQ(world.sessions("a"), 4);
  world.Stop("a", 30);
  world.Advance(3);
  EXPECT_EQ(world.moves(DraftMove::kLate), 4u);
  EXPECT_EQ(world.sessions("b"), 8);
  world.Advance(40);
  EXPECT_GE(world.sessions("a"), 2) << "it is back";
  EXPECT_EQ(world.sessions("a") + world.sessions("b"), 8);
}

// Pulses: half of the time the node stands still.
TEST(DraftMovesTest, ANodeThatIsLateAgainAndAgainIsLeftAlone) {
  DraftWorld world(1, {{"a", {}}, {"b", {}}}, {"a", "b"});
  for (uint64_t id = 1; id <= 4; ++id) world.Begin(0, id);
  uint64_t first = 0;
  for (int i = 0; i < 240; ++i) {
    if (i % 2 == 0) world.Stop("a", 0.5);
    world.Advance(0.5);
    if (i == 119) first = world.moves(DraftMove::kLate) + world.moves(DraftMove::kSlow);
  }
  const uint64_t all = world.moves(DraftMove::kLate) + world.moves(DraftMove::kSlow);
  EXPECT_LE(first, 30u);
  EXPECT_LE(all - first, 8u) << "less and less often";
  uint64_t plain = 0, drafted = 0;
  for (uint64_t id = 1; id <= 4; ++id) {
    plain += world.run(id).plain;
    drafted += world.run(id).drafted;
  }
  EXPECT_LT(plain, drafted / 10);
}

TEST(DraftMovesTest, ADeadNodeCostsPlainRoundsUntilAnotherHasRead) {
  for (const bool kill : {false, true}) {  // false: it was drained
    DraftWorld world(1, {{"a", {}}, {"b", {}}}, {"a", "b"});
    for (uint64_t id = 1; id <= 4; ++id) world.Begin(0, id, /*prompt=*/1000);
    world.Advance(2);
    world.Leave("a", kill);
    world.Advance(2);
    EXPECT_EQ(world.moves(DraftMove::kGone), 2u);
    EXPECT_EQ(world.sessions("b"), 4);
    int reading = 0;
    for (uint64_t id = 1; id <= 4; ++id) {
      reading += world.run(id).reasons[NoDraftReason::kReading];
      EXPECT_LT(world.run(id).plain, 40u);
    }
    EXPECT_GT(reading, 5) << "they did not wait";
    EXPECT_LT(reading, 60);
  }
}

TEST(DraftMovesTest, AMoveToANodeThatNeverReadsIsAbandoned) {
  DraftWorld world(1, {{"a", {}}, {"hung", {}}}, {"a"});
  for (uint64_t id = 1; id <= 6; ++id) world.Begin(0, id);
  world.Advance(2);
  world.node("hung").loses_opens = true;
  world.Join("hung");
  world.Advance(2);
  EXPECT_EQ(world.sessions("hung"), 1) << "one at a time";
  world.Advance(6);
  EXPECT_EQ(world.sessions("a"), 6);
  EXPECT_EQ(world.moves(DraftMove::kSlow), 0u);
  for (uint64_t id = 1; id <= 6; ++id) EXPECT_EQ(world.run(id).plain, 0u);
}

// A minute of two replicas with eight requests each, that take eight seconds.
struct Minute {
  double layers_per_s = 0;
  uint64_t slow = 0, late = 0;  // moves
};
Minute Serve(const NodeSpeed& a, const NodeSpeed& b, bool b_stops) {
  DraftWorld world(2, {{"a", a}, {"b", b}}, {"a", "b"});
  uint64_t layers = 0, next = 0;
  std::vector<std::pair<double, uint64_t>> ends;  // when each request ends
  for (int i = 0; i < 16; ++i) {
    world.Begin(i % 2, ++next);
    ends.push_back({2 + 0.5 * i, next});
  }
  const double begin_s = world.now_s();
  for (int tenth = 0; tenth < 600; ++tenth) {
    if (b_stops && tenth % 10 == 0) world.Stop("b", 0.5);
    world.Advance(0.1);
    for (auto& [end_s, id] : ends) {
      if (world.now_s() - begin_s < end_s) continue;
      const DraftWorld::Run& run = world.run(id);
      layers += 3 * run.drafted + run.plain;
      const int client = run.client;
      world.End(id);
      world.Begin(client, id = ++next);
      end_s += 8;
    }
  }
  return {(layers + world.Layers()) / 60.0, world.moves(DraftMove::kSlow),
          world.moves(DraftMove::kLate)};
}
// Half of the sessions on each node, for ever.
double Halves(const NodeSpeed& a, const NodeSpeed& b) {
  double layers_per_s = 0;
  for (const NodeSpeed& node : {a, b}) {
    const double level_s = node.level_s + 7 * node.session_s;
    layers_per_s += 8 * 3 / (DraftWorld::kPass_s + DraftWorld::kDepth * level_s + node.message_s);
  }
  return layers_per_s;
}

TEST(DraftMovesTest, TwoReplicasAndTwoNodes) {
  NodeSpeed flat, slow_flat = Slower(4);
  flat.session_s = 0.00005;
  slow_flat.session_s = 0.0002;
  struct Case {
    const char* what;
    NodeSpeed a, b;
    bool b_stops;
    double least;  // of the rate of halves
  };
  for (const Case& one :
       std::vector<Case>{{"equal", {}, {}, false, 0.97},
                         {"one 4 times slower", {}, Slower(4), false, 1.05},
                         {"the same, sessions cost less", flat, slow_flat, false, 1.1},
                         {"one 30 ms away", {}, Far(0.03), false, 1.05},
                         {"one stops half of the time", {}, {}, true, 0.75}}) {
    const Minute minute = Serve(one.a, one.b, one.b_stops);
    const double halves = Halves(one.a, one.b);
    std::cout << one.what << ": " << minute.layers_per_s << " layers per second, halves " << halves
              << "; moves: slow " << minute.slow << ", late " << minute.late << "\n";
    EXPECT_GT(minute.layers_per_s, one.least * halves) << one.what;
    EXPECT_LE(minute.slow + minute.late, 100u) << one.what;  // of about 120 sequences
  }
}

TEST(DraftPlacementTest, AReplyThatLayUnseenCountsAsNoLaterThanItMustBe) {
  DraftNodeEstimate seen, unseen;
  for (int i = 0; i < 20; ++i) {
    seen.RecordReply({4, 0.0042, 0, 0.004}, 1, i);
    unseen.RecordReply({4, 0.0142, 0.0139, 0.004}, 1, i);
  }
  EXPECT_NEAR(seen.Reply(4, 1), 0.0042, 1e-4);
  EXPECT_LT(unseen.Reply(4, 1), 0.0052);
  for (int i = 0; i < 20; ++i) seen.RecordReply({4, 0.0142, 0, 0.004}, 1, 20 + i);
  EXPECT_GT(seen.Reply(4, 1), 0.012) << "the engine waited for it";
}

// Another replica has just filled a node; its next reply here is still to come.
TEST(DraftPlacementTest, SessionsOfOtherReplicasMakeANodeBusy) {
  DraftNodeEstimate a, b;
  for (DraftNodeEstimate* node : {&a, &b}) {
    node->RecordSessions(1, 1);
    node->RecordReply({4, 0.0042, 0, 0.004}, 1, 0);
  }
  std::vector<DraftNodeState> nodes = {{&a}, {&b}};
  nodes[0].sessions = 1;
  nodes[1].sessions = 3;
  EXPECT_EQ(BestDraftNode(nodes, /*except=*/-1, /*depth=*/4, /*now_s=*/1), 0);
  a.RecordSessions(9, 1);
  EXPECT_EQ(a.others(), 8);
  EXPECT_EQ(BestDraftNode(nodes, -1, 4, 1), 1);
  EXPECT_NEAR(a.Reply(4, 1), 0.0002 + 0.004 * 13 / 5, 1e-9);
}

TEST(DraftPlacementTest, ASingleStallSaysLittle) {
  DraftNodeEstimate node;
  for (int i = 0; i < 20; ++i) node.RecordReply({4, 0.0042, 0, 0.004}, 1, i);
  node.RecordReply({4, 2, 0, 2}, 1, 20);
  EXPECT_LT(node.Reply(4, 1), 1.3 * 0.0042);
}

TEST(DraftPlacementTest, WhatWasMeasuredIsForgotten) {
  DraftNodeEstimate node;
  EXPECT_FALSE(node.known(0));
  node.RecordReply({4, 0.0042, 0, 0.004}, 1, 10);
  EXPECT_TRUE(node.known(69));
  EXPECT_FALSE(node.known(71));
}

TEST(DraftPlacementTest, MovesOfOneSequenceGetRarer) {
  SessionMove move{.now_s = 0.02,
                   .then_s = 0.01,
                   .reading_s = 0,
                   .rounds_run = 16,
                   .rounds_since_move = 16,
                   .most_rounds_left = 1000};
  EXPECT_TRUE(WorthMoving(move));
  move.rounds_since_move = 15;
  EXPECT_FALSE(WorthMoving(move));
  move.rounds_run = 1000;
  move.rounds_since_move = 499;
  EXPECT_FALSE(WorthMoving(move));
  move.rounds_since_move = 500;
  EXPECT_TRUE(WorthMoving(move));
  move.then_s = 0.016;
  EXPECT_FALSE(WorthMoving(move)) << "not much faster";
  move.then_s = 0.01;
  move.reading_s = 10.1;
  EXPECT_FALSE(WorthMoving(move)) << "a second for each hundred rounds";
  move.reading_s = 9.9;
  EXPECT_TRUE(WorthMoving(move));
  move.most_rounds_left = 10;
  EXPECT_FALSE(WorthMoving(move)) << "it ends soon";
}

}  // namespace
}  // namespace coppice::worker
