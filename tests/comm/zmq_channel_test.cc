// What only ZeroMQ channels have: names that persist, and frames within frames.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "comm/channel.h"
#include "tests/comm/channel_ends.h"
#include "tests/comm/raw_peer.h"

namespace coppice::comm {
namespace {

using ::testing::HasSubstr;

TEST(ZmqChannelTest, AnEndpointWithoutASchemeIsAnErrorThatNamesIt) {
  auto bad = ServerChannel::Bind("here:7000");
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(bad.status().message()), HasSubstr("here:7000"));
}

TEST(ZmqChannelTest, AfterAnOversizedFrameTheConnectionStands) {
  ChannelOptions small;
  small.max_message_bytes = 1000;
  auto server = BindTo(kZmq.endpoint, small);
  auto client = ConnectTo(*server);
  proto::NodeMessage big;
  big.mutable_goodbye()->set_reason(std::string(2000, 'x'));
  ASSERT_TRUE(client->Send(big).ok());
  ASSERT_TRUE(client->Send(Beat(5)).ok());
  proto::NodeMessage message;
  ASSERT_TRUE(WaitFor(*server, &message).has_value());
  EXPECT_EQ(Step(message), 5);
  EXPECT_EQ(server->counters().dropped_oversized, 1);
  // If a message is far above the limit, ZeroMQ closes the connection. The server goes on and the
  // client connects again.
  big.mutable_goodbye()->set_reason(std::string(1 << 20, 'x'));
  ASSERT_TRUE(client->Send(big).ok());
  auto other = ConnectTo(*server);
  ASSERT_TRUE(other->Send(Beat(6)).ok());
  ASSERT_TRUE(WaitFor(*server, &message).has_value());
  EXPECT_EQ(Step(message), 6);
}

TEST(ZmqChannelTest, AnotherProtocolVersionIsCountedAndDropped) {
  auto server = BindTo(kZmq.endpoint);
  RawZmqPeer raw(server->endpoint());
  std::string frame = GoodFrame(Beat(1));
  frame[4] = static_cast<char>(kProtocolVersion + 1);
  raw.Send(frame);
  raw.Send(GoodFrame(Beat(2)));
  proto::NodeMessage message;
  ASSERT_TRUE(WaitFor(*server, &message).has_value());
  EXPECT_EQ(Step(message), 2);
  EXPECT_EQ(server->counters().dropped_version, 1);
  EXPECT_EQ(server->counters().dropped_malformed, 0);
}

TEST(ZmqChannelTest, SeveralPartsAreMalformed) {
  auto server = BindTo(kZmq.endpoint);
  RawZmqPeer raw(server->endpoint());
  raw.Send("", ZMQ_SNDMORE);
  raw.Send(GoodFrame(Beat(1)), ZMQ_SNDMORE);
  raw.Send(GoodFrame(Beat(2)));
  raw.Send(GoodFrame(Beat(3)));
  proto::NodeMessage message;
  ASSERT_TRUE(WaitFor(*server, &message).has_value());
  EXPECT_EQ(Step(message), 3);
  EXPECT_EQ(server->counters().dropped_malformed, 1);
}

TEST(ZmqChannelTest, TenThousandGarbageFramesDoNoHarm) {
  auto server = BindTo(kZmq.endpoint);
  RawZmqPeer raw(server->endpoint());
  std::mt19937_64 random(7);
  const std::string good = GoodFrame(Beat(1));
  std::thread sender([&] {
    for (int i = 0; i < 10000; ++i) {
      std::string frame(random() % 64, '\0');
      if (random() % 2 == 0) frame = good;  // a good frame with some bytes changed
      const size_t changes = frame == good ? 1 + random() % 3 : frame.size();
      for (size_t k = 0; k < changes; ++k)
        frame[random() % frame.size()] = static_cast<char>(random());
      raw.Send(frame);
    }
    raw.Send(GoodFrame(Beat(424242)));
  });
  proto::NodeMessage message;
  uint64_t parsed = 0;
  do {
    ASSERT_TRUE(WaitFor(*server, &message).has_value());
    ++parsed;
  } while (Step(message) != 424242);
  sender.join();
  const ChannelCounters& counters = server->counters();
  EXPECT_EQ(counters.received, parsed);
  EXPECT_EQ(counters.received + counters.dropped_malformed + counters.dropped_version +
                counters.dropped_oversized,
            10001);
  EXPECT_GT(counters.dropped_malformed, 5000);
}

}  // namespace
}  // namespace coppice::comm
