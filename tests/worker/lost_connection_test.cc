// The leader's side of drafting when the connection to a draft node ends.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/worker/draft_client_fixture.h"

namespace coppice::worker {
namespace {

// A direct connection reports its end. Then nobody waits for the deadline of the draft.
class LostConnectionTest : public DraftClientTest {
 protected:
  LostConnectionTest() : DraftClientTest("direct://127.0.0.1:*") {}
  // A draft node that the test can destroy.
  std::unique_ptr<FakeDraftNode> frail_ = std::make_unique<FakeDraftNode>("direct://127.0.0.1:*");
};

TEST_F(LostConnectionTest, EveryAwaitedDraftFailsAtOnce) {
  Sequence second, idle;
  Begin(8, &second);
  Begin(9, &idle);
  Join({{frail_.get(), "a"}});
  ASSERT_EQ(Ask(1), NoDraftReason::kNone);
  ASSERT_EQ(client_->Ask(second, 4, 2, 1, &deadline_s_), NoDraftReason::kNone);
  client_->Open(idle);
  ASSERT_TRUE(frail_->Next(proto::DraftCommand::kDraft).has_value());
  EXPECT_EQ(client_->sessions_on("a"), 3);
  EXPECT_TRUE(client_->Receive(1.1).empty());
  frail_.reset();
  std::vector<uint64_t> failed;
  for (const DraftArrival& arrival : Arrivals(1.1)) {  // the deadline is at 1.5
    EXPECT_EQ(arrival.failed, NoDraftReason::kDead);
    failed.push_back(arrival.sequence_id);
  }
  EXPECT_EQ(failed, (std::vector<uint64_t>{7, 8}));
  EXPECT_EQ(client_->sessions_on("a"), 0);
  EXPECT_TRUE(client_->Receive(1.2).empty());  // it is reported only once
  Decide();
  EXPECT_EQ(Ask(1.3), NoDraftReason::kLate);  // nothing is requested from the lost node
}

TEST_F(LostConnectionTest, WhatWasAnsweredBeforeIsTakenFirst) {
  Join({{frail_.get(), "a"}});
  ASSERT_EQ(Ask(1), NoDraftReason::kNone);
  const auto request = frail_->Next(proto::DraftCommand::kDraft);
  ASSERT_TRUE(request.has_value());
  frail_->Send(ReplyTo(request->draft()));
  frail_.reset();
  const auto arrivals = Arrivals(1.1);
  ASSERT_EQ(arrivals.size(), 1u);
  EXPECT_EQ(arrivals[0].failed, NoDraftReason::kNone);
  EXPECT_EQ(arrivals[0].forest.size(), 1);
}

TEST_F(LostConnectionTest, TheNextRoundAsksANodeThatIsThere) {
  Join({{frail_.get(), "a"}});
  ASSERT_EQ(Ask(1), NoDraftReason::kNone);
  Join({{frail_.get(), "a"}, {&other_, "b"}});
  frail_.reset();
  ASSERT_EQ(Arrivals(1.1).size(), 1u);
  Decide();
  EXPECT_EQ(Ask(1.2), NoDraftReason::kReading);
  const auto open = other_.Next(proto::DraftCommand::kOpen);
  ASSERT_TRUE(open.has_value());
  EXPECT_EQ(open->open().stable_tokens_size(), 1);  // all stable tokens are sent
  proto::DraftReply read;
  read.set_session_id(open->open().session_id());
  read.set_prefilled(true);
  other_.Send(read);
  for (int i = 0; i < 200 && client_->reading(); ++i) {
    EXPECT_TRUE(client_->Receive(1.2).empty());
    comm::Poll(client_->sockets(), 10);
  }
  EXPECT_EQ(Ask(1.3), NoDraftReason::kNone);
  const auto request = other_.Next(proto::DraftCommand::kDraft);
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(request->draft().stable_length(), 1u);
  EXPECT_EQ(request->draft().stable_tokens_size(), 0);
  other_.Send(ReplyTo(request->draft()));
  const auto arrivals = Arrivals(1.3);
  ASSERT_EQ(arrivals.size(), 1u);
  EXPECT_EQ(arrivals[0].failed, NoDraftReason::kNone);
  EXPECT_EQ(client_->sessions_on("a"), 0);
  EXPECT_EQ(client_->sessions_on("b"), 1);
}

TEST_F(LostConnectionTest, SessionsAreOpenedAnewAtTheNodeThatCameBack) {
  const std::string endpoint = frail_->endpoint();
  Join({{frail_.get(), "a"}});
  ASSERT_EQ(Ask(1), NoDraftReason::kNone);
  const auto before = frail_->Next(proto::DraftCommand::kDraft);
  ASSERT_TRUE(before.has_value());
  frail_.reset();
  ASSERT_EQ(Arrivals(1.1).size(), 1u);
  frail_ = std::make_unique<FakeDraftNode>(endpoint);
  double now_s = 3;
  NoDraftReason asked = NoDraftReason::kDead;
  for (int i = 0; i < 500 && asked != NoDraftReason::kReading; ++i, now_s += 2) {
    EXPECT_TRUE(client_->Receive(now_s).empty());
    comm::Poll(client_->sockets(), 10);
    asked = Ask(now_s);
    EXPECT_TRUE(asked == NoDraftReason::kReading || asked == NoDraftReason::kDead)
        << NoDraftReasonName(asked);
  }
  ASSERT_EQ(asked, NoDraftReason::kReading);
  TellRead(frail_.get(), now_s);
  ASSERT_EQ(Ask(now_s), NoDraftReason::kNone);
  const auto request = frail_->Next(proto::DraftCommand::kDraft);
  ASSERT_TRUE(request.has_value());
  EXPECT_NE(request->draft().session_id(), before->draft().session_id());
  frail_->Send(ReplyTo(request->draft()));
  const auto arrivals = Arrivals(now_s);
  ASSERT_EQ(arrivals.size(), 1u);
  EXPECT_EQ(arrivals[0].failed, NoDraftReason::kNone);
  EXPECT_EQ(client_->sessions_on("a"), 1);
}

}  // namespace
}  // namespace coppice::worker
