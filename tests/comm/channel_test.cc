// Tests for every transport, and for both ways to connect of the direct one.
#include "comm/channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "proto/control.pb.h"
#include "proto/draft.pb.h"
#include "tests/comm/channel_ends.h"

namespace coppice::comm {
namespace {

using ::testing::HasSubstr;

class ChannelTest : public TransportTest {
 protected:
  static std::unique_ptr<ServerChannel> Bind(const ChannelOptions& options = {}) {
    return BindTo(GetParam().endpoint, options);
  }
  static std::string scheme() { return GetParam().direct() ? "direct://" : "tcp://"; }
  static std::string Nobody() { return scheme() + "127.0.0.1:1"; }
};

INSTANTIATE_TEST_SUITE_P(Transports, ChannelTest,
                         ::testing::Values(kZmq, kDirectLocal, kDirectTcp, kKeyedZmq,
                                           kKeyedDirectLocal, kKeyedDirectTcp),
                         TransportName);

TEST_P(ChannelTest, CarriesMessagesBothWaysInOrder) {
  auto server = Bind();
  EXPECT_THAT(server->endpoint(), testing::MatchesRegex(scheme() + "[0-9.]+:[0-9]+"));
  std::thread client_thread([&] {
    auto client = ConnectTo(*server);
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
    ASSERT_EQ(Step(message), i);
    proto::CoordinatorMessage answer;
    answer.mutable_cancel()->set_sequence_id(i + 1);
    ASSERT_TRUE(server->Send(*peer, answer).ok());
  }
  client_thread.join();
  EXPECT_EQ(server->counters().sent, 1000);
  EXPECT_EQ(server->counters().received, 1000);
}

TEST_P(ChannelTest, TellsPeersApart) {
  auto server = Bind();
  auto a = ConnectTo(*server), b = ConnectTo(*server);
  EXPECT_NE(Meet(*server, *a), Meet(*server, *b));
  ASSERT_TRUE(a->Send(Beat(1)).ok());
  ASSERT_TRUE(b->Send(Beat(2)).ok());
  proto::NodeMessage message;
  std::set<std::string> peers;
  for (int i = 0; i < 2; ++i) {
    auto peer = WaitFor(*server, &message);
    ASSERT_TRUE(peer.has_value());
    peers.insert(*peer);
    proto::CoordinatorMessage answer;
    answer.mutable_cancel()->set_sequence_id(Step(message) * 10);
    ASSERT_TRUE(server->Send(*peer, answer).ok());
  }
  EXPECT_EQ(peers.size(), 2);
  proto::CoordinatorMessage answer;
  ASSERT_TRUE(WaitFor(*a, &answer));
  EXPECT_EQ(answer.cancel().sequence_id(), 10);
  ASSERT_TRUE(WaitFor(*b, &answer));
  EXPECT_EQ(answer.cancel().sequence_id(), 20);
}

TEST_P(ChannelTest, SendToAGonePeerIsUnavailable) {
  auto server = Bind();
  EXPECT_EQ(server->Send("nobody", Beat(1)).code(), absl::StatusCode::kUnavailable);
  auto client = ConnectTo(*server);
  const std::string peer = Meet(*server, *client);
  EXPECT_TRUE(server->Send(peer, Beat(2)).ok());
  client.reset();
  absl::Status status;
  EXPECT_TRUE(Eventually([&] {
    Poll({server->socket()}, 10);
    status = server->Send(peer, Beat(3));
    return !status.ok();
  }));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(server->endpoint()));
}

TEST_P(ChannelTest, BadEndpointsAreErrorsThatNameThem) {
  for (const char* address : {"", "here", "127.0.0.1:x"}) {
    const std::string endpoint = scheme() + address;
    const auto server = ServerChannel::Bind(endpoint);
    ASSERT_FALSE(server.ok()) << endpoint;
    EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument) << server.status();
    EXPECT_THAT(std::string(server.status().message()), HasSubstr(endpoint));
    EXPECT_FALSE(ClientChannel::Connect(endpoint).ok()) << endpoint;
  }
  auto server = Bind();
  auto taken = ServerChannel::Bind(server->endpoint());
  ASSERT_FALSE(taken.ok());
  EXPECT_THAT(std::string(taken.status().message()), HasSubstr("in use"));
}

TEST_P(ChannelTest, OversizedMessagesAreRefusedBySenderAndDroppedByReceiver) {
  ChannelOptions small;
  small.max_message_bytes = 1000;
  auto server = Bind(small);
  auto strict = ConnectTo(*server, small);
  auto client = ConnectTo(*server);  // it allows 64 MiB
  Meet(*server, *strict);
  Meet(*server, *client);
  proto::NodeMessage big;
  big.mutable_goodbye()->set_reason(std::string(2000, 'x'));
  EXPECT_EQ(strict->Send(big).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(strict->Send(Beat(4)).ok());
  proto::NodeMessage message;
  ASSERT_TRUE(WaitFor(*server, &message).has_value());
  EXPECT_EQ(Step(message), 4);
  ASSERT_TRUE(client->Send(big).ok());
  ASSERT_TRUE(Eventually([&] {
    EXPECT_FALSE(server->Receive(&message).has_value());
    return server->counters().dropped_oversized == 1;
  }));
  // The sender may have lost its connection by this, but it is heard again. Others notice nothing.
  ASSERT_TRUE(Eventually([&] {
    client->Receive(&message);
    client->Send(Beat(5)).IgnoreError();
    return WaitFor(*server, &message, 0.1).has_value();
  }));
  EXPECT_EQ(Step(message), 5);
  ASSERT_TRUE(strict->Send(Beat(6)).ok());
  do {
    ASSERT_TRUE(WaitFor(*server, &message).has_value());
  } while (Step(message) == 5);  // more than one may have been sent
  EXPECT_EQ(Step(message), 6);
  EXPECT_EQ(strict->breaks(), 0);
}

TEST_P(ChannelTest, AnotherKindOfMessageIsMalformedAndWhatFollowsIsHeard) {
  auto server = Bind();
  auto client = ConnectTo(*server);
  Meet(*server, *client);
  proto::DraftReply reply;
  reply.set_round(1);
  ASSERT_TRUE(client->Send(reply).ok());
  ASSERT_TRUE(client->Send(Beat(2)).ok());
  proto::NodeMessage message;
  ASSERT_TRUE(WaitFor(*server, &message).has_value());
  EXPECT_EQ(Step(message), 2);
  EXPECT_EQ(server->counters().dropped_malformed, 1);
  EXPECT_EQ(client->breaks(), 0);
}

TEST_P(ChannelTest, ClientComesBackToARestartedServer) {
  auto server = Bind();
  const std::string endpoint = server->endpoint();
  auto client = ConnectTo(*server);
  const std::string before = Meet(*server, *client);
  for (uint64_t restart = 1; restart <= 2; ++restart) {
    proto::NodeMessage message;
    server.reset();
    if (GetParam().direct() && restart == 2) {  // noticed by reading; the first time, by sending
      EXPECT_TRUE(Eventually([&] {
        EXPECT_FALSE(client->Receive(&message));
        return client->breaks() == restart;
      }));
    }
    server = BindTo(endpoint);
    // Messages are lost if they are sent before the client notices that the old connection is gone.
    // So the client sends until it is heard.
    std::optional<std::string> after;
    ASSERT_TRUE(Eventually([&] {
      const absl::Status status = client->Send(Beat(restart));
      if (GetParam().direct()) {
        EXPECT_TRUE(status.ok() || absl::IsUnavailable(status)) << status;
      } else {
        EXPECT_TRUE(status.ok()) << status;
      }
      after = WaitFor(*server, &message, 0.1);
      return after.has_value();
    }));
    EXPECT_EQ(Step(message), restart);
    EXPECT_EQ(client->breaks(), GetParam().direct() ? restart : 0);
    if (!GetParam().direct()) {
      EXPECT_EQ(before, *after);
    }
    ASSERT_TRUE(server->Send(*after, Beat(7)).ok());
    EXPECT_TRUE(WaitFor(*client, &message));
  }
}

TEST_P(ChannelTest, WhatIsSaidBeforeThereIsAServerIsHeardInOrder) {
  const std::string endpoint = Bind()->endpoint();
  auto client =
      ConnectTo(absl::StrReplaceAll(endpoint, {{"0.0.0.0", "127.0.0.1"}}));  // nobody there
  for (uint64_t i = 0; i < 20; ++i) ASSERT_TRUE(client->Send(Beat(i)).ok());
  proto::NodeMessage message;
  EXPECT_FALSE(client->Receive(&message));
  auto server = BindTo(endpoint);
  for (uint64_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(Eventually([&] {
      client->Receive(&message);
      return WaitFor(*server, &message, 0.05).has_value();
    }));
    EXPECT_EQ(Step(message), i);
  }
  EXPECT_EQ(client->breaks(), 0);
}

TEST_P(ChannelTest, FullQueueIsResourceExhausted) {
  ChannelOptions options;
  options.send_high_water = 10;
  auto client = ConnectTo(Nobody(), options);
  absl::Status status;
  int sent = 0;
  while (sent < 100 && (status = client->Send(Beat(sent))).ok()) ++sent;
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr(Nobody()));
  EXPECT_GE(sent, 10);
}

TEST_P(ChannelTest, ClosingWithUnsentFramesDoesNotHang) {
  test::Stopwatch watch;
  {
    auto client = ConnectTo(Nobody());
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(client->Send(Beat(i)).ok());
  }
  EXPECT_LT(watch.Seconds(), 2);
}

}  // namespace
}  // namespace coppice::comm
