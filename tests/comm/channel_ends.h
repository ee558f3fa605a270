// For tests: both ends of a channel on this machine, and functions that wait for its messages.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "comm/channel.h"
#include "comm/frame.h"
#include "proto/control.pb.h"
#include "tests/testing/stopwatch.h"

namespace coppice::comm {

// Where a test's server binds. Clients on the same host reach a direct server that listens on one
// address through a Unix socket, and one that listens on all addresses over TCP.
struct Transport {
  const char* name;
  const char* endpoint;
  bool keyed = false;  // both ends have the same cluster key
  bool direct() const { return absl::StartsWith(endpoint, "direct://"); }
};
inline constexpr Transport kZmq = {"Zmq", "tcp://127.0.0.1:*"};
inline constexpr Transport kDirectLocal = {"DirectLocal", "direct://127.0.0.1:*"};
inline constexpr Transport kDirectTcp = {"DirectTcp", "direct://0.0.0.0:*"};
inline constexpr Transport kKeyedZmq = {"KeyedZmq", "tcp://127.0.0.1:*", true};
inline constexpr Transport kKeyedDirectLocal = {"KeyedDirectLocal", "direct://127.0.0.1:*", true};
inline constexpr Transport kKeyedDirectTcp = {"KeyedDirectTcp", "direct://0.0.0.0:*", true};

// The same key for the same number.
inline std::shared_ptr<const ClusterKey> TestKey(uint8_t number) {
  KeyBytes secret = {};
  secret.fill(number);
  return std::make_shared<const ClusterKey>(secret);
}

inline std::string TransportName(const testing::TestParamInfo<Transport>& info) {
  return info.param.name;
}

inline proto::NodeMessage Beat(uint64_t step) {
  proto::NodeMessage message;
  message.mutable_heartbeat()->mutable_status()->set_step(step);
  return message;
}

inline uint64_t Step(const proto::NodeMessage& message) {
  return message.heartbeat().status().step();
}

// A message of 20 MB, different for each number.
inline proto::NodeMessage Large(int number) {
  proto::NodeMessage message;
  message.mutable_goodbye()->set_reason(std::string(20 << 20, 'a' + number) + absl::StrCat(number));
  return message;
}

inline bool IsLarge(const proto::NodeMessage& message, int number) {
  return message.goodbye().reason() == Large(number).goodbye().reason();
}

inline std::string GoodFrame(const google::protobuf::MessageLite& message) {
  const std::string body = message.SerializeAsString();
  std::string frame(kFrameHeaderBytes, '\0');
  WriteFrameHeader(FrameKind(message.GetTypeName()), static_cast<uint32_t>(body.size()),
                   reinterpret_cast<uint8_t*>(frame.data()));
  return frame + body;
}

using test::Eventually;

inline std::unique_ptr<ServerChannel> BindTo(const std::string& endpoint,
                                             const ChannelOptions& options = {}) {
  auto server = ServerChannel::Bind(endpoint, options);
  // A port that was just closed is released in the background.
  for (int i = 0; i < 500 && !server.ok(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    server = ServerChannel::Bind(endpoint, options);
  }
  EXPECT_TRUE(server.ok()) << server.status();
  return *std::move(server);
}

inline std::unique_ptr<ClientChannel> ConnectTo(const std::string& endpoint,
                                                const ChannelOptions& options = {}) {
  auto client = ClientChannel::Connect(endpoint, options);
  EXPECT_TRUE(client.ok()) << client.status();
  return *std::move(client);
}

inline std::unique_ptr<ClientChannel> ConnectTo(const ServerChannel& server,
                                                const ChannelOptions& options = {}) {
  return ConnectTo(absl::StrReplaceAll(server.endpoint(), {{"0.0.0.0", "127.0.0.1"}}), options);
}

inline std::optional<std::string> WaitFor(ServerChannel& server,
                                          google::protobuf::MessageLite* message,
                                          double seconds = 20) {
  std::optional<std::string> peer;
  Eventually(
      [&] {
        if ((peer = server.Receive(message))) return true;
        Poll({server.socket()}, 10);
        return false;
      },
      seconds);
  return peer;
}

inline bool WaitFor(ClientChannel& client, google::protobuf::MessageLite* message) {
  return Eventually([&] {
    if (client.Receive(message)) return true;
    Poll({client.socket()}, 10);
    return false;
  });
}

// The functions above, with a key where the transport has one.
class TransportTest : public ::testing::TestWithParam<Transport> {
 protected:
  static ChannelOptions Keyed(ChannelOptions options) {
    if (GetParam().keyed) options.key = TestKey(1);
    return options;
  }
  static std::unique_ptr<ServerChannel> BindTo(const std::string& endpoint,
                                               const ChannelOptions& options = {}) {
    return comm::BindTo(endpoint, Keyed(options));
  }
  template <typename Server>  // or its endpoint
  static std::unique_ptr<ClientChannel> ConnectTo(const Server& server,
                                                  const ChannelOptions& options = {}) {
    return comm::ConnectTo(server, Keyed(options));
  }
};

// The same for clients on this thread, which have a part in the handshake. Nothing has been sent to
// them.
inline std::optional<std::string> WaitFor(ServerChannel& server,
                                          google::protobuf::MessageLite* message,
                                          std::initializer_list<ClientChannel*> clients,
                                          double seconds = 20) {
  std::optional<std::string> peer;
  Eventually(
      [&] {
        proto::NodeMessage none;
        for (ClientChannel* client : clients) EXPECT_FALSE(client->Receive(&none));
        return (peer = WaitFor(server, message, 0.005)).has_value();
      },
      seconds);
  return peer;
}

// Sends one message and returns the name under which the server knows the client.
inline std::string Meet(ServerChannel& server, ClientChannel& client) {
  EXPECT_TRUE(client.Send(Beat(0)).ok());
  proto::NodeMessage message;
  const auto peer = WaitFor(server, &message, {&client});
  EXPECT_TRUE(peer.has_value());
  return peer.value_or("");
}

}  // namespace coppice::comm
