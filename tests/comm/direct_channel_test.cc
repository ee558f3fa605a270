// A direct client. Both ends with large frames, and when connections end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "comm/channel.h"
#include "tests/comm/channel_ends.h"
#include "tests/comm/raw_peer.h"

namespace coppice::comm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

int OpenFileDescriptors() {
  int count = -1;  // do not count the descriptor of the listing
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    (void)entry;
    ++count;
  }
  return count;
}

TEST(DirectClientTest, WhatIsNoFrameEndsTheConnectionAndAnotherIsMade) {
  RawTcpServer server;
  auto client = ConnectTo(server.endpoint());
  ASSERT_TRUE(client->Send(Beat(1)).ok());
  proto::NodeMessage message;
  for (uint64_t round = 1; round <= 3; ++round) {
    RawTcpPeer peer = server.Accept();
    ASSERT_TRUE(peer.Send(GoodFrame(Beat(2)) + GoodFrame(Beat(3)) + std::string(100, 'x')));
    ASSERT_TRUE(WaitFor(*client, &message));
    EXPECT_EQ(Step(message), 2);
    EXPECT_TRUE(client->socket().ready);
    ASSERT_TRUE(WaitFor(*client, &message));
    EXPECT_EQ(Step(message), 3);
    EXPECT_FALSE(client->Receive(&message));
    EXPECT_EQ(client->counters().dropped_malformed, round);
    EXPECT_EQ(client->breaks(), round);
    EXPECT_FALSE(client->socket().ready);
    EXPECT_TRUE(absl::IsUnavailable(client->Send(Beat(1))));
    ASSERT_TRUE(Eventually([&] {
      Poll({client->socket()}, 10);
      return client->Send(Beat(1)).ok();
    }));
  }
}

TEST(DirectClientTest, WhatTheServerSaidBeforeItLeftIsHeard) {
  RawTcpServer server;
  auto client = ConnectTo(server.endpoint());
  RawTcpPeer peer = server.Accept();
  proto::NodeMessage message;
  message.mutable_goodbye()->set_reason(std::string(60000, 'x'));
  const std::string said = GoodFrame(Beat(2)) + GoodFrame(Beat(3)) + "COPP";
  // 64 KiB in total, which is what the first read takes. So the end arrives with the last message.
  message.mutable_goodbye()->mutable_reason()->append(
      (64 << 10) - said.size() - GoodFrame(message).size(), 'x');
  ASSERT_TRUE(peer.Send(GoodFrame(message) + said));
  peer.Close();
  EXPECT_TRUE(WaitFor(*client, &message));
  for (uint64_t step : {2, 3}) {
    ASSERT_TRUE(WaitFor(*client, &message));
    EXPECT_EQ(Step(message), step);
    EXPECT_EQ(client->breaks(), 0);
  }
  EXPECT_TRUE(Eventually([&] {
    EXPECT_FALSE(client->Receive(&message));
    return client->breaks() == 1;
  }));
  EXPECT_EQ(client->counters().dropped_malformed, 0);
}

TEST(DirectClientTest, WithoutAServerItNeitherSpinsNorLeaks) {
  const int before = OpenFileDescriptors();
  auto client = ConnectTo("direct://127.0.0.1:1");
  ASSERT_TRUE(client->Send(Beat(1)).ok());
  proto::NodeMessage message;
  int turns = 0;
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(1500)) {
    Poll({client->socket()}, 50);
    EXPECT_FALSE(client->Receive(&message));
    EXPECT_LE(OpenFileDescriptors(), before + 1);
    ++turns;
  }
  EXPECT_LT(turns, 100);
  EXPECT_EQ(client->breaks(), 0);
  for (int i = 0; i < 100; ++i) ConnectTo("direct://127.0.0.1:1");
  client.reset();
  EXPECT_EQ(OpenFileDescriptors(), before);
}

// The kernel goes through the ports that it gives to clients. Sooner or later it gives a client the
// very port that it connects to. If nobody listens there, the client is connected to itself.
TEST(DirectClientTest, NeverTalksToItself) {
  int low = 0, high = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> low >> high;
  int port = 0;  // with the parity that the kernel tries first
  for (int i = 0; i < 100 && (port < low || port % 2 != low % 2); ++i) {
    const int odd = PortOf(RawTcpServer().endpoint());
    port = PortOf(RawTcpServer(odd - 1).endpoint());
  }
  ASSERT_GE(port, low) << "no such port is free";
  const std::string endpoint = absl::StrCat("direct://127.0.0.1:", port);
  proto::NodeMessage message;
  for (int i = 0; i < 45000; ++i) {
    auto client = ConnectTo(endpoint);
    ASSERT_TRUE(client->Send(Beat(1)).ok());
    ASSERT_FALSE(client->Receive(&message)) << "at attempt " << i;
    ASSERT_EQ(client->breaks(), 0);
  }
}

TEST(DirectClientTest, WithinAHostItPrefersTheLocalSocket) {
  RawTcpServer server;
  auto client = ConnectTo(server.endpoint());
  RawTcpPeer over_tcp = server.Accept();
  ASSERT_TRUE(client->Send(Beat(1)).ok());
  EXPECT_EQ(over_tcp.Receive(GoodFrame(Beat(1)).size()), GoodFrame(Beat(1)));
  const FileDescriptor local = ListenLocal(server.endpoint());
  ASSERT_TRUE(local.open());
  client = ConnectTo(server.endpoint());
  ASSERT_TRUE(client->Send(Beat(2)).ok());
  ASSERT_TRUE(Poll({Pollable{.fd = local.get()}}, 5000));
  RawTcpPeer over_unix(FileDescriptor(accept4(local.get(), nullptr, nullptr, SOCK_CLOEXEC)));
  EXPECT_EQ(over_unix.Receive(GoodFrame(Beat(2)).size()), GoodFrame(Beat(2)));
}

class DirectChannelTest : public TransportTest {};

INSTANTIATE_TEST_SUITE_P(Transports, DirectChannelTest,
                         ::testing::Values(kDirectLocal, kDirectTcp, kKeyedDirectLocal,
                                           kKeyedDirectTcp),
                         TransportName);

TEST_P(DirectChannelTest, LargeFramesForASlowClientWaitAndKeepTheirOrder) {
  auto server = BindTo(GetParam().endpoint);
  auto client = ConnectTo(*server);
  const std::string peer = Meet(*server, *client);
  proto::NodeMessage message;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(server->Send(peer, Large(i)).ok());
  EXPECT_FALSE(server->Receive(&message).has_value());
  EXPECT_FALSE(Poll({server->socket()}, 0));  // there is no room to write yet
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(Eventually([&] {
      // The server is served only when it is ready. So room to write must make it ready.
      if (Poll({server->socket()}, 0)) {
        EXPECT_FALSE(server->Receive(&message).has_value());
      }
      return Poll({client->socket()}, 1) && client->Receive(&message);
    })) << i;
    EXPECT_TRUE(IsLarge(message, i));
  }
  EXPECT_FALSE(client->Receive(&message));
  EXPECT_FALSE(Poll({server->socket(), client->socket()}, 0));  // neither waits for room any more
  EXPECT_EQ(client->breaks(), 0);
}

TEST_P(DirectChannelTest, LargeFramesForASlowServerWaitAndKeepTheirOrder) {
  auto server = BindTo(GetParam().endpoint);
  auto client = ConnectTo(*server);
  const std::string peer = Meet(*server, *client);
  proto::NodeMessage message;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(client->Send(Large(i)).ok());
  EXPECT_FALSE(client->Receive(&message));
  EXPECT_FALSE(Poll({client->socket()}, 0));
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(Eventually([&] {
      if (Poll({client->socket()}, 0)) {
        EXPECT_FALSE(client->Receive(&message));
      }
      return Poll({server->socket()}, 1) && server->Receive(&message).has_value();
    })) << i;
    EXPECT_TRUE(IsLarge(message, i));
  }
  EXPECT_FALSE(server->Receive(&message).has_value());
  EXPECT_FALSE(Poll({server->socket(), client->socket()}, 0));
}

TEST_P(DirectChannelTest, LargeFramesBothWaysAtOnceDoNotBlockEachOther) {
  auto server = BindTo(GetParam().endpoint);
  auto client = ConnectTo(*server);
  const std::string peer = Meet(*server, *client);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(server->Send(peer, Large(i)).ok());
    ASSERT_TRUE(client->Send(Large(10 + i)).ok());
  }
  int at_client = 0, at_server = 0;
  proto::NodeMessage message;
  EXPECT_TRUE(Eventually([&] {
    Poll({server->socket(), client->socket()}, 10);
    if (client->Receive(&message)) {
      EXPECT_TRUE(IsLarge(message, at_client++));
    }
    if (server->Receive(&message)) {
      EXPECT_TRUE(IsLarge(message, 10 + at_server++));
    }
    return at_client == 2 && at_server == 2;
  })) << at_client
      << " and " << at_server;
}

TEST_P(DirectChannelTest, AReaderThatStopsFillsItsOwnQueueOnly) {
  ChannelOptions options;
  options.send_high_water = 2;
  auto server = BindTo(GetParam().endpoint, options);
  auto slow = ConnectTo(*server), quick = ConnectTo(*server);
  const std::string slow_name = Meet(*server, *slow), quick_name = Meet(*server, *quick);
  int sent = 0;
  absl::Status status;
  while (sent < 10 && (status = server->Send(slow_name, Large(sent))).ok()) ++sent;
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(sent, 2);
  EXPECT_EQ(server->counters().sent, sent);
  proto::NodeMessage message;
  ASSERT_TRUE(server->Send(quick_name, Beat(1)).ok());
  EXPECT_TRUE(WaitFor(*quick, &message));
  for (int i = 0; i < sent; ++i) {
    ASSERT_TRUE(Eventually([&] {
      EXPECT_FALSE(server->Receive(&message).has_value());
      return slow->Receive(&message);
    }));
    EXPECT_TRUE(IsLarge(message, i));
  }
  EXPECT_TRUE(server->Send(slow_name, Beat(2)).ok());
  EXPECT_TRUE(WaitFor(*slow, &message));
}

TEST_P(DirectChannelTest, TakeGoneNamesExactlyThePeersThatEnded) {
  auto server = BindTo(GetParam().endpoint);
  std::vector<std::unique_ptr<ClientChannel>> clients;
  std::vector<std::string> names;
  for (int i = 0; i < 5; ++i) {
    clients.push_back(ConnectTo(*server));
    names.push_back(Meet(*server, *clients.back()));
  }
  EXPECT_THAT(server->TakeGone(), IsEmpty());
  ConnectTo(*server).reset();  // it sent nothing, so the server does not know it
  clients[1].reset();
  clients[3].reset();
  proto::NodeMessage message;
  std::vector<std::string> gone;
  const auto take = [&] {
    EXPECT_FALSE(server->Receive(&message).has_value());
    for (const std::string& name : server->TakeGone()) gone.push_back(name);
  };
  EXPECT_TRUE(Eventually([&] {
    Poll({server->socket()}, 10);
    take();
    return gone.size() >= 2;
  }));
  EXPECT_THAT(gone, UnorderedElementsAre(names[1], names[3]));
  clients[0].reset();  // the server notices when it sends
  EXPECT_TRUE(Eventually([&] { return !server->Send(names[0], Beat(1)).ok(); }));
  gone.clear();
  for (int i = 0; i < 10; ++i) take();
  EXPECT_THAT(gone, ElementsAre(names[0]));
  EXPECT_EQ(Meet(*server, *clients[2]), names[2]);
  EXPECT_EQ(Meet(*server, *clients[4]), names[4]);
  const auto fresh = ConnectTo(*server);
  EXPECT_THAT(names, testing::Not(testing::Contains(Meet(*server, *fresh))));
}

}  // namespace
}  // namespace coppice::comm
