// Messages between two threads on one host, for each transport, without and with a cluster key:
// round trips, a stream in one direction, and the time from a new connection to its first answer.
//   bin/bench_channel
#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "comm/channel.h"
#include "comm/local_channel.h"
#include "comm/secure_link.h"
#include "proto/draft.pb.h"

namespace coppice::bench {
namespace {

// A forest reply of about `bytes` bytes.
proto::DraftReply Reply(int64_t bytes) {
  proto::DraftReply reply;
  reply.set_round(1);
  reply.set_error(std::string(bytes, 'x'));
  return reply;
}

comm::ChannelOptions Options(bool keyed) {
  comm::ChannelOptions options;
  comm::KeyBytes secret;
  secret.fill(7);
  if (keyed) options.key = std::make_shared<const comm::ClusterKey>(secret);
  return options;
}

// One echo. With `pause`, nothing is sent for a while before each echo, as between two rounds of a
// request. By then the threads are asleep.
void Echo(benchmark::State& state, const char* transport, bool keyed,
          std::chrono::milliseconds pause) {
  auto server =
      comm::ServerChannel::Bind(absl::StrCat(transport, "://127.0.0.1:*"), Options(keyed));
  if (!server.ok()) return state.SkipWithError(server.status().ToString().c_str());
  std::atomic<bool> stop = false;
  std::thread echo([&] {
    proto::DraftReply message;
    while (!stop) {
      if (auto peer = (*server)->Receive(&message)) {
        (void)(*server)->Send(*peer, message);
      } else {
        comm::Poll({(*server)->socket()}, 100);
      }
    }
  });
  auto client = comm::ClientChannel::Connect((*server)->endpoint(), Options(keyed));
  const proto::DraftReply sent = Reply(state.range(0));
  proto::DraftReply received;
  for (auto _ : state) {
    if (pause.count() > 0) std::this_thread::sleep_for(pause);
    const auto begin = std::chrono::steady_clock::now();
    (void)(*client)->Send(sent);
    while (!(*client)->Receive(&received)) comm::Poll({(*client)->socket()}, 1000);
    state.SetIterationTime(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  stop = true;
  echo.join();
}

void RoundTrip(benchmark::State& state, const char* transport, bool keyed) {
  Echo(state, transport, keyed, std::chrono::milliseconds(0));
}
void RoundTripAfterPause(benchmark::State& state, const char* transport, bool keyed) {
  Echo(state, transport, keyed, std::chrono::milliseconds(15));
}

void Sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Arg(16)->Arg(2048)->Arg(65536)->Unit(benchmark::kMicrosecond)->UseManualTime();
}
BENCHMARK_CAPTURE(RoundTrip, tcp, "tcp", false)->Apply(Sizes);
BENCHMARK_CAPTURE(RoundTrip, tcp_keyed, "tcp", true)->Apply(Sizes);
BENCHMARK_CAPTURE(RoundTrip, direct, "direct", false)->Apply(Sizes);
BENCHMARK_CAPTURE(RoundTrip, direct_keyed, "direct", true)->Apply(Sizes);

void Paused(benchmark::internal::Benchmark* benchmark) {
  benchmark->Arg(2048)->Iterations(200)->Unit(benchmark::kMicrosecond)->UseManualTime();
}
BENCHMARK_CAPTURE(RoundTripAfterPause, tcp, "tcp", false)->Apply(Paused);
BENCHMARK_CAPTURE(RoundTripAfterPause, tcp_keyed, "tcp", true)->Apply(Paused);
BENCHMARK_CAPTURE(RoundTripAfterPause, direct, "direct", false)->Apply(Paused);
BENCHMARK_CAPTURE(RoundTripAfterPause, direct_keyed, "direct", true)->Apply(Paused);

// A round trip whose two ends have one thread: the work without the waits, for counters such as
// perf stat -e instructions:u. "local" is the channel within a process.
void Work(benchmark::State& state, const char* transport) {
  std::unique_ptr<comm::ServerChannel> server;
  std::unique_ptr<comm::ClientChannel> client;
  if (std::string(transport) == "local") {
    comm::LocalChannels channels = comm::MakeLocalChannels();
    server = std::move(channels.server);
    client = std::move(channels.client);
  } else {
    server = comm::ServerChannel::Bind(absl::StrCat(transport, "://127.0.0.1:*")).value();
    client = comm::ClientChannel::Connect(server->endpoint()).value();
  }
  const proto::DraftReply sent = Reply(state.range(0));
  proto::DraftReply received;
  for (auto _ : state) {
    (void)client->Send(sent);
    std::optional<std::string> peer;
    while (!(peer = server->Receive(&received))) comm::Poll({server->socket()}, 1000);
    (void)server->Send(*peer, received);
    while (!client->Receive(&received)) comm::Poll({client->socket()}, 1000);
  }
}
BENCHMARK_CAPTURE(Work, direct, "direct")->Arg(512)->Iterations(100000);
BENCHMARK_CAPTURE(Work, local, "local")->Arg(512)->Iterations(100000);

// Messages in one direction, with at most kAhead of them under way.
void Stream(benchmark::State& state, const char* transport, bool keyed) {
  constexpr uint64_t kAhead = 64;
  auto server =
      comm::ServerChannel::Bind(absl::StrCat(transport, "://127.0.0.1:*"), Options(keyed));
  if (!server.ok()) return state.SkipWithError(server.status().ToString().c_str());
  std::atomic<bool> stop = false;
  std::atomic<uint64_t> arrived = 0;
  std::thread sink([&] {
    proto::DraftReply message;
    while (!stop) {
      if ((*server)->Receive(&message)) {
        ++arrived;
      } else {
        comm::Poll({(*server)->socket()}, 1);
      }
    }
  });
  auto client = comm::ClientChannel::Connect((*server)->endpoint(), Options(keyed));
  const proto::DraftReply sent = Reply(state.range(0));
  proto::DraftReply none;
  uint64_t begun = 0;
  for (auto _ : state) {
    (void)(*client)->Send(sent);
    ++begun;
    while (begun - arrived > kAhead) (void)(*client)->Receive(&none);
  }
  while (arrived < begun) (void)(*client)->Receive(&none);
  state.SetBytesProcessed(static_cast<int64_t>(begun) * state.range(0));
  stop = true;
  sink.join();
}
void StreamSizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Arg(2048)->Arg(65536)->Arg(1 << 20)->Unit(benchmark::kMicrosecond)->UseRealTime();
}
BENCHMARK_CAPTURE(Stream, tcp, "tcp", false)->Apply(StreamSizes);
BENCHMARK_CAPTURE(Stream, tcp_keyed, "tcp", true)->Apply(StreamSizes);
BENCHMARK_CAPTURE(Stream, direct, "direct", false)->Apply(StreamSizes);
BENCHMARK_CAPTURE(Stream, direct_keyed, "direct", true)->Apply(StreamSizes);

// A new connection up to the answer to its first message.
void FirstAnswer(benchmark::State& state, const char* transport, bool keyed) {
  auto server =
      comm::ServerChannel::Bind(absl::StrCat(transport, "://127.0.0.1:*"), Options(keyed));
  if (!server.ok()) return state.SkipWithError(server.status().ToString().c_str());
  std::atomic<bool> stop = false;
  std::thread echo([&] {
    proto::DraftReply message;
    while (!stop) {
      if (auto peer = (*server)->Receive(&message)) {
        (void)(*server)->Send(*peer, message);
      } else {
        comm::Poll({(*server)->socket()}, 100);
      }
    }
  });
  const proto::DraftReply sent = Reply(16);
  proto::DraftReply received;
  for (auto _ : state) {
    auto client = comm::ClientChannel::Connect((*server)->endpoint(), Options(keyed));
    (void)(*client)->Send(sent);
    while (!(*client)->Receive(&received)) comm::Poll({(*client)->socket()}, 1000);
  }
  stop = true;
  echo.join();
}
void Connections(benchmark::internal::Benchmark* benchmark) {
  benchmark->Iterations(200)->Unit(benchmark::kMicrosecond)->UseRealTime();
}
BENCHMARK_CAPTURE(FirstAnswer, tcp, "tcp", false)->Apply(Connections);
BENCHMARK_CAPTURE(FirstAnswer, tcp_keyed, "tcp", true)->Apply(Connections);
BENCHMARK_CAPTURE(FirstAnswer, direct, "direct", false)->Apply(Connections);
BENCHMARK_CAPTURE(FirstAnswer, direct_keyed, "direct", true)->Apply(Connections);

// What a key adds to a message of direct://, without sockets: one end seals it, the other opens it.
void SealAndOpen(benchmark::State& state) {
  comm::KeyBytes key;
  key.fill(7);
  comm::SecureLink client(comm::SecureLink::End::kConnects, key);
  comm::SecureLink server(comm::SecureLink::End::kListens, key);
  std::string content(state.range(0), 'x'), records;
  const auto carry = [&](const std::string& bytes, comm::SecureLink* to) {
    for (size_t at = 0; at < bytes.size();) {
      const absl::Span<uint8_t> room = to->Room();
      const size_t part = std::min(room.size(), bytes.size() - at);
      std::memcpy(room.data(), bytes.data() + at, part);
      at += part;
      if (!to->Arrived(part)) return false;
      while (to->NextRecord()) {
        if (!to->OpenRecord(reinterpret_cast<uint8_t*>(content.data()))) return false;
      }
    }
    return true;
  };
  if (!carry(client.TakeOutgoing(), &server) || !carry(server.TakeOutgoing(), &client) ||
      !carry(client.TakeOutgoing(), &server)) {
    return state.SkipWithError("no handshake");
  }
  for (auto _ : state) {
    records.clear();
    client.Seal(content, &records);
    if (!carry(records, &server)) return state.SkipWithError("a record does not open");
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * state.range(0));
}
BENCHMARK(SealAndOpen)->Arg(16)->Arg(2048)->Arg(65000)->Unit(benchmark::kMicrosecond);

void WakerRoundTrip(benchmark::State& state) {
  auto there = comm::Waker::Create(), back = comm::Waker::Create();
  std::atomic<bool> stop = false;
  std::thread echo([&] {
    while (!stop) {
      if (!comm::Poll({there->socket()}, 100)) continue;
      there->Drain();
      back->Notify();
    }
  });
  for (auto _ : state) {
    there->Notify();
    comm::Poll({back->socket()}, 1000);
    back->Drain();
  }
  stop = true;
  echo.join();
}
BENCHMARK(WakerRoundTrip)->Unit(benchmark::kMicrosecond)->UseRealTime();

}  // namespace
}  // namespace coppice::bench

BENCHMARK_MAIN();
