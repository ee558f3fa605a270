// Channels with a cluster key against strangers: without the key, with another one, silent, or in
// great numbers. Over every transport, and over both ways to connect of the direct one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zmq.h>

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_replace.h"
#include "comm/channel.h"
#include "comm/secure_link.h"
#include "comm/zmq_guard.h"
#include "spdlog/sinks/base_sink.h"
#include "spdlog/spdlog.h"
#include "tests/comm/channel_ends.h"
#include "tests/comm/raw_peer.h"
#include "tests/testing/memory_use.h"

namespace coppice::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

ChannelOptions With(std::shared_ptr<const ClusterKey> key, double deadline_s = 5) {
  ChannelOptions options;
  options.key = std::move(key);
  options.handshake_deadline_s = deadline_s;
  return options;
}

// The log while it exists. Declare it before what logs: its threads must have ended.
class LoggedLines {
 public:
  LoggedLines() : before_(spdlog::default_logger()), sink_(std::make_shared<Sink>()) {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", sink_));
  }
  ~LoggedLines() { spdlog::set_default_logger(before_); }
  std::string text() const { return sink_->text(); }

 private:
  class Sink : public spdlog::sinks::base_sink<std::mutex> {
   public:
    std::string text() {
      std::lock_guard<std::mutex> lock(mutex_);
      return lines_;
    }

   private:
    void sink_it_(const spdlog::details::log_msg& message) override {
      lines_.append(message.payload.data(), message.payload.size()).append("\n");
    }
    void flush_() override {}
    std::string lines_;
  };
  std::shared_ptr<spdlog::logger> before_;
  std::shared_ptr<Sink> sink_;
};

class KeyedChannelTest : public ::testing::TestWithParam<Transport> {
 protected:
  static std::unique_ptr<ServerChannel> Bind(const ChannelOptions& options = With(TestKey(1))) {
    return BindTo(GetParam().endpoint, options);
  }
  // An honest client is served.
  static void ExpectServes(ServerChannel& server) {
    auto client = ConnectTo(server, With(TestKey(1)));
    proto::NodeMessage message;
    ASSERT_TRUE(client->Send(Beat(77)).ok());
    const auto peer = WaitFor(server, &message, {client.get()});
    ASSERT_TRUE(peer.has_value());
    EXPECT_EQ(Step(message), 77);
    ASSERT_TRUE(server.Send(*peer, Beat(78)).ok());
    ASSERT_TRUE(WaitFor(*client, &message));
    EXPECT_EQ(Step(message), 78);
  }
  // The client and the server talk for a while, and until the log says why not. Neither hears a
  // message.
  static void ExpectNothingHeard(ServerChannel& server, ClientChannel& client,
                                 const LoggedLines& log, const char* why) {
    proto::NodeMessage message;
    const auto heard = [&] {
      client.Send(Beat(1)).IgnoreError();
      Poll({server.socket(), client.socket()}, 10);
      return server.Receive(&message).has_value() || client.Receive(&message);
    };
    EXPECT_FALSE(Eventually(heard, 0.4));
    EXPECT_TRUE(Eventually([&] { return heard() || absl::StrContains(log.text(), why); }));
    EXPECT_EQ(server.counters().received, 0);
    EXPECT_EQ(client.counters().received, 0);
    if (client.counters().dropped_malformed > 0)
      return;  // of a server whose first bytes are no frame
    EXPECT_EQ(server.counters().dropped_malformed, 0) << "a stranger's bytes were read as a frame";
  }
};

INSTANTIATE_TEST_SUITE_P(Transports, KeyedChannelTest,
                         ::testing::Values(kZmq, kDirectLocal, kDirectTcp), TransportName);

class KeyedDirectTest : public KeyedChannelTest {};

INSTANTIATE_TEST_SUITE_P(Transports, KeyedDirectTest, ::testing::Values(kDirectLocal, kDirectTcp),
                         TransportName);

TEST_P(KeyedChannelTest, AClientWithAnotherKeyIsRefusedAndOthersAreServed) {
  LoggedLines log;
  auto server = Bind();
  auto stranger = ConnectTo(*server, With(TestKey(2)));
  ExpectNothingHeard(*server, *stranger, log, "another cluster key");
  EXPECT_THAT(log.text(), AllOf(HasSubstr(server->endpoint().substr(6)), HasSubstr("refused")));
  ExpectServes(*server);
}

TEST_P(KeyedChannelTest, AClientWithoutAKeyIsRefusedAndOthersAreServed) {
  LoggedLines log;
  auto server = Bind();
  auto stranger = ConnectTo(*server);
  ExpectNothingHeard(*server, *stranger, log, "no cluster key");
  EXPECT_THAT(log.text(), HasSubstr("refused"));
  ExpectServes(*server);
}

TEST_P(KeyedChannelTest, AClientDoesNotTalkToAServerWithAnotherKeyOrNone) {
  for (const bool keyed : {true, false}) {
    auto server = Bind(keyed ? With(TestKey(2)) : ChannelOptions());
    auto client = ConnectTo(*server, With(TestKey(1)));
    proto::NodeMessage message;
    ASSERT_TRUE(client->Send(Beat(1)).ok());
    EXPECT_FALSE(Eventually(
        [&] {
          Poll({server->socket(), client->socket()}, 10);
          return server->Receive(&message).has_value() || client->Receive(&message);
        },
        0.4));
    EXPECT_EQ(server->counters().received, 0);
    EXPECT_EQ(client->counters().received, 0);
  }
}

// What waits in a client's queue goes to the server that has the key, not to the first that answers.
// (A refused ZeroMQ client needs its owner, NodeAgent.)
TEST_P(KeyedDirectTest, QueuedMessagesWaitForAServerWithTheKey) {
  auto impostor = Bind(With(TestKey(2)));
  const std::string endpoint = impostor->endpoint();
  auto client = ConnectTo(*impostor, With(TestKey(1)));
  ASSERT_TRUE(client->Send(Beat(5)).ok());
  proto::NodeMessage message;
  ASSERT_TRUE(Eventually([&] {
    impostor->Receive(&message);
    client->Receive(&message);
    return client->counters().refused >= 2;
  }));
  EXPECT_EQ(impostor->counters().received, 0);
  EXPECT_GE(impostor->counters().refused, 2);
  impostor.reset();
  auto server = BindTo(endpoint, With(TestKey(1)));
  std::optional<std::string> peer;
  ASSERT_TRUE(Eventually([&] {
    client->Receive(&message);
    peer = WaitFor(*server, &message, 0.05);
    return peer.has_value();
  }));
  EXPECT_EQ(Step(message), 5);
  EXPECT_EQ(client->breaks(), 0);
}

TEST_P(KeyedChannelTest, SilentConnectionsAreClosedAtTheDeadline) {
  LoggedLines log;
  auto server = Bind(With(TestKey(1), /*deadline_s=*/0.3));
  std::vector<std::unique_ptr<RawTcpPeer>> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(std::make_unique<RawTcpPeer>(server->endpoint()));
  ASSERT_TRUE(silent[0]->Send(std::string("\x00\x30hello", 7)));  // a handshake that stops
  proto::NodeMessage message;
  ASSERT_FALSE(WaitFor(*server, &message, 0.1).has_value());
  test::Stopwatch watch;
  int polls = 0;
  ASSERT_TRUE(Eventually([&] {
    ++polls;
    Poll({server->socket()}, 1000);  // nobody sends: the channel itself must wake up
    EXPECT_FALSE(server->Receive(&message).has_value());
    return std::all_of(silent.begin(), silent.end(), [](auto& raw) {
      char bytes[512];  // ZeroMQ's greeting
      while (recv(raw->fd(), bytes, sizeof(bytes), MSG_DONTWAIT) > 0) {
      }
      return raw->Closed();
    });
  }));
  if (GetParam().direct()) {
    EXPECT_LT(watch.Seconds(), 5);
    EXPECT_LT(polls, 200);
    EXPECT_EQ(server->counters().refused, 20);
    EXPECT_THAT(server->TakeGone(), testing::IsEmpty());
  }
  EXPECT_TRUE(Eventually([&] { return absl::StrContains(log.text(), "in time"); }));
  ExpectServes(*server);
}

TEST_P(KeyedDirectTest, TheOldestOfTooManyStrangersIsRefused) {
  auto server = Bind(With(TestKey(1), /*deadline_s=*/1000));
  proto::NodeMessage message;
  std::vector<std::unique_ptr<RawTcpPeer>> silent;
  for (int i = 0; i < 300; ++i) {
    silent.push_back(std::make_unique<RawTcpPeer>(server->endpoint()));
    if (i % 20 == 19) {
      EXPECT_FALSE(server->Receive(&message).has_value());
    }
  }
  EXPECT_TRUE(Eventually([&] {
    EXPECT_FALSE(server->Receive(&message).has_value());
    return server->counters().refused >= 44;
  }));
  EXPECT_EQ(server->counters().refused, 44);  // 256 may wait
  EXPECT_TRUE(silent.front()->Closed());
  EXPECT_FALSE(silent.back()->Closed());
  ExpectServes(*server);
}

TEST_P(KeyedChannelTest, AFloodOfConnectionsLeavesMemoryFlatAndOthersServed) {
  auto server = Bind(With(TestKey(1), /*deadline_s=*/1));
  proto::NodeMessage message;
  const std::string garbage(200, '\x17'), frame = GoodFrame(Beat(1));
  const auto flood = [&](int connections) {
    std::vector<std::unique_ptr<RawTcpPeer>> open;
    for (int i = 0; i < connections; ++i) {
      auto raw = std::make_unique<RawTcpPeer>(server->endpoint());
      if (i % 3 == 1) raw->Send(garbage);
      if (i % 3 == 2) raw->Send(frame);
      open.push_back(std::move(raw));
      if (open.size() > 300) open.erase(open.begin());
      if (i % 8 == 0) {
        EXPECT_FALSE(server->Receive(&message).has_value());
      }
    }
    EXPECT_FALSE(server->Receive(&message).has_value());
    ExpectServes(*server);  // while 300 are open
  };
  const int connections = GetParam().direct() ? 1000 : 400;  // ZeroMQ accepts them more slowly
  flood(connections);
  const size_t before = test::MemoryInUse();
  for (int i = 0; i < 5; ++i) flood(connections);
  EXPECT_LT(test::MemoryInUse(), before + (6 << 20));
  EXPECT_EQ(server->counters().received, 6);
  if (GetParam().direct()) {
    EXPECT_GE(server->counters().refused, 5000);
  }
}

TEST(KeyedZmqTest, TheRightServerKeyAloneDoesNotLetAClientIn) {
  LoggedLines log;
  const auto key = TestKey(1), wrong = TestKey(2);
  auto server = BindTo("tcp://127.0.0.1:*", With(key));
  for (const bool right : {false, true}) {
    ZmqSocket raw(ZMQ_DEALER);
    ZmqGuard::Equip(&raw, *key);
    if (!right) {
      const CurvePair& other = wrong->connector();
      const auto text = [](const KeyBytes& bytes) {
        return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      };
      raw.SetOption(ZMQ_CURVE_PUBLICKEY, text(other.public_key));
      raw.SetOption(ZMQ_CURVE_SECRETKEY, text(other.secret_key));
    }
    ASSERT_EQ(zmq_connect(raw.get(), server->endpoint().c_str()), 0);
    const std::string frame = GoodFrame(Beat(9));
    ASSERT_EQ(zmq_send(raw.get(), frame.data(), frame.size(), ZMQ_DONTWAIT), frame.size());
    proto::NodeMessage message;
    EXPECT_EQ(WaitFor(*server, &message, right ? 20 : 0.5).has_value(), right);
  }
  EXPECT_TRUE(Eventually([&] { return absl::StrContains(log.text(), "another cluster key"); }));
}

TEST(KeyedZmqTest, GuardsComeAndGoWithTheirSockets) {
  for (int i = 0; i < 30; ++i) {
    auto one = BindTo("tcp://127.0.0.1:*", With(TestKey(1)));
    auto two = BindTo("tcp://127.0.0.1:*", With(TestKey(2)));
    auto client = ConnectTo(*two, With(TestKey(2)));
    EXPECT_NE(Meet(*two, *client), "");
    if (i % 2 == 0) one.reset();
    EXPECT_EQ(Meet(*two, *client).size(), 15);
  }
}

TEST(KeyedDirectPeerTest, AChangedRecordEndsTheConnectionAndYieldsNothing) {
  auto server = BindTo(kDirectTcp.endpoint, With(TestKey(1)));
  RawTcpServer middle;  // between the client and the server
  auto client = ConnectTo(middle.endpoint(), With(TestKey(1)));
  RawTcpPeer to_client = middle.Accept(), to_server(server->endpoint());
  proto::NodeMessage message;
  const auto pass = [&](RawTcpPeer* from, RawTcpPeer* to, size_t size) {
    const std::string bytes = from->Receive(size);
    ASSERT_EQ(bytes.size(), size);
    ASSERT_TRUE(to->Send(bytes));
  };
  pass(&to_client, &to_server, SecureLink::kHelloBytes);
  ASSERT_TRUE(Eventually([&] {
    EXPECT_FALSE(server->Receive(&message).has_value());
    char byte;
    return recv(to_server.fd(), &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 1;
  }));
  pass(&to_server, &to_client, SecureLink::kHelloBytes);
  ASSERT_TRUE(Eventually([&] {
    Poll({client->socket()}, 10);
    return client->Send(Beat(1)).ok() && client->counters().sent >= 2;
  }));
  pass(&to_client, &to_server, SecureLink::kProofBytes);
  const size_t record = GoodFrame(Beat(1)).size() + 2 + kTagBytes;
  pass(&to_client, &to_server, record);
  ASSERT_TRUE(WaitFor(*server, &message).has_value());
  EXPECT_EQ(Step(message), 1);
  std::string changed = to_client.Receive(record);
  ASSERT_EQ(changed.size(), record);
  EXPECT_EQ(changed.find("COPP"), std::string::npos);
  changed[record / 2] = static_cast<char>(changed[record / 2] ^ 1);
  ASSERT_TRUE(to_server.Send(changed));
  ASSERT_TRUE(Eventually([&] {
    EXPECT_FALSE(server->Receive(&message).has_value());
    return server->counters().dropped_forged == 1;
  }));
  EXPECT_TRUE(Eventually([&] { return to_server.Closed(); }));
  EXPECT_EQ(server->TakeGone().size(), 1);
}

TEST(KeyedDirectPeerTest, AServerThatDoesNotAnswerIsGivenUpAndTriedAgain) {
  LoggedLines log;
  RawTcpServer server;
  auto client = ConnectTo(server.endpoint(), With(TestKey(1), /*deadline_s=*/0.2));
  proto::NodeMessage message;
  for (int i = 0; i < 2; ++i) {
    RawTcpPeer peer = server.Accept();
    size_t heard = 0;  // the client's first message, and then nothing
    ASSERT_TRUE(Eventually([&] {
      EXPECT_FALSE(client->Receive(&message));
      char bytes[100];
      const ssize_t got = recv(peer.fd(), bytes, sizeof(bytes), MSG_DONTWAIT);
      if (got > 0) heard += static_cast<size_t>(got);
      return got == 0;
    }));
    EXPECT_EQ(heard, SecureLink::kHelloBytes);
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    EXPECT_FALSE(client->Receive(&message));  // connects again
  }
  EXPECT_GE(client->counters().refused, 2);
  EXPECT_EQ(client->breaks(), 0);
  EXPECT_THAT(log.text(), HasSubstr("in time"));
}

TEST(ClusterKeyWarningTest, OnlyAnOpenListenerWithoutAKeyIsWarnedAbout) {
  for (const char* scheme : {"tcp://", "direct://"}) {
    const std::string any = std::string(scheme) + "0.0.0.0:*";
    LoggedLines log;
    BindTo(std::string(scheme) + "127.0.0.1:*");
    BindTo(any, With(TestKey(1)));
    EXPECT_THAT(log.text(), Not(HasSubstr("no cluster key")));
    BindTo(any);
    EXPECT_THAT(log.text(), AllOf(HasSubstr("0.0.0.0"), HasSubstr("no cluster key"),
                                  HasSubstr("--cluster_key_file")));
  }
}

}  // namespace
}  // namespace coppice::comm
