// Replicas without a model and their clients around a coordinator that runs already: the other end
// of streams.py. Prints a line of JSON for each measurement.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/program.h"
#include "base/status.h"
#include "lab/bench/coordinator/fake_replica.h"
#include "lab/bench/coordinator/request_clients.h"
#include "lab/bench/coordinator/stream_clients.h"
#include "tokenizer/tokenizer.h"

namespace coppice::bench {
namespace {

struct BenchFlags {
  std::string model, control;
  int port = 0, coordinator_pid = 0;
  int replicas = 16, streams = 0, sampled = 200;
  int tokens_per_step = 1;
  double tokens_per_s = 20, settle_s = 5, seconds = 10;
  bool usage = false;
  int clients = 64;
};

FlagTable BenchFlagTable(BenchFlags* flags) {
  return {
      "bench_coordinator",
      "Replicas without a model, and their clients, around a coordinator that runs already "
      "(lab/bench/coordinator/streams.py starts both).",
      {{"Bench",
        {{.name = "model",
          .value = &flags->model,
          .required = true,
          .text = "folder of the coordinator's model"},
         {.name = "control",
          .value = &flags->control,
          .required = true,
          .text = "control endpoint of the coordinator"},
         {.name = "port", .value = &flags->port, .range = {1, 65535}, .text = "its HTTP port"},
         {.name = "coordinator_pid",
          .value = &flags->coordinator_pid,
          .range = {1, 1 << 30},
          .text = "its process, whose CPU time and memory are reported"},
         {.name = "replicas", .value = &flags->replicas, .range = {1, 1000}, .text = "replicas"},
         {.name = "streams",
          .value = &flags->streams,
          .range = {0, 100000},
          .text = "streams at the same time; 0: short requests instead"},
         {.name = "sampled",
          .value = &flags->sampled,
          .range = {1, 10000},
          .text = "streams whose latencies are measured"},
         {.name = "tokens_per_s",
          .value = &flags->tokens_per_s,
          .range = {0.1, 1000},
          .text = "tokens per second of each stream"},
         {.name = "tokens_per_step",
          .value = &flags->tokens_per_step,
          .range = {1, 100},
          .text = "tokens that a step brings to each stream"},
         {.name = "usage",
          .value = &flags->usage,
          .text = "streams ask for the counts so far in each event"},
         {.name = "settle",
          .value = &flags->settle_s,
          .range = {0, 1000},
          .text = "seconds before the measurement"},
         {.name = "seconds",
          .value = &flags->seconds,
          .range = {1, 100},
          .text = "seconds of the measurement"},
         {.name = "clients",
          .value = &flags->clients,
          .range = {1, 1000},
          .text = "clients of short requests"}}}}};
}

// The tokens whose texts are equally many small letters, of the length that most tokens have, up to
// four: the bytes of a text then tell its tokens.
std::pair<std::vector<TokenId>, size_t> PlainTokens(const tokenizer::Tokenizer& tokenizer) {
  std::map<size_t, std::vector<TokenId>> by_length;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string text = tokenizer.TokenBytes(id, /*skip_special=*/true);
    bool plain = !text.empty() && text.size() <= 4;
    for (const char c : text) plain = plain && absl::ascii_islower(static_cast<unsigned char>(c));
    if (plain) by_length[text.size()].push_back(id);
  }
  std::pair<std::vector<TokenId>, size_t> most;
  for (const auto& [length, tokens] : by_length) {
    if (tokens.size() >= most.first.size()) most = {tokens, length};
  }
  return most;
}

struct Used {
  double cpu_s = 0, memory_mib = 0;
};

Used UsedBy(int pid) {
  Used used;
  std::ifstream stat(absl::StrCat("/proc/", pid, "/stat"));
  std::string text((std::istreambuf_iterator<char>(stat)), {});
  std::istringstream fields(text.substr(text.rfind(')') + 2));
  std::string field;
  for (int number = 3; number <= 15 && fields >> field; ++number) {
    if (number >= 14) used.cpu_s += std::stod(field) / static_cast<double>(sysconf(_SC_CLK_TCK));
  }
  std::ifstream statm(absl::StrCat("/proc/", pid, "/statm"));
  double size = 0, resident = 0;
  statm >> size >> resident;
  used.memory_mib = resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
  return used;
}

double At(const std::vector<double>& ascending, double share) {
  if (ascending.empty()) return -1;
  return ascending[static_cast<size_t>(share * static_cast<double>(ascending.size() - 1))];
}

void PrintLatencies(const std::vector<double>& ms) {
  std::printf("\"latency_ms\": {\"p50\": %.2f, \"p90\": %.2f, \"p99\": %.2f, \"max\": %.2f}",
              At(ms, 0.5), At(ms, 0.9), At(ms, 0.99), At(ms, 1));
}

void MeasureStreams(const BenchFlags& flags, size_t token_bytes, const Stamps& stamps) {
  const Used empty = UsedBy(flags.coordinator_pid);
  StreamClients clients({flags.port, flags.streams, 1000, flags.usage, token_bytes}, &stamps);
  clients.OpenAll();
  clients.Read(flags.settle_s);
  const Used begin = UsedBy(flags.coordinator_pid), own_begin = UsedBy(getpid());
  clients.Begin();
  clients.Read(flags.seconds);
  const StreamsSeen seen = clients.End();
  const Used end = UsedBy(flags.coordinator_pid), own_end = UsedBy(getpid());
  const double cores = (end.cpu_s - begin.cpu_s) / seen.seconds;
  const double sampled = static_cast<double>((flags.streams - 1) / stamps.stride() + 1);
  const double tokens_per_s =
      static_cast<double>(seen.sampled_tokens) / seen.seconds * flags.streams / sampled;
  std::printf(
      "{\"streams\": %d, \"replicas\": %d, \"usage\": %s, \"tokens_per_s\": %.0f, "
      "\"tokens_per_event\": %.3f, \"coordinator_cores\": %.3f, \"cpu_us_per_token\": %.2f, "
      "\"other_cores\": %.3f, ",
      flags.streams, flags.replicas, flags.usage ? "true" : "false", tokens_per_s,
      static_cast<double>(seen.sampled_tokens) / static_cast<double>(seen.sampled_events), cores,
      cores / tokens_per_s * 1e6, (own_end.cpu_s - own_begin.cpu_s) / seen.seconds);
  PrintLatencies(seen.latencies_ms);
  std::printf(", \"memory_kib_per_stream\": %.1f, \"ended\": %d, \"others_bytes_ratio\": %.3f}\n",
              (end.memory_mib - empty.memory_mib) * 1024 / flags.streams, seen.ended,
              seen.other_bytes_per_s / seen.sampled_bytes_per_s);
}

void MeasureRequests(const BenchFlags& flags, int clients, double pause_s) {
  const Used begin = UsedBy(flags.coordinator_pid);
  const RequestsSeen seen =
      AskRepeatedly(flags.port, clients, pause_s, /*warm_s=*/0, flags.seconds);
  const Used end = UsedBy(flags.coordinator_pid);
  const double answered = static_cast<double>(seen.latencies_ms.size());
  std::printf(
      "{\"clients\": %d, \"requests_per_s\": %.0f, \"coordinator_cores\": %.3f, "
      "\"cpu_us_per_request\": %.1f, ",
      clients, answered / seen.seconds, (end.cpu_s - begin.cpu_s) / seen.seconds,
      (end.cpu_s - begin.cpu_s) / answered * 1e6);
  PrintLatencies(seen.latencies_ms);
  std::printf(", \"failed\": %d}\n", seen.failed);
}

absl::Status Measure(const BenchFlags& flags) {
  COPPICE_ASSIGN_OR_RETURN(const auto tokenizer, tokenizer::Tokenizer::Load(flags.model));
  const auto [tokens, token_bytes] = PlainTokens(*tokenizer);
  if (tokens.empty()) return absl::InvalidArgumentError("the model has no tokens of small letters");
  Stamps stamps(std::max(1, flags.streams), std::max(1, flags.streams / flags.sampled));
  std::mt19937 random(1);
  std::vector<std::unique_ptr<FakeReplica>> replicas;
  for (int i = 0; i < flags.replicas; ++i) {
    ReplicaOptions options;
    options.coordinator = flags.control;
    options.name = absl::StrCat("fake-", i);
    options.vocab_size = tokenizer->vocab_size();
    options.tokens = tokens;
    options.tokens_per_step = flags.tokens_per_step;
    options.step_s = flags.tokens_per_step / flags.tokens_per_s;
    options.phase_s = std::uniform_real_distribution<double>(0, options.step_s)(random);
    COPPICE_ASSIGN_OR_RETURN(auto replica, FakeReplica::Start(options, &stamps));
    replicas.push_back(std::move(replica));
  }
  if (flags.streams > 0) {
    MeasureStreams(flags, token_bytes, stamps);
  } else {
    MeasureRequests(flags, flags.clients, /*pause_s=*/0);
    MeasureRequests(flags, 1, /*pause_s=*/0.005);
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  BenchFlags flags;
  ParseProgramFlags(BenchFlagTable(&flags), argc, argv);
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  const absl::Status status = Measure(flags);
  return status.ok() ? 0 : FailProgram("bench_coordinator", status);
}

}  // namespace
}  // namespace coppice::bench

int main(int argc, char** argv) { return coppice::bench::Main(argc, argv); }
