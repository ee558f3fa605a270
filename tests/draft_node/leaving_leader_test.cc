// Leaders whose connection ends: the draft node gives back what they had.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "tests/draft_node/draft_service_fixture.h"

namespace coppice::draft_node {
namespace {

// A direct connection reports its end, and its sessions end too. Two leaders use the same session
// ids.
class LeavingLeaderTest : public DraftServiceTest {
 protected:
  LeavingLeaderTest() : DraftServiceTest("direct://127.0.0.1:*") {}
  void ANewLeader() { leader_ = *comm::ClientChannel::Connect(leaders_->endpoint()); }
  void Turns(int count) {
    for (int i = 0; i < count; ++i) ASSERT_TRUE(service_->RunOnce(2).ok());
  }
};

TEST_F(LeavingLeaderTest, GivesItsSessionsAndBlocksBack) {
  for (int leader = 0; leader < 3; ++leader) {
    Open(1, 40);
    Open(2, 40);  // now the maximum number is open
    Send(Request(1, 1, {}, 0, 5));
    ASSERT_EQ(Reply()->error(), "");
    Turns(10);
    EXPECT_GT(runner_->blocks()->counts().used, 0);
    ANewLeader();
    Turns(10);
    EXPECT_EQ(runner_->blocks()->counts().used, 0);
    EXPECT_TRUE(runner_->blocks()->CheckIntegrity().ok());
  }
}

TEST_F(LeavingLeaderTest, LeavesTheSessionsOfOthersAsTheyAre) {
  Open(1, 20);
  Send(Request(1, 1, {}, 0, 5));
  ASSERT_EQ(Reply()->error(), "");
  const auto first = std::move(leader_);
  ANewLeader();
  Open(1, 30);
  Send(Request(1, 1, {}, 0, 5));
  ASSERT_EQ(Reply()->error(), "");
  const int64_t both = runner_->blocks()->counts().used;
  leader_ = *comm::ClientChannel::Connect(leaders_->endpoint());  // the second one leaves
  Turns(10);
  EXPECT_GT(runner_->blocks()->counts().used, 0);
  EXPECT_LT(runner_->blocks()->counts().used, both);
  Send(Request(1, 2, {5}, 0, 6));
  EXPECT_NE(Reply()->error().find("unknown session"), std::string::npos);
  ASSERT_TRUE(first->Send(Request(1, 2, {5}, 0, 6)).ok());
  const auto reply = ReplyTo(first.get());
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->error(), "");
  EXPECT_EQ(reply->round(), 2u);
}

TEST_F(LeavingLeaderTest, InTheMiddleOfItsPrefillOrItsForestDoesNoHarm) {
  for (int turns = 1; turns <= 8; ++turns) {  // prefill takes four, the forest two
    Open(1, 50);
    Send(Request(1, 1, {}, 0, 5));
    Turns(turns);
    ANewLeader();
    Turns(10);
    EXPECT_EQ(runner_->blocks()->counts().used, 0) << "after " << turns;
    ASSERT_TRUE(runner_->blocks()->CheckIntegrity().ok());
  }
  Open(1, 50);
  Send(Request(1, 1, {}, 0, 5));
  EXPECT_EQ(Reply()->error(), "");
}

}  // namespace
}  // namespace coppice::draft_node
