#include "comm/local_channel.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/comm/channel_ends.h"

namespace coppice::comm {
namespace {

proto::CoordinatorMessage Cancel(uint64_t id) {
  proto::CoordinatorMessage message;
  message.mutable_cancel()->set_sequence_id(id);
  return message;
}

TEST(LocalChannelTest, CarriesMessagesBothWaysInOrder) {
  LocalChannels ends = MakeLocalChannels();
  constexpr uint64_t kMessages = 1000;
  std::thread thread([&] {
    proto::CoordinatorMessage answer;
    for (uint64_t i = 0; i < kMessages; i += 2) {
      EXPECT_TRUE(ends.client->Send(Beat(i)).ok());
      EXPECT_TRUE(ends.client->Send(Beat(i + 1)).ok());
      EXPECT_TRUE(WaitFor(*ends.client, &answer));
      EXPECT_EQ(answer.cancel().sequence_id(), i);
    }
  });
  proto::NodeMessage message;
  for (uint64_t i = 0; i < kMessages; ++i) {
    const auto peer = WaitFor(*ends.server, &message);
    ASSERT_TRUE(peer.has_value());
    EXPECT_EQ(Step(message), i);
    if (i % 2 == 0) {
      EXPECT_TRUE(ends.server->Send(*peer, Cancel(i)).ok());
    }
  }
  thread.join();
  EXPECT_EQ(ends.client->counters().sent, kMessages);
  EXPECT_EQ(ends.server->counters().received, kMessages);
  EXPECT_EQ(ends.server->counters().received_bytes, ends.client->counters().sent_bytes);
  EXPECT_EQ(ends.client->breaks(), 0u);
}

// The socket is readable exactly while a message waits, so nobody spins and nobody sleeps on one.
TEST(LocalChannelTest, TheSocketSaysWhetherAMessageWaits) {
  LocalChannels ends = MakeLocalChannels();
  proto::NodeMessage message;
  EXPECT_FALSE(Poll({ends.server->socket()}, 0));
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(ends.client->Send(Beat(1)).ok());
    ASSERT_TRUE(ends.client->Send(Beat(2)).ok());
    EXPECT_TRUE(Poll({ends.server->socket()}, 0));
    EXPECT_FALSE(Poll({ends.client->socket()}, 0));
    ASSERT_TRUE(ends.server->Receive(&message).has_value());
    EXPECT_TRUE(Poll({ends.server->socket()}, 0));
    ASSERT_TRUE(ends.server->Receive(&message).has_value());
    EXPECT_FALSE(Poll({ends.server->socket()}, 0));
    EXPECT_FALSE(ends.server->Receive(&message).has_value());
  }
}

TEST(LocalChannelTest, TheServerLearnsOnceThatItsPeerIsGone) {
  LocalChannels ends = MakeLocalChannels();
  ASSERT_TRUE(ends.client->Send(Beat(1)).ok());
  EXPECT_TRUE(ends.server->TakeGone().empty());
  ends.client.reset();
  EXPECT_TRUE(ends.server->closed());
  EXPECT_TRUE(Poll({ends.server->socket()}, 0));
  proto::NodeMessage message;
  const auto peer = ends.server->Receive(&message);  // sent before it left
  ASSERT_TRUE(peer.has_value());
  EXPECT_EQ(ends.server->TakeGone(), std::vector<std::string>{*peer});
  EXPECT_TRUE(ends.server->TakeGone().empty());
  EXPECT_TRUE(absl::IsUnavailable(ends.server->Send(*peer, Cancel(1))));
}

TEST(LocalChannelTest, TheClientSeesABreakAfterTheLastMessage) {
  LocalChannels ends = MakeLocalChannels();
  ASSERT_TRUE(ends.server->Send("local", Cancel(7)).ok());
  std::thread([&] { ends.server->Close(); }).join();
  EXPECT_TRUE(Poll({ends.client->socket()}, 0));
  EXPECT_EQ(ends.client->breaks(), 1u);
  proto::CoordinatorMessage message;
  ASSERT_TRUE(ends.client->Receive(&message));
  EXPECT_EQ(message.cancel().sequence_id(), 7u);
  EXPECT_FALSE(ends.client->Receive(&message));
  EXPECT_TRUE(absl::IsUnavailable(ends.client->Send(Beat(1))));
  ends.server.reset();
  EXPECT_EQ(ends.client->breaks(), 1u);
}

TEST(LocalChannelTest, HasTheLimitsOfAnyChannel) {
  ChannelOptions options;
  options.send_high_water = 2;
  options.max_message_bytes = 1000;
  LocalChannels ends = MakeLocalChannels(options);
  EXPECT_TRUE(absl::IsInvalidArgument(ends.client->Send(Large(1))));
  EXPECT_TRUE(ends.client->Send(Beat(1)).ok());
  EXPECT_TRUE(ends.client->Send(Beat(2)).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(ends.client->Send(Beat(3))));
  proto::NodeMessage message;
  ASSERT_TRUE(ends.server->Receive(&message).has_value());
  EXPECT_TRUE(ends.client->Send(Beat(3)).ok());
}

}  // namespace
}  // namespace coppice::comm
