// Draft nodes that get a prompt between two rounds.
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "tests/worker/draft_client_fixture.h"

namespace coppice::worker {
namespace {

class DraftPrepareTest : public DraftClientTest {
 protected:
  bool IsRead(const Sequence& sequence, double now_s) {
    bool read = false;
    why_ = client_->Prepare(sequence, now_s, &read);
    return read;
  }
  // The node says that it has read the prompt of the sequence.
  void TellPrefilled(uint64_t session_id, double now_s) {
    proto::DraftReply reply;
    reply.set_session_id(session_id);
    reply.set_prefilled(true);
    node_.Send(reply);
    for (int i = 0; i < 200 && !IsRead(sequence_, now_s); ++i) {
      EXPECT_TRUE(client_->Receive(now_s).empty());
      comm::Poll(client_->sockets(), 10);
    }
  }
  NoDraftReason why_ = NoDraftReason::kNone;  // of the last IsRead
};

INSTANTIATE_TEST_SUITE_P(Transports, DraftPrepareTest,
                         ::testing::Values("tcp://127.0.0.1:*", "direct://127.0.0.1:*"),
                         [](const auto& info) {
                           return std::string(info.index == 0 ? "Zmq" : "Direct");
                         });

// Between two rounds: no draft is asked for before the node has read the prompt.
TEST_P(DraftPrepareTest, PreparesWithoutWaiting) {
  EXPECT_FALSE(IsRead(sequence_, 0));
  EXPECT_EQ(why_, NoDraftReason::kNoNode);
  Join({{&node_, "a"}});
  EXPECT_FALSE(IsRead(sequence_, 1));
  const auto open = node_.Next(proto::DraftCommand::kOpen);
  ASSERT_TRUE(open.has_value());
  EXPECT_EQ(open->open().prompt_size(), 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(client_->Receive(1.1).empty());
    EXPECT_FALSE(IsRead(sequence_, 1.1)) << "it has not read it";
  }
  TellPrefilled(open->open().session_id(), 1.2);
  EXPECT_TRUE(IsRead(sequence_, 1.2));
  EXPECT_EQ(client_->sessions_on("a"), 1);
  ASSERT_EQ(Ask(1.3), NoDraftReason::kNone);
  const auto request = node_.Next(proto::DraftCommand::kDraft);
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(request->draft().session_id(), open->open().session_id());
}

TEST_P(DraftPrepareTest, PreparesAgainWhenTheNodeIsGone) {
  Join({{&node_, "a"}});
  EXPECT_FALSE(IsRead(sequence_, 1));
  const auto open = node_.Next(proto::DraftCommand::kOpen);
  ASSERT_TRUE(open.has_value());
  TellPrefilled(open->open().session_id(), 1.2);
  Join({{&other_, "b"}});
  EXPECT_FALSE(IsRead(sequence_, 2)) << "another node knows nothing of it";
  EXPECT_TRUE(other_.Next(proto::DraftCommand::kOpen).has_value());
}

TEST_P(DraftPrepareTest, PreparesOnAnotherNodeWhereOneIsSilent) {
  Join({{&node_, "a"}});
  ASSERT_EQ(Ask(1), NoDraftReason::kNone);
  Sequence second;
  Begin(8, &second);
  EXPECT_FALSE(IsRead(second, 1.1));
  EXPECT_EQ(client_->sessions_on("a"), 2);
  client_->GaveUp(sequence_.id, 1.5);
  Join({{&node_, "a"}, {&other_, "b"}});
  EXPECT_FALSE(IsRead(second, 1.6));
  EXPECT_EQ(client_->sessions_on("a"), 1);
  EXPECT_EQ(client_->sessions_on("b"), 1);
  EXPECT_TRUE(other_.Next(proto::DraftCommand::kOpen).has_value());
}

TEST_P(DraftPrepareTest, DoesNotPrepareOnANodeThatIsSilentOrHasRefused) {
  Join({{&node_, "a"}});
  ASSERT_EQ(Ask(1), NoDraftReason::kNone);
  client_->GaveUp(sequence_.id, 1.5);
  Sequence second;
  Begin(8, &second);
  EXPECT_FALSE(IsRead(second, 1.6));
  EXPECT_EQ(why_, NoDraftReason::kLate);
  EXPECT_EQ(client_->sessions_on("a"), 1);
  EXPECT_FALSE(IsRead(second, 2.6)) << "it is tried again, and must read";
  EXPECT_EQ(client_->sessions_on("a"), 2);
  std::optional<proto::DraftCommand> open;
  do open = node_.Next(proto::DraftCommand::kOpen);
  while (open.has_value() && open->open().session_id() == 1);
  ASSERT_TRUE(open.has_value());
  proto::DraftReply refusal;
  refusal.set_session_id(open->open().session_id());
  refusal.set_error("no room");
  node_.Send(refusal);
  for (int i = 0; i < 200 && client_->sessions_on("a") == 2; ++i) {
    EXPECT_TRUE(client_->Receive(3).empty());
    comm::Poll(client_->sockets(), 10);
  }
  EXPECT_FALSE(IsRead(second, 3.5));
  EXPECT_EQ(why_, NoDraftReason::kRefused);
  EXPECT_EQ(client_->sessions_on("a"), 1) << "not so soon after a refusal";
  EXPECT_FALSE(IsRead(second, 4.5));
  EXPECT_EQ(why_, NoDraftReason::kNone);
  EXPECT_EQ(client_->sessions_on("a"), 2);
}

}  // namespace
}  // namespace coppice::worker
