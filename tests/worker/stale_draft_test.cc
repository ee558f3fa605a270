// Answers of a draft node that nobody awaits: for an old round, for no round, for an unknown
// session, and repeated.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/worker/draft_client_fixture.h"

namespace coppice::worker {
namespace {

class StaleDraftTest : public DraftClientTest {
 protected:
  proto::DraftRequest Request() {
    const auto command = node_.Next(proto::DraftCommand::kDraft);
    EXPECT_TRUE(command.has_value());
    return command.has_value() ? command->draft() : proto::DraftRequest();
  }
  static proto::DraftReply ReplyWith(const proto::DraftRequest& request, TokenId token) {
    proto::DraftReply reply = ReplyTo(request);
    reply.mutable_forest()->set_token(0, token);
    return reply;
  }
  // Sends an answer that must have no effect. An announcement after it shows when it was read.
  void SendToNobody(const proto::DraftReply& reply, double now_s) {
    node_.Send(reply);
    SendAnnouncement();
    const double read_s = now_s + comm::kStayAwake_s;
    for (int i = 0; i < 200 && client_->awake_until_s() != read_s; ++i) {
      EXPECT_TRUE(client_->Receive(now_s).empty());
      const auto sockets = client_->sockets();
      comm::Poll(sockets, 10);
    }
    EXPECT_EQ(client_->awake_until_s(), read_s);
  }
  uint64_t Dropped(DroppedDraft reason) const {
    const auto found = client_->dropped().find(reason);
    return found == client_->dropped().end() ? 0 : found->second;
  }
  void ExpectForest(TokenId token, double now_s) {
    const std::vector<DraftArrival> arrivals = Arrivals(now_s);
    ASSERT_EQ(arrivals.size(), 1u);
    EXPECT_EQ(arrivals[0].sequence_id, 7u);
    EXPECT_EQ(arrivals[0].failed, NoDraftReason::kNone);
    EXPECT_EQ(arrivals[0].forest.token, (std::vector<TokenId>{token}));
  }
};

INSTANTIATE_TEST_SUITE_P(Transports, StaleDraftTest,
                         ::testing::Values("tcp://127.0.0.1:*", "direct://127.0.0.1:*"),
                         [](const auto& info) {
                           return std::string(info.index == 0 ? "Zmq" : "Direct");
                         });

TEST_P(StaleDraftTest, ALateForestOfTheRoundBeforeIsNotTakenForThisRounds) {
  Join({{&node_, "a"}});
  double now_s = 1;
  for (TokenId token = 3; token < 6; ++token) {
    ASSERT_EQ(Ask(now_s), NoDraftReason::kNone);
    const proto::DraftRequest before = Request();
    client_->GaveUp(7, now_s + 0.5);
    Decide();
    ASSERT_EQ(Ask(now_s + 2), NoDraftReason::kNone);  // a late node is asked again
    const proto::DraftRequest now = Request();
    ASSERT_EQ(now.session_id(), before.session_id());
    ASSERT_NE(now.round(), before.round());
    SendToNobody(ReplyWith(before, 9), now_s + 2.1);
    node_.Send(ReplyWith(now, token));
    ExpectForest(token, now_s + 2.2);
    Decide();
    now_s += 3;
  }
  EXPECT_EQ(client_->dropped(), (std::map<DroppedDraft, uint64_t>{{DroppedDraft::kOtherRound, 3}}));
}

TEST_P(StaleDraftTest, AForestThatWasGivenUpIsCounted) {
  Join({{&node_, "a"}});
  ASSERT_EQ(Ask(1), NoDraftReason::kNone);
  const proto::DraftRequest request = Request();
  client_->GaveUp(7, 1.5);
  SendToNobody(ReplyWith(request, 9), 1.6);
  EXPECT_EQ(client_->dropped(), (std::map<DroppedDraft, uint64_t>{{DroppedDraft::kGivenUp, 1}}));
}

TEST_P(StaleDraftTest, AForestOfARoundToComeIsNotTakenForThisRounds) {
  Join({{&node_, "a"}});
  ASSERT_EQ(Ask(1), NoDraftReason::kNone);
  const proto::DraftRequest request = Request();
  proto::DraftReply reply = ReplyWith(request, 9);
  reply.set_round(request.round() + 1);
  SendToNobody(reply, 1.1);
  node_.Send(ReplyWith(request, 3));
  ExpectForest(3, 1.2);
}

TEST_P(StaleDraftTest, AnAnswerForNobodyIsPassedOver) {
  Join({{&node_, "a"}});
  client_->Open(sequence_);
  const auto open = node_.Next(proto::DraftCommand::kOpen);
  ASSERT_TRUE(open.has_value());
  proto::DraftRequest unasked;  // round 0 of the session
  unasked.set_session_id(open->open().session_id());
  unasked.mutable_state()->add_root_trie(0);
  SendToNobody(ReplyWith(unasked, 9), 0.5);
  ASSERT_EQ(Ask(1), NoDraftReason::kNone);
  const proto::DraftRequest request = Request();
  proto::DraftReply unknown = ReplyWith(request, 9);
  unknown.set_session_id(request.session_id() + 1);
  SendToNobody(unknown, 1.1);
  EXPECT_EQ(Dropped(DroppedDraft::kNoSession), 1);
  unknown.set_error("no such session");
  SendToNobody(unknown, 1.2);
  EXPECT_EQ(Dropped(DroppedDraft::kNoSession), 1);  // that was no draft
  node_.Send(ReplyWith(request, 3));
  ExpectForest(3, 1.3);
  SendToNobody(ReplyWith(request, 9), 1.4);  // the same answer again
  Decide();
  ASSERT_EQ(Ask(2), NoDraftReason::kNone);
  const proto::DraftRequest next = Request();
  client_->Close(7);
  SendToNobody(ReplyWith(next, 9), 2.1);
  EXPECT_EQ(client_->sessions_on("a"), 0);
  EXPECT_EQ(Dropped(DroppedDraft::kNoSession), 2);
}

// A refusal of a round that was given up closes the session. It is not reported.
TEST_P(StaleDraftTest, ALateRefusalIsPassedOver) {
  Join({{&node_, "a"}});
  ASSERT_EQ(Ask(1), NoDraftReason::kNone);
  const proto::DraftRequest request = Request();
  client_->GaveUp(7, 1.5);
  Decide();
  proto::DraftReply refusal;
  refusal.set_session_id(request.session_id());
  refusal.set_round(request.round());
  refusal.set_error("all 1 sessions are taken");
  SendToNobody(refusal, 1.6);
  EXPECT_EQ(client_->sessions_on("a"), 0);
  EXPECT_EQ(Ask(1.7), NoDraftReason::kRefused);
}

}  // namespace
}  // namespace coppice::worker
