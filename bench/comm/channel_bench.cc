// Round trip of a message between two threads over TCP loopback, for each transport.
//   bin/bench_channel
#include <benchmark/benchmark.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "comm/channel.h"
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

// One echo. With `pause`, nothing is sent for a while before each echo, as between two rounds of a
// request. By then the threads are asleep.
void Echo(benchmark::State& state, const char* transport, std::chrono::milliseconds pause) {
  auto server = comm::ServerChannel::Bind(absl::StrCat(transport, "://127.0.0.1:*"));
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
  auto client = comm::ClientChannel::Connect((*server)->endpoint());
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

void RoundTrip(benchmark::State& state, const char* transport) {
  Echo(state, transport, std::chrono::milliseconds(0));
}
void RoundTripAfterPause(benchmark::State& state, const char* transport) {
  Echo(state, transport, std::chrono::milliseconds(15));
}

void Sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Arg(16)->Arg(2048)->Arg(65536)->Unit(benchmark::kMicrosecond)->UseManualTime();
}
BENCHMARK_CAPTURE(RoundTrip, tcp, "tcp")->Apply(Sizes);
BENCHMARK_CAPTURE(RoundTrip, direct, "direct")->Apply(Sizes);

void Paused(benchmark::internal::Benchmark* benchmark) {
  benchmark->Arg(2048)->Iterations(200)->Unit(benchmark::kMicrosecond)->UseManualTime();
}
BENCHMARK_CAPTURE(RoundTripAfterPause, tcp, "tcp")->Apply(Paused);
BENCHMARK_CAPTURE(RoundTripAfterPause, direct, "direct")->Apply(Paused);

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
