// The leader's side of drafting, with a fake draft node on a real socket.
#include "worker/draft_client.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "decoding/method.h"
#include "tests/worker/draft_client_fixture.h"

namespace coppice::worker {
namespace {

INSTANTIATE_TEST_SUITE_P(Transports, DraftClientTest,
                         ::testing::Values("tcp://127.0.0.1:*", "direct://127.0.0.1:*"),
                         [](const auto& info) {
                           return std::string(info.index == 0 ? "Zmq" : "Direct");
                         });

void ExpectForestOfSeven(const std::vector<DraftArrival>& arrivals) {
  ASSERT_EQ(arrivals.size(), 1u);
  EXPECT_EQ(arrivals[0].sequence_id, 7u);
  EXPECT_EQ(arrivals[0].failed, NoDraftReason::kNone);
  EXPECT_EQ(arrivals[0].forest.size(), 1);
}

TEST_P(DraftClientTest, WithoutNodesRoundsGoPlain) { EXPECT_EQ(Ask(0), NoDraftReason::kNoNode); }

TEST_P(DraftClientTest, OpensASessionAsksAndTakesTheForest) {
  Join({{&node_, "a"}});
  sequence_.trace = {"4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", "01", "a=1"};
  client_->Open(sequence_);
  ASSERT_EQ(Ask(1), NoDraftReason::kNone);
  // The first answer includes the node's prefill, so it gets the longest deadline.
  EXPECT_DOUBLE_EQ(deadline_s_, 1.5);
  const auto open = node_.Next(proto::DraftCommand::kOpen);
  ASSERT_TRUE(open.has_value());
  EXPECT_EQ(open->open().prompt_size(), 3);
  EXPECT_EQ(open->open().trace().parent(),
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  EXPECT_EQ(open->open().trace().state(), "a=1");
  const auto request = node_.Next(proto::DraftCommand::kDraft);
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(request->draft().trie_token_size(), 1);  // the only generated token is the root
  node_.Send(ReplyTo(request->draft()));
  ExpectForestOfSeven(Arrivals(1.01));
}

TEST_P(DraftClientTest, StableTokensAreSentOnce) {
  Join({{&node_, "a"}});
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(Ask(round), NoDraftReason::kNone);
    const auto request = node_.Next(proto::DraftCommand::kDraft);
    ASSERT_TRUE(request.has_value());
    EXPECT_EQ(request->draft().stable_length(), static_cast<uint32_t>(round));
    EXPECT_EQ(request->draft().stable_tokens_size(), round == 0 ? 0 : 1);
    node_.Send(ReplyTo(request->draft()));
    ASSERT_EQ(Arrivals(round + 0.01).size(), 1u);
    Decide();
  }
}

// The first forest of a session waits for its prefill, and one after many rounds without drafts for
// what was decided in them.
TEST_P(DraftClientTest, TellsWhetherTheNodeHadToCatchUp) {
  Join({{&node_, "a"}});
  const auto caught_up = [&](int round) {
    EXPECT_EQ(Ask(round), NoDraftReason::kNone);
    node_.Send(ReplyTo(node_.Next(proto::DraftCommand::kDraft)->draft()));
    return Arrivals(round + 0.01).at(0).caught_up;
  };
  EXPECT_FALSE(caught_up(0));
  Decide();
  EXPECT_TRUE(caught_up(1));
  for (int i = 0; i < 40; ++i) Decide();
  EXPECT_FALSE(caught_up(2));
  Decide();
  EXPECT_TRUE(caught_up(3));
}

TEST_P(DraftClientTest, ALateNodeIsNotWaitedForUntilItAnswersAgain) {
  Join({{&node_, "a"}});
  ASSERT_EQ(Ask(1), NoDraftReason::kNone);
  const auto request = node_.Next(proto::DraftCommand::kDraft);
  ASSERT_TRUE(request.has_value());
  client_->GaveUp(7, 1.5);
  Decide();
  EXPECT_EQ(Ask(1.6), NoDraftReason::kLate);
  node_.Send(ReplyTo(request->draft()));  // of the old round: it must not be returned
  SendAnnouncement();                     // shows when it was read
  EXPECT_DOUBLE_EQ(AwakeUntil(1.7), 1.7 + comm::kStayAwake_s);
  EXPECT_EQ(Ask(1.8), NoDraftReason::kNone);
}

TEST_P(DraftClientTest, ALateNodeLosesItsSessionToOneThatIsNot) {
  Join({{&node_, "a"}});
  ASSERT_EQ(Ask(1), NoDraftReason::kNone);
  client_->GaveUp(7, 1.5);
  Join({{&node_, "a"}, {&other_, "b"}});
  Decide();
  EXPECT_EQ(Ask(1.6), NoDraftReason::kReading);
  TellRead(&other_, 1.7);
  EXPECT_EQ(Ask(1.8), NoDraftReason::kNone);
  EXPECT_TRUE(other_.Next(proto::DraftCommand::kDraft).has_value());
  EXPECT_EQ(client_->sessions_on("a"), 0);
  EXPECT_EQ(client_->sessions_on("b"), 1);
  EXPECT_EQ(client_->moves(), (std::map<DraftMove, uint64_t>{{DraftMove::kLate, 1}}));
}

TEST_P(DraftClientTest, AVanishedNodeFailsTheRoundAtOnceAndTheNextOpensElsewhere) {
  Join({{&node_, "a"}});
  ASSERT_EQ(Ask(1), NoDraftReason::kNone);
  Join({{&other_, "b"}});
  const auto arrivals = client_->Receive(1.1);
  ASSERT_EQ(arrivals.size(), 1u);
  EXPECT_EQ(arrivals[0].failed, NoDraftReason::kDead);
  Decide();
  EXPECT_EQ(Ask(1.2), NoDraftReason::kReading);
  TellRead(&other_, 1.3);
  EXPECT_EQ(Ask(1.4), NoDraftReason::kNone);
  EXPECT_EQ(client_->moves(), (std::map<DraftMove, uint64_t>{{DraftMove::kGone, 1}}));
}

TEST_P(DraftClientTest, ARefusalIsReportedAndNotRepeatedEveryRound) {
  Join({{&node_, "a"}});
  ASSERT_EQ(Ask(1), NoDraftReason::kNone);
  Refuse(&node_);
  const auto arrivals = Arrivals(1.1);
  ASSERT_EQ(arrivals.size(), 1u);
  EXPECT_EQ(arrivals[0].failed, NoDraftReason::kRefused);
  EXPECT_EQ(Ask(1.2), NoDraftReason::kRefused);
  EXPECT_EQ(Ask(2.5), NoDraftReason::kReading);
  EXPECT_EQ(client_->moves(), (std::map<DraftMove, uint64_t>{{DraftMove::kRefused, 1}}));
}

TEST_P(DraftClientTest, ASessionThatWasRefusedTriesAnotherNode) {
  Join({{&node_, "a"}});
  ASSERT_EQ(Ask(1), NoDraftReason::kNone);
  Refuse(&node_);
  ASSERT_EQ(Arrivals(1.1).size(), 1u);
  Join({{&other_, "b"}});
  Sequence second;
  Begin(8, &second);
  client_->Open(second);
  Join({{&node_, "a"}, {&other_, "b"}});
  EXPECT_EQ(Ask(2.5), NoDraftReason::kReading);
  EXPECT_EQ(client_->sessions_on("a"), 0);
  EXPECT_EQ(client_->sessions_on("b"), 2);
}

TEST_P(DraftClientTest, ATimeThatIsNoneIsAMismatch) {
  Join({{&node_, "a"}});
  const std::vector<std::function<void(proto::DraftReply*)>> spoilers = {
      [](auto* reply) { reply->set_draft_ms(NAN); },
      [](auto* reply) { reply->set_draft_ms(-1e-3); },
      [](auto* reply) { reply->set_draft_ms(INFINITY); },
      [](auto* reply) { reply->set_model_ms(NAN); },
      [](auto* reply) { reply->set_model_ms(-INFINITY); },
      [](auto* reply) { reply->set_model_ms(1e300); },
  };
  double now_s = 1;
  for (const auto& spoil : spoilers) {
    ASSERT_EQ(Ask(++now_s), NoDraftReason::kNone);
    const auto request = node_.Next(proto::DraftCommand::kDraft);
    ASSERT_TRUE(request.has_value());
    proto::DraftReply reply = ReplyTo(request->draft());
    spoil(&reply);
    node_.Send(reply);
    const auto arrivals = Arrivals(now_s + 0.1);
    ASSERT_EQ(arrivals.size(), 1u);
    EXPECT_EQ(arrivals[0].failed, NoDraftReason::kMismatch) << reply.DebugString();
    EXPECT_EQ(arrivals[0].forest.size(), 0);
    EXPECT_EQ(arrivals[0].draft_s, 0);
    EXPECT_EQ(arrivals[0].model_s, 0);
    Decide();
  }
}

// The answer must be a forest of at most the requested size (4 nodes in 2 layers).
TEST_P(DraftClientTest, AForestThatBreaksTheRulesIsAMismatch) {
  Join({{&node_, "a"}});
  const std::vector<std::function<void(proto::Forest*)>> spoilers = {
      [](auto* forest) { forest->set_token(0, kVocab); },
      [](auto* forest) { forest->set_parent(0, -2); },
      [](auto* forest) { forest->set_num_roots(2); },
      [](auto* forest) {  // a third layer
        for (int layer = 1; layer < 3; ++layer) {
          forest->add_token(3);
          forest->add_parent(layer - 1);
          forest->add_layer_begin(layer + 1);
        }
      },
      [](auto* forest) {  // nine nodes
        for (int token = 4; token < 12; ++token) {
          forest->add_token(token);
          forest->add_parent(-1);
        }
        forest->set_layer_begin(1, 9);
      },
  };
  double now_s = 1;
  for (const auto& spoil : spoilers) {
    ASSERT_EQ(Ask(++now_s), NoDraftReason::kNone);
    const auto request = node_.Next(proto::DraftCommand::kDraft);
    ASSERT_TRUE(request.has_value());
    proto::DraftReply reply = ReplyTo(request->draft());
    spoil(reply.mutable_forest());
    node_.Send(reply);
    const auto arrivals = Arrivals(now_s + 0.1);
    ASSERT_EQ(arrivals.size(), 1u);
    EXPECT_EQ(arrivals[0].failed, NoDraftReason::kMismatch);
    Decide();
  }
}

// Otherwise a node in disorder would end the drafts of the others, and would seem to have ever
// fewer sessions, so that all new ones came to it.
TEST_P(DraftClientTest, ANodeDoesNotAnswerForTheSessionsOfAnother) {
  Join({{&node_, "a"}});
  ASSERT_EQ(Ask(1), NoDraftReason::kNone);
  const auto request = node_.Next(proto::DraftCommand::kDraft);
  ASSERT_TRUE(request.has_value());
  Join({{&node_, "a"}, {&other_, "b"}});
  Sequence second;
  Begin(8, &second);
  client_->Open(second);
  ASSERT_TRUE(other_.Next(proto::DraftCommand::kOpen).has_value());
  proto::DraftReply failure, last;
  failure.set_session_id(request->draft().session_id());
  failure.set_error("out of order");
  last.set_announces(true);
  for (const proto::DraftReply& reply : {failure, ReplyTo(request->draft()), last})
    other_.Send(reply);
  for (int i = 0; i < 200 && client_->awake_until_s() == 0; ++i) {
    EXPECT_TRUE(client_->Receive(1.1).empty());
    const auto sockets = client_->sockets();
    comm::Poll(sockets, 10);
  }
  EXPECT_GT(client_->awake_until_s(), 0);
  EXPECT_EQ(client_->sessions_on("a"), 1);
  EXPECT_EQ(client_->sessions_on("b"), 1);
  node_.Send(ReplyTo(request->draft()));
  const auto arrivals = Arrivals(1.2);
  ASSERT_EQ(arrivals.size(), 1u);
  EXPECT_EQ(arrivals[0].failed, NoDraftReason::kNone);
}

TEST_P(DraftClientTest, RequestsAreAnnouncedOnceToEachNodeConcerned) {
  Join({{&node_, "a"}});
  Sequence second, elsewhere;
  Begin(8, &second);
  Begin(9, &elsewhere);
  client_->Open(sequence_);
  client_->Open(second);
  Join({{&node_, "a"}, {&other_, "b"}});
  client_->Open(elsewhere);
  ASSERT_EQ(client_->sessions_on("a"), 2);
  ASSERT_EQ(client_->sessions_on("b"), 1);
  // A close follows each announcement. When Next returns it, the announcement has been read.
  const auto announced = [&](std::vector<uint64_t> ids) {
    const int before[] = {node_.announced(), other_.announced()};
    client_->Announce(ids);
    client_->Close(8);
    client_->Close(9);
    EXPECT_TRUE(node_.Next(proto::DraftCommand::kClose).has_value());
    EXPECT_TRUE(other_.Next(proto::DraftCommand::kClose).has_value());
    client_->Open(elsewhere);  // on "b", which has the fewest sessions
    client_->Open(second);
    return std::pair(node_.announced() - before[0], other_.announced() - before[1]);
  };
  EXPECT_EQ(announced({7, 8}), std::pair(1, 0));
  EXPECT_EQ(announced({9}), std::pair(0, 1));
  EXPECT_EQ(announced({7, 9, 8}), std::pair(1, 1));
  EXPECT_EQ(announced({77, 7, 7}), std::pair(1, 0));
  EXPECT_EQ(announced({77}), std::pair(0, 0));  // was never opened
  EXPECT_EQ(announced({}), std::pair(0, 0));
}

TEST_P(DraftClientTest, ARequestAfterItsAnnouncementIsAskedAndTaken) {
  Join({{&node_, "a"}});
  client_->Announce({{7}});  // no session yet
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(Ask(round), NoDraftReason::kNone);
    const auto request = node_.Next(proto::DraftCommand::kDraft);
    ASSERT_TRUE(request.has_value());
    EXPECT_EQ(node_.announced(), round);
    node_.Send(ReplyTo(request->draft()));
    ASSERT_EQ(Arrivals(round + 0.01).size(), 1u);
    Decide();
    client_->Announce({{7}});
  }
}

TEST_P(DraftClientTest, AnAnnouncedForestIsWaitedForAwakeAndTakenAsUsual) {
  Join({{&node_, "a"}});
  EXPECT_EQ(client_->awake_until_s(), 0);
  ASSERT_EQ(Ask(1), NoDraftReason::kNone);
  const auto request = node_.Next(proto::DraftCommand::kDraft);
  ASSERT_TRUE(request.has_value());
  SendAnnouncement();
  EXPECT_DOUBLE_EQ(AwakeUntil(1.01), 1.01 + comm::kStayAwake_s);
  SendAnnouncement();
  EXPECT_DOUBLE_EQ(AwakeUntil(1.02), 1.02 + comm::kStayAwake_s);
  EXPECT_EQ(client_->sessions_on("a"), 1);
  node_.Send(ReplyTo(request->draft()));
  ExpectForestOfSeven(Arrivals(1.03));
  EXPECT_EQ(client_->awake_until_s(), 0);
}

TEST_P(DraftClientTest, AnAnnouncementIsNoAnswer) {
  Join({{&node_, "a"}});
  client_->Open(sequence_);
  ASSERT_TRUE(node_.Next(proto::DraftCommand::kOpen).has_value());
  SendAnnouncement();  // nothing was requested
  EXPECT_DOUBLE_EQ(AwakeUntil(0.5), 0.5 + comm::kStayAwake_s);
  ASSERT_EQ(Ask(1), NoDraftReason::kNone);
  const auto request = node_.Next(proto::DraftCommand::kDraft);
  ASSERT_TRUE(request.has_value());
  client_->GaveUp(7, 1.5);
  Decide();
  EXPECT_EQ(Ask(1.6), NoDraftReason::kLate);
  SendAnnouncement();
  EXPECT_DOUBLE_EQ(AwakeUntil(1.65), 1.65 + comm::kStayAwake_s);
  EXPECT_EQ(Ask(1.7), NoDraftReason::kLate);
  node_.Send(ReplyTo(request->draft()));  // for an old round
  for (int i = 0; i < 200 && client_->awake_until_s() > 0; ++i) {
    EXPECT_TRUE(client_->Receive(1.75).empty());
    comm::Poll(client_->sockets(), 10);
  }
  EXPECT_EQ(client_->awake_until_s(), 0);
  EXPECT_EQ(Ask(1.8), NoDraftReason::kNone);
}

// Repeated draws and long rows also cost time and memory.
TEST(CheckForestTest, DrawsAndProposalsStayWithinWhatWasAskedFor) {
  decoding::DraftForest forest = decoding::DraftForest::Empty(1);
  forest.Add(RootId{0}, 3);
  forest.layer_begin = {0, 1};
  forest.draws.assign(4, NodeId{0});
  forest.draws_begin = {0, 4};
  const double half = -0.69314718055994531;
  forest.proposals = {{RootId{0}, 0, {{3, 4}, {half, half}}}};
  ASSERT_TRUE(forest.Validate(kVocab).ok());
  AskedForest asked{decoding::FindMethod("dsbd"), /*roots=*/1, /*depth=*/1, /*nodes=*/4,
                    /*support=*/2};
  EXPECT_TRUE(CheckForest(forest, asked).ok()) << CheckForest(forest, asked);
  asked.nodes = 3;
  EXPECT_EQ(CheckForest(forest, asked).message(), "draft forest: draws 4, asked for 3");
  asked.nodes = 4;
  asked.support = 1;
  EXPECT_EQ(CheckForest(forest, asked).message(),
            "draft forest: proposals: entries of node -1 2, asked for 1");
}

TEST_P(DraftClientTest, WhatTheVerifierCannotUseIsAMismatch) {
  sequence_.params.kind = sampling::DecodingKind::kBeamSampling;
  sequence_.params.beam_width = 2;
  sequence_.params.method = decoding::FindMethod("dsbd");
  sequence_.draft = decoding::DraftSizeOf(sequence_.params);
  sequence_.decoder = *decoding::MakeBeamDecoder(sequence_.params);
  Decide();
  Join({{&node_, "a"}});
  ASSERT_EQ(Ask(1), NoDraftReason::kNone);
  const auto request = node_.Next(proto::DraftCommand::kDraft);
  ASSERT_TRUE(request.has_value());
  node_.Send(ReplyTo(request->draft()));  // a tree without its draws and proposals
  const auto arrivals = Arrivals(1.1);
  ASSERT_EQ(arrivals.size(), 1u);
  EXPECT_EQ(arrivals[0].failed, NoDraftReason::kMismatch);
}

}  // namespace
}  // namespace coppice::worker
