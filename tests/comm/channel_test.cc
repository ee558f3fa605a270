#include "comm/channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zmq.h>

#include <random>
#include <set>
#include <thread>

#include "comm/frame.h"
#include "proto/control.pb.h"
#include "proto/draft.pb.h"
#include "tests/comm/raw_peer.h"

namespace coppice {
namespace {

using ::testing::HasSubstr;

proto::NodeMessage Beat(uint64_t step) {
  proto::NodeMessage message;
  message.mutable_heartbeat()->mutable_status()->set_step(step);
  return message;
}

std::unique_ptr<ServerChannel> BindLoopback(const std::string& endpoint = "tcp://127.0.0.1:*",
                                            const ChannelOptions& options = {}) {
  auto server = ServerChannel::Bind(endpoint, options);
  // A port that was just closed is let go in the background.
  for (int i = 0; i < 500 && !server.ok(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    server = ServerChannel::Bind(endpoint, options);
  }
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

std::unique_ptr<ClientChannel> ConnectTo(const std::string& endpoint) {
  auto client = ClientChannel::Connect(endpoint);
  EXPECT_TRUE(client.ok()) << client.status();
  return *std::move(client);
}

std::optional<std::string> WaitFor(ServerChannel& server, google::protobuf::MessageLite* message,
                                   int timeout_ms = 5000) {
  std::optional<std::string> peer = server.Receive(message);
  for (int waited = 0; !peer && waited < timeout_ms; waited += 10) {
    Poll({server.socket()}, 10);
    peer = server.Receive(message);
  }
  return peer;
}

bool WaitFor(ClientChannel& client, google::protobuf::MessageLite* message, int timeout_ms = 5000) {
  for (int waited = 0; waited < timeout_ms; waited += 10) {
    if (client.Receive(message)) return true;
    Poll({client.socket()}, 10);
  }
  return false;
}

TEST(ChannelTest, CarriesMessagesBothWaysInOrder) {
  auto server = BindLoopback();
  EXPECT_THAT(server->endpoint(), testing::MatchesRegex("tcp://127.0.0.1:[0-9]+"));
  std::thread client_thread([&] {
    auto client = ConnectTo(server->endpoint());
    proto::CoordinatorMessage answer;
    for (uint64_t i = 0; i < 1000; ++i) {
      ASSERT_TRUE(client->Send(Beat(i)).ok());
      ASSERT_TRUE(WaitFor(*client, &answer));
      ASSERT_EQ(answer.cancel().sequence_id(), i + 1);
    }
    EXPECT_EQ(client->counters().sent, 1000);
    EXPECT_EQ(client->counters().received, 1000);
  });
  proto::NodeMessage message;
  for (uint64_t i = 0; i < 1000; ++i) {
    auto peer = WaitFor(*server, &message);
    ASSERT_TRUE(peer.has_value());
    ASSERT_EQ(message.heartbeat().status().step(), i);
    proto::CoordinatorMessage answer;
    answer.mutable_cancel()->set_sequence_id(i + 1);
    ASSERT_TRUE(server->Send(*peer, answer).ok());
  }
  client_thread.join();
}

TEST(ChannelTest, TellsPeersApart) {
  auto server = BindLoopback();
  auto a = ConnectTo(server->endpoint()), b = ConnectTo(server->endpoint());
  ASSERT_TRUE(a->Send(Beat(1)).ok());
  ASSERT_TRUE(b->Send(Beat(2)).ok());
  proto::NodeMessage message;
  std::set<std::string> peers;
  for (int i = 0; i < 2; ++i) {
    auto peer = WaitFor(*server, &message);
    ASSERT_TRUE(peer.has_value());
    peers.insert(*peer);
    proto::CoordinatorMessage answer;
    answer.mutable_cancel()->set_sequence_id(message.heartbeat().status().step() * 10);
    ASSERT_TRUE(server->Send(*peer, answer).ok());
  }
  EXPECT_EQ(peers.size(), 2);
  proto::CoordinatorMessage answer;
  ASSERT_TRUE(WaitFor(*a, &answer));
  EXPECT_EQ(answer.cancel().sequence_id(), 10);
  ASSERT_TRUE(WaitFor(*b, &answer));
  EXPECT_EQ(answer.cancel().sequence_id(), 20);
}

TEST(ChannelTest, SendToAGonePeerIsUnavailable) {
  auto server = BindLoopback();
  EXPECT_EQ(server->Send("nobody", Beat(1)).code(), absl::StatusCode::kUnavailable);
  auto client = ConnectTo(server->endpoint());
  ASSERT_TRUE(client->Send(Beat(1)).ok());
  proto::NodeMessage message;
  auto peer = WaitFor(*server, &message);
  ASSERT_TRUE(peer.has_value());
  EXPECT_TRUE(server->Send(*peer, Beat(2)).ok());
  client.reset();
  absl::Status status;
  for (int i = 0; i < 200 && status.ok(); ++i) {
    Poll({server->socket()}, 10);
    status = server->Send(*peer, Beat(3));
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(server->endpoint()));
}

TEST(ChannelTest, BadEndpointsAreErrorsThatNameThem) {
  auto bad = ServerChannel::Bind("here:7000");
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(bad.status().message()), HasSubstr("here:7000"));
  EXPECT_FALSE(ClientChannel::Connect("tcp://").ok());
  auto server = BindLoopback();
  auto taken = ServerChannel::Bind(server->endpoint());
  ASSERT_FALSE(taken.ok());
  EXPECT_THAT(std::string(taken.status().message()), HasSubstr("in use"));
}

TEST(ChannelTest, OversizedMessagesAreRefusedBySenderAndDroppedByReceiver) {
  ChannelOptions small;
  small.max_message_bytes = 1000;
  auto server = BindLoopback("tcp://127.0.0.1:*", small);
  auto strict = ClientChannel::Connect(server->endpoint(), small);
  auto client = ConnectTo(server->endpoint());  // allows 64 MiB
  proto::NodeMessage big;
  big.mutable_goodbye()->set_reason(std::string(2000, 'x'));
  EXPECT_EQ((*strict)->Send(big).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(client->Send(big).ok());
  ASSERT_TRUE(client->Send(Beat(5)).ok());
  proto::NodeMessage message;
  ASSERT_TRUE(WaitFor(*server, &message).has_value());
  EXPECT_EQ(message.heartbeat().status().step(), 5);
  EXPECT_EQ(server->counters().dropped_oversized, 1);
  // Far beyond the limit ZeroMQ cuts the connection; the server lives on and the client comes back.
  big.mutable_goodbye()->set_reason(std::string(1 << 20, 'x'));
  ASSERT_TRUE(client->Send(big).ok());
  auto other = ConnectTo(server->endpoint());
  ASSERT_TRUE(other->Send(Beat(6)).ok());
  ASSERT_TRUE(WaitFor(*server, &message).has_value());
  EXPECT_EQ(message.heartbeat().status().step(), 6);
}

TEST(ChannelTest, AnotherProtocolVersionIsCountedAndDropped) {
  auto server = BindLoopback();
  RawPeer raw(server->endpoint());
  const std::string body = Beat(1).SerializeAsString();
  std::string frame = GoodFrame(Beat(1));
  frame[4] = static_cast<char>(kProtocolVersion + 1);
  raw.Send(frame);
  raw.Send(GoodFrame(Beat(2)));
  proto::NodeMessage message;
  ASSERT_TRUE(WaitFor(*server, &message).has_value());
  EXPECT_EQ(message.heartbeat().status().step(), 2);
  EXPECT_EQ(server->counters().dropped_version, 1);
  EXPECT_EQ(server->counters().dropped_malformed, 0);
}

TEST(ChannelTest, AnotherKindOfMessageIsMalformed) {
  auto server = BindLoopback();
  auto client = ConnectTo(server->endpoint());
  proto::DraftReply reply;
  reply.set_round(1);
  ASSERT_TRUE(client->Send(reply).ok());
  ASSERT_TRUE(client->Send(Beat(2)).ok());
  proto::NodeMessage message;
  ASSERT_TRUE(WaitFor(*server, &message).has_value());
  EXPECT_EQ(message.heartbeat().status().step(), 2);
  EXPECT_EQ(server->counters().dropped_malformed, 1);
}

TEST(ChannelTest, SeveralPartsAreMalformed) {
  auto server = BindLoopback();
  RawPeer raw(server->endpoint());
  raw.Send("", ZMQ_SNDMORE);
  raw.Send(GoodFrame(Beat(1)), ZMQ_SNDMORE);
  raw.Send(GoodFrame(Beat(2)));
  raw.Send(GoodFrame(Beat(3)));
  proto::NodeMessage message;
  ASSERT_TRUE(WaitFor(*server, &message).has_value());
  EXPECT_EQ(message.heartbeat().status().step(), 3);
  EXPECT_EQ(server->counters().dropped_malformed, 1);
}

TEST(ChannelTest, TenThousandGarbageFramesDoNoHarm) {
  auto server = BindLoopback();
  RawPeer raw(server->endpoint());
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
  } while (message.heartbeat().status().step() != 424242);
  sender.join();
  const ChannelCounters& counters = server->counters();
  EXPECT_EQ(counters.received, parsed);
  EXPECT_EQ(counters.received + counters.dropped_malformed + counters.dropped_version +
                counters.dropped_oversized,
            10001);
  EXPECT_GT(counters.dropped_malformed, 5000);
}

TEST(ChannelTest, ClientReconnectsToARestartedServerAndKeepsItsName) {
  auto server = BindLoopback();
  const std::string endpoint = server->endpoint();
  auto client = ConnectTo(endpoint);
  ASSERT_TRUE(client->Send(Beat(1)).ok());
  proto::NodeMessage message;
  auto before = WaitFor(*server, &message);
  ASSERT_TRUE(before.has_value());
  server.reset();
  server = BindLoopback(endpoint);
  // What is sent before the client has noticed that the old connection is gone is lost with it, as
  // heartbeats are; so a client sends until it is heard.
  std::optional<std::string> after;
  for (int i = 0; i < 100 && !after; ++i) {
    ASSERT_TRUE(client->Send(Beat(2)).ok());
    after = WaitFor(*server, &message, 100);
  }
  ASSERT_TRUE(after.has_value());
  EXPECT_EQ(message.heartbeat().status().step(), 2);
  EXPECT_EQ(*before, *after);
}

TEST(ChannelTest, FullQueueIsResourceExhausted) {
  ChannelOptions options;
  options.send_high_water = 10;
  auto client = ClientChannel::Connect("tcp://127.0.0.1:1", options);  // nobody there
  ASSERT_TRUE(client.ok());
  absl::Status status;
  int sent = 0;
  for (; status.ok() && sent < 100; ++sent) status = (*client)->Send(Beat(sent));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_GE(sent, 10);
}

TEST(ChannelTest, ClosingWithUnsentFramesDoesNotHang) {
  const auto begin = std::chrono::steady_clock::now();
  {
    auto client = ConnectTo("tcp://127.0.0.1:1");
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(client->Send(Beat(i)).ok());
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
}

TEST(WakerTest, WakesAPollFromAnotherThread) {
  auto waker = Waker::Create();
  std::vector<bool> ready;
  EXPECT_FALSE(Poll({waker->socket()}, 0, &ready));
  EXPECT_FALSE(ready[0]);
  std::thread notifier([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    waker->Notify();
  });
  EXPECT_TRUE(Poll({waker->socket()}, 5000, &ready));
  EXPECT_TRUE(ready[0]);
  notifier.join();
  waker->Notify();
  waker->Notify();
  waker->Drain();
  EXPECT_FALSE(Poll({waker->socket()}, 0));
  waker->Notify();
  EXPECT_TRUE(Poll({waker->socket()}, 5000));
}

TEST(WakerTest, NoNotificationIsLostAmongManyThreads) {
  auto waker = Waker::Create();
  std::atomic<int> produced = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5000; ++i) {
        ++produced;
        waker->Notify();
      }
    });
  }
  int seen = 0;
  while (seen < 20000) {
    ASSERT_TRUE(Poll({waker->socket()}, 5000)) << "a wake-up was lost at " << seen;
    waker->Drain();
    seen = produced;
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace coppice
