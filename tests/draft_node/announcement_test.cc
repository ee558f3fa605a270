// What a draft node announces to its leaders, what it does with their announcements, and that no
// thread stays awake without need.
#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <memory>
#include <thread>

#include "decoding/method.h"
#include "tests/draft_node/draft_service_fixture.h"

namespace coppice::draft_node {
namespace {

class AnnouncementTest : public DraftServiceTest {};
INSTANTIATE_TEST_SUITE_P(Transports, AnnouncementTest, kTransports, TransportName);

TEST_P(AnnouncementTest, AForestIsAnnouncedOnceWhateverItsDepth) {
  Open(1, 50);  // there is no announcement during the prefill
  std::vector<TokenId> stable;
  for (uint32_t round = 1; round <= 4; ++round) {
    proto::DraftCommand command = Request(1, round, stable, stable.empty() ? 0 : round - 2, 5);
    command.mutable_draft()->set_depth(round);
    Send(command);
    const auto reply = Reply();
    ASSERT_TRUE(reply.has_value());
    ASSERT_EQ(reply->error(), "");
    EXPECT_EQ(reply->round(), round);
    EXPECT_EQ(reply->forest().layer_begin_size(), static_cast<int>(round) + 1);
    EXPECT_EQ(announced(), 1) << "depth " << round;
    stable.push_back(5);
  }
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(service_->RunOnce(2).ok());
  proto::DraftReply more;
  EXPECT_FALSE(leader_->Receive(&more));
}

TEST_P(AnnouncementTest, AFailureIsNotAnnounced) {
  Send(Request(9, 1, {}, 0, 5));
  EXPECT_NE(Reply()->error(), "");
  EXPECT_EQ(announced(), 0);
  Open(1, 4);
  Send(Request(1, 1, {}, 0, kVocab));
  EXPECT_NE(Reply()->error(), "");
  EXPECT_EQ(announced(), 0);
}

TEST_P(AnnouncementTest, ForestsOfOnePassAreAnnouncedTogether) {
  Open(1, 4);
  Open(2, 4);
  AwaitPrompts(leader_.get(), 2);
  leaders_->Gather(2);
  Send(Request(1, 1, {}, 0, 5));
  Send(Request(2, 1, {}, 0, 7));
  for (uint64_t id : {1, 2}) {
    const auto reply = Reply();
    ASSERT_TRUE(reply.has_value());
    EXPECT_EQ(reply->error(), "");
    EXPECT_EQ(reply->session_id(), id);
    EXPECT_EQ(announced(), id == 1 ? 1 : 0);
  }
}

// A leader is not woken if it would fall asleep again before the forest comes. The time of the
// previous level decides this.
TEST_P(AnnouncementTest, ForestsThatTakeLongAreNotAnnounced) {
  DraftServiceOptions options;
  options.announce_within_s = 1e-9;
  service_ =
      std::make_unique<DraftService>(options, runner_.get(), leaders_.get(), nullptr, &clock_);
  for (uint64_t id : {1, 2, 3}) {
    Open(id, 5);
    Send(Request(id, 1, {}, 0, 3));
    const auto reply = Reply();
    ASSERT_TRUE(reply.has_value());
    EXPECT_EQ(reply->error(), "");
    EXPECT_EQ(announced(), 0);
  }
}

// The turns start in the middle, so the sessions of one leader are not next to each other.
TEST_P(AnnouncementTest, ALeaderIsToldOnceWhereverTheTurnsBegin) {
  DraftServiceOptions options;
  options.announce_within_s = kAlways;
  options.max_sessions = 3;
  options.max_rows = 32;
  service_ =
      std::make_unique<DraftService>(options, runner_.get(), leaders_.get(), nullptr, &clock_);
  decoding::DecodingParams params;
  params.kind = sampling::DecodingKind::kBeamSampling;
  params.method = decoding::FindMethod("gumbel_coupling");
  params.beam_width = 20;
  const auto ask = [&](uint64_t id, uint32_t round, int roots) {
    proto::DraftCommand command = Request(id, round, {}, 0, 0);
    proto::DraftRequest* request = command.mutable_draft();
    request->set_width(roots);
    request->set_depth(1);
    request->clear_trie_parent();
    request->clear_trie_token();
    request->clear_state();
    for (int root = 0; root < roots; ++root) {
      request->add_trie_parent(-1);
      request->add_trie_token(root);
      request->mutable_state()->add_root_trie(root);
      request->mutable_state()->add_root_score(-1.0);
      request->mutable_state()->add_root_multiplicity(1);
    }
    for (int slot = 0; slot < 20; ++slot) request->mutable_state()->add_slot_root(slot % roots);
    request->mutable_state()->set_layers_committed(1);
    return command;
  };
  Open(1, 4, params);
  Open(2, 4, params);
  const auto first = std::move(leader_);
  leader_ = *comm::ClientChannel::Connect(leaders_->endpoint());
  Open(1, 4, params);
  AwaitPrompts(first.get(), 2);
  AwaitPrompts(leader_.get(), 1);
  leaders_->Gather(2);
  for (uint64_t id : {1, 2}) ASSERT_TRUE(first->Send(ask(id, 1, 20)).ok());
  for (int i = 0; i < 2; ++i) ASSERT_EQ(ReplyTo(first.get())->error(), "");
  leaders_->Gather(3);
  for (uint64_t id : {1, 2}) ASSERT_TRUE(first->Send(ask(id, 2, 3)).ok());
  Send(ask(1, 1, 3));
  ASSERT_EQ(ReplyTo(first.get())->error(), "");
  EXPECT_EQ(announced(), 1);
  ASSERT_EQ(ReplyTo(first.get())->error(), "");
  EXPECT_EQ(announced(), 0);
  ASSERT_EQ(Reply()->error(), "");
  EXPECT_EQ(announced(), 1);
}

TEST_P(AnnouncementTest, ARequestIsAnsweredAlikeWithAndWithoutItsAnnouncement) {
  Open(1, 20);
  Send(Request(1, 1, {}, 0, 5));
  const auto unannounced = Reply();
  ASSERT_TRUE(unannounced.has_value());
  ASSERT_EQ(unannounced->error(), "");
  for (const int announcements : {1, 2, 500}) {
    Open(2, 20);
    for (int i = 0; i < announcements; ++i) Send(Announcement());
    Send(Request(2, 1, {}, 0, 5));
    const auto reply = Reply();
    ASSERT_TRUE(reply.has_value());
    ASSERT_EQ(reply->error(), "");
    EXPECT_EQ(announced(), 1);
    EXPECT_EQ(reply->forest().SerializeAsString(), unannounced->forest().SerializeAsString());
  }
}

TEST_P(AnnouncementTest, AnAnnouncementThatNothingFollowsDoesNoHarm) {
  const auto stranger = *comm::ClientChannel::Connect(leaders_->endpoint());
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(stranger->Send(Announcement()).ok());
    Send(Announcement());  // also without a session
    ASSERT_TRUE(service_->RunOnce(2).ok());
  }
  proto::DraftReply none;
  EXPECT_FALSE(stranger->Receive(&none));
  EXPECT_FALSE(leader_->Receive(&none));
  Open(1, 20);
  Send(Request(1, 1, {}, 0, 5));
  ASSERT_TRUE(stranger->Send(Announcement()).ok());
  EXPECT_EQ(Reply()->error(), "");
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(service_->RunOnce(2).ok());
  EXPECT_FALSE(stranger->Receive(&none));
  EXPECT_TRUE(runner_->blocks()->CheckIntegrity().ok());
}

// A service that sends announcements from a separate thread.
class ThreadedAnnouncementTest : public DraftServiceTest {
 protected:
  ThreadedAnnouncementTest() : DraftServiceTest(GetParam(), 3) {}
};
INSTANTIATE_TEST_SUITE_P(Transports, ThreadedAnnouncementTest, kTransports, TransportName);

// Threads that wait for the next level must sleep if there will be none.
TEST_P(ThreadedAnnouncementTest, AForestClosedHalfWayLetsTheThreadsSleep) {
  Open(1, 5);
  Send(Request(1, 1, {}, 0, 3));
  for (int i = 0; i < 2000 && !service_->Drafting(); ++i) {
    ASSERT_TRUE(service_->RunOnce(5).ok());
  }
  ASSERT_TRUE(service_->Drafting());
  proto::DraftCommand close;
  close.mutable_close()->set_session_id(1);
  Send(close);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(service_->RunOnce(5).ok());
  ASSERT_FALSE(service_->Drafting());
  const std::clock_t before = std::clock();  // CPU time of all threads
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 0.1);
}

TEST_P(ThreadedAnnouncementTest, EveryForestComesBehindOneAnnouncement) {
  const auto second = *comm::ClientChannel::Connect(leaders_->endpoint());
  for (int round = 0; round < 40; ++round) {
    Open(1, 1 + round);
    Send(Announcement());
    Send(Request(1, 1, {}, 0, round % kVocab));
    proto::DraftCommand open;
    open.mutable_open()->set_session_id(1);
    open.mutable_open()->add_prompt(3);
    decoding::DecodingParams params;
    params.method = decoding::FindMethod("block_verification");
    *open.mutable_open()->mutable_decoding() = proto::DecodingToMessage(params);
    ASSERT_TRUE(second->Send(open).ok());
    proto::DraftCommand ask = Request(1, 1, {}, 0, 5);
    ask.mutable_draft()->set_width(1);
    ask.mutable_draft()->mutable_state()->set_root_multiplicity(0, 1);
    ask.mutable_draft()->mutable_state()->clear_slot_root();
    ASSERT_TRUE(second->Send(ask).ok());
    for (comm::ClientChannel* leader : {leader_.get(), second.get()}) {
      const auto reply = ReplyTo(leader);
      ASSERT_TRUE(reply.has_value());
      ASSERT_EQ(reply->error(), "");
      EXPECT_EQ(announced(), 1);
    }
  }
  EXPECT_TRUE(runner_->blocks()->CheckIntegrity().ok());
}

}  // namespace
}  // namespace coppice::draft_node
