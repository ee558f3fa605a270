// A direct server with bad peers: they cut frames anywhere, send garbage, are silent or leave.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "comm/channel.h"
#include "spdlog/sinks/ostream_sink.h"
#include "spdlog/spdlog.h"
#include "tests/comm/channel_ends.h"
#include "tests/comm/raw_peer.h"

namespace coppice::comm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::unique_ptr<ServerChannel> Bind(const ChannelOptions& options = {}) {
  return BindTo(kDirectTcp.endpoint, options);
}

// Size of the address space of this process in bytes, including untouched memory.
size_t AddressSpace() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

TEST(DirectServerTest, AFrameMayArriveByteByByte) {
  auto server = Bind();
  RawTcpPeer raw(server->endpoint());
  proto::NodeMessage message;
  const std::string frame = GoodFrame(Beat(3));
  for (size_t i = 0; i < frame.size(); ++i) {
    EXPECT_FALSE(server->Receive(&message).has_value()) << "after " << i << " bytes";
    ASSERT_TRUE(raw.Send(frame.substr(i, 1)));
    ASSERT_TRUE(Poll({server->socket()}, 5000));
  }
  const auto peer = server->Receive(&message);
  ASSERT_TRUE(peer.has_value());
  EXPECT_EQ(Step(message), 3);
  ASSERT_TRUE(server->Send(*peer, Beat(4)).ok());
  EXPECT_EQ(raw.Receive(GoodFrame(Beat(4)).size()), GoodFrame(Beat(4)));
}

TEST(DirectServerTest, ManyFramesInOneSegmentAreReadyUntilTheLastIsTaken) {
  auto server = Bind();
  RawTcpPeer raw(server->endpoint());
  std::string segment;
  for (uint64_t i = 0; i < 1000; ++i) segment += GoodFrame(Beat(i));
  const std::string last = GoodFrame(Beat(1000));
  ASSERT_TRUE(raw.Send(segment + last.substr(0, 10)));
  proto::NodeMessage message;
  for (uint64_t i = 0; i < 1000; ++i) {
    ASSERT_TRUE(Poll({server->socket()}, 5000)) << i;
    ASSERT_TRUE(WaitFor(*server, &message).has_value());
    ASSERT_EQ(Step(message), i);
  }
  EXPECT_FALSE(server->Receive(&message).has_value());
  EXPECT_FALSE(Poll({server->socket()}, 0));
  ASSERT_TRUE(raw.Send(last.substr(10)));
  ASSERT_TRUE(WaitFor(*server, &message).has_value());
  EXPECT_EQ(Step(message), 1000);
}

TEST(DirectServerTest, PeersThatSendMuchTakeTurns) {
  auto server = Bind();
  std::string segment;
  for (uint64_t i = 0; i < 1000; ++i) segment += GoodFrame(Beat(i));
  RawTcpPeer first(server->endpoint()), second(server->endpoint());
  ASSERT_TRUE(first.Send(segment));
  ASSERT_TRUE(second.Send(segment));
  std::map<std::string, uint64_t> heard;
  proto::NodeMessage message;
  for (int i = 0; i < 100; ++i) {
    const auto peer = WaitFor(*server, &message);
    ASSERT_TRUE(peer.has_value());
    EXPECT_EQ(Step(message), heard[*peer]++);
  }
  EXPECT_THAT(heard, ElementsAre(testing::Pair(testing::_, 50), testing::Pair(testing::_, 50)));
}

TEST(DirectServerTest, TenThousandMutatedFramesDoNoHarm) {
  auto server = Bind();
  auto client = ConnectTo(*server);
  const std::string name = Meet(*server, *client);
  std::mt19937_64 random(7);
  std::vector<std::unique_ptr<RawTcpPeer>> raw(8);
  uint64_t connections = 0, parsed = 1, taken = 0;
  std::set<std::string> heard;
  proto::NodeMessage message;
  for (int i = 0; i < 10000; ++i) {
    auto& peer = raw[random() % raw.size()];
    if (peer == nullptr || peer->Closed() || random() % 8 == 0) {
      peer = std::make_unique<RawTcpPeer>(server->endpoint());
      ++connections;
    }
    std::string frame = GoodFrame(Beat(1));
    if (random() % 4 == 0) frame.assign(1 + random() % 64, '\0');  // sometimes not a frame at all
    const size_t changes = frame[0] == '\0' ? frame.size() : 1 + random() % 3;
    for (size_t k = 0; k < changes; ++k) {
      frame[random() % frame.size()] = static_cast<char>(random());
    }
    taken += peer->Send(frame) ? 1 : 0;
    while (const auto sender = server->Receive(&message)) {
      ++parsed;
      heard.insert(*sender);
    }
    if (i % 100 != 0) continue;
    ASSERT_TRUE(client->Send(Beat(i + 1000000)).ok());
    std::optional<std::string> sender;
    do {
      ASSERT_TRUE((sender = WaitFor(*server, &message)).has_value());
      ++parsed;
      heard.insert(*sender);
    } while (Step(message) != i + 1000000);
    ASSERT_EQ(*sender, name);
  }
  const ChannelCounters& counters = server->counters();
  EXPECT_EQ(counters.received, parsed);
  EXPECT_GT(counters.dropped_malformed, 1000);
  EXPECT_GT(counters.dropped_version, 100);
  EXPECT_GT(counters.dropped_oversized, 10);
  EXPECT_GT(taken, 5000);
  EXPECT_GT(connections, 1000);
  EXPECT_EQ(client->breaks(), 0);
  raw.clear();
  heard.erase(name);
  EXPECT_GT(heard.size(), 100);
  EXPECT_LT(heard.size(), connections);  // peers without a good frame are not reported as gone
  std::vector<std::string> gone = server->TakeGone();
  EXPECT_TRUE(Eventually([&] {
    EXPECT_FALSE(server->Receive(&message).has_value());
    for (const std::string& peer : server->TakeGone()) gone.push_back(peer);
    return gone.size() >= heard.size();
  })) << gone.size();
  EXPECT_THAT(gone, testing::UnorderedElementsAreArray(heard));
}

TEST(DirectServerTest, AnnouncedBytesTakeNoMemoryBeforeTheyCome) {
  auto server = Bind();
  std::string header(kFrameHeaderBytes, '\0');
  WriteFrameHeader(FrameKind(proto::NodeMessage().GetTypeName()), 64 << 20,
                   reinterpret_cast<uint8_t*>(header.data()));
  std::vector<std::unique_ptr<RawTcpPeer>> raw;
  proto::NodeMessage message;
  const size_t before = AddressSpace();
  for (int i = 0; i < 50; ++i) {
    raw.push_back(std::make_unique<RawTcpPeer>(server->endpoint()));
    ASSERT_TRUE(raw.back()->Send(header + std::string(1000, 'x')));
    ASSERT_TRUE(Poll({server->socket()}, 5000));
    EXPECT_FALSE(server->Receive(&message).has_value());
  }
  EXPECT_FALSE(Poll({server->socket()}, 0));  // everything has been read
  EXPECT_LT(AddressSpace(), before + (50 << 20));
  EXPECT_THAT(server->TakeGone(), IsEmpty());
}

TEST(DirectServerTest, ABadHeaderEndsItsConnectionOnly) {
  ChannelOptions small;
  small.max_message_bytes = 1000;
  auto server = Bind(small);
  auto client = ConnectTo(*server);
  const std::string name = Meet(*server, *client);
  std::string magic = GoodFrame(Beat(1)), version = magic, oversized = magic;
  magic[3] = 'p';
  version[4] = static_cast<char>(kProtocolVersion + 1);
  WriteFrameHeader(1, 1001, reinterpret_cast<uint8_t*>(oversized.data()));
  const ChannelCounters& counters = server->counters();
  const std::pair<std::string, const uint64_t*> cases[] = {
      {magic, &counters.dropped_malformed},
      {version, &counters.dropped_version},
      {oversized, &counters.dropped_oversized}};
  proto::NodeMessage message;
  for (const auto& [bad, dropped] : cases) {
    RawTcpPeer raw(server->endpoint());
    ASSERT_TRUE(raw.Send(GoodFrame(Beat(2)) + bad + GoodFrame(Beat(3))));
    const auto sender = WaitFor(*server, &message);  // the frame before the bad one
    ASSERT_TRUE(sender.has_value());
    EXPECT_EQ(Step(message), 2);
    EXPECT_FALSE(raw.Closed());
    EXPECT_FALSE(server->Receive(&message).has_value());  // not the frame after the bad one
    EXPECT_EQ(*dropped, 1);
    EXPECT_TRUE(Eventually([&] { return raw.Closed(); }));
    EXPECT_THAT(server->TakeGone(), ElementsAre(*sender));
    EXPECT_EQ(server->Send(*sender, Beat(4)).code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(Meet(*server, *client), name);
  }
  EXPECT_EQ(counters.dropped_malformed + counters.dropped_version + counters.dropped_oversized, 3);
  EXPECT_EQ(client->breaks(), 0);
}

TEST(DirectServerTest, WhatAPeerSaidBeforeItLeftIsHeard) {
  auto server = Bind();
  const std::string frame = GoodFrame(Beat(1));
  const std::string large = GoodFrame(Large(1));
  proto::NodeMessage message;
  for (const bool half_closed : {true, false}) {
    RawTcpPeer raw(server->endpoint());
    std::thread sender([&] {  // more than one read takes
      EXPECT_TRUE(raw.Send(large + frame + frame.substr(0, 20)));
      if (half_closed) raw.EndSending();
      if (!half_closed) raw.Close();
    });
    const auto name = WaitFor(*server, &message);
    EXPECT_TRUE(name.has_value() && IsLarge(message, 1));
    EXPECT_EQ(WaitFor(*server, &message), name);
    EXPECT_EQ(Step(message), 1);
    sender.join();
    std::vector<std::string> gone;
    EXPECT_TRUE(Eventually([&] {
      EXPECT_FALSE(server->Receive(&message).has_value());
      gone = server->TakeGone();
      return !gone.empty();
    }));
    EXPECT_THAT(gone, ElementsAre(name.value_or("")));
  }
  EXPECT_EQ(server->counters().dropped_malformed, 0);
}

// The peer closes with unread bytes, so the server's next write fails. The peer's frames are still
// delivered first.
TEST(DirectServerTest, WhatAPeerSaidIsHeardThoughItTakesNothingAnyMore) {
  auto server = Bind();
  RawTcpPeer raw(server->endpoint());
  ASSERT_TRUE(raw.Send(GoodFrame(Beat(1))));
  proto::NodeMessage message;
  const auto name = WaitFor(*server, &message);
  ASSERT_TRUE(name.has_value());
  ASSERT_TRUE(server->Send(*name, Large(1)).ok());  // most of it waits until there is room
  ASSERT_TRUE(raw.Send(GoodFrame(Beat(2)) + GoodFrame(Beat(3))));
  raw.Close();
  EXPECT_EQ(WaitFor(*server, &message), name);
  EXPECT_EQ(Step(message), 2);
  EXPECT_EQ(WaitFor(*server, &message), name);
  EXPECT_EQ(Step(message), 3);
  EXPECT_FALSE(server->Receive(&message).has_value());
  EXPECT_TRUE(Eventually([&] {
    EXPECT_FALSE(server->Receive(&message).has_value());
    return !server->TakeGone().empty();
  }));
}

TEST(DirectServerTest, WithoutFreeFileDescriptorsItWaitsAndAcceptsLater) {
  auto server = Bind();
  auto client = ConnectTo(*server);
  const std::string name = Meet(*server, *client);
  std::vector<RawTcpPeer> waiting(3);
  const auto before = spdlog::default_logger();
  std::ostringstream log;
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::ostream_sink_mt>(log)));
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  rlimit low = limit;
  low.rlim_cur = 256;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  std::vector<FileDescriptor> taken;
  do taken.emplace_back(dup(STDERR_FILENO));
  while (taken.back().open());
  proto::NodeMessage message;
  for (RawTcpPeer& raw : waiting) {
    EXPECT_TRUE(raw.Connect(server->endpoint()));
    EXPECT_TRUE(raw.Send(GoodFrame(Beat(1))));
  }
  int turns = 0;
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(500)) {
    Poll({server->socket()}, 50);
    EXPECT_FALSE(server->Receive(&message).has_value());
    ++turns;
  }
  EXPECT_LT(turns, 50);  // it does not spin
  EXPECT_EQ(Meet(*server, *client), name);
  taken.clear();
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  spdlog::set_default_logger(before);
  EXPECT_THAT(log.str(), testing::HasSubstr("accept 'direct://"));
  EXPECT_THAT(log.str(), testing::HasSubstr("Too many open files"));
  for (size_t i = 0; i < waiting.size(); ++i) {
    ASSERT_TRUE(WaitFor(*server, &message).has_value());
    EXPECT_EQ(Step(message), 1);
  }
  RawTcpPeer later(server->endpoint());
  ASSERT_TRUE(later.Send(GoodFrame(Beat(2))));
  ASSERT_TRUE(WaitFor(*server, &message).has_value());
  EXPECT_EQ(Step(message), 2);
}

}  // namespace
}  // namespace coppice::comm
