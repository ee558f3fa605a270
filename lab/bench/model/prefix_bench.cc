#include <array>

#include "base/status.h"
#include "lab/bench/model/json_line.h"
#include "lab/bench/model/subcommands.h"
#include "lab/bench/model/timed_runner.h"

namespace coppice::bench {
namespace {

struct Batch {
  const char* name;
  int common = 0;  // tokens that the contexts have in common
  int tokens = 0;  // of a context
  std::vector<TimedRunner::Context> contexts = {};
};

absl::Status MeasureCommon(const PrefixBench& bench, const RunnerChoice& choice, int requests,
                           int common, TimedRunner* timed) {
  std::array<Batch, 3> batches = {{{"short", 0, bench.own},
                                   {"common", common, common + bench.own},
                                   {"separate", 0, common + bench.own}}};
  std::array<double, 3> kv_mb;  // of K and V that a pass reads
  absl::Status status;
  std::vector<std::function<void()>> passes;
  for (size_t i = 0; i < batches.size(); ++i) {
    Batch& batch = batches[i];
    for (int request = 0; request < requests; ++request) {
      COPPICE_ASSIGN_OR_RETURN(auto context, timed->Open(batch.tokens, bench.chunk, batch.common));
      COPPICE_RETURN_IF_ERROR(timed->Grow(1, 1, &context));
      batch.contexts.push_back(std::move(context));
    }
    const uint64_t before = timed->runner()->reads().kv;
    COPPICE_RETURN_IF_ERROR(timed->Pass(batch.contexts));
    kv_mb[i] = 1e-6 * static_cast<double>(timed->runner()->reads().kv - before);
    passes.push_back([&] { status.Update(timed->Pass(batch.contexts)); });
  }
  const std::vector<double> seconds = MedianSeconds(passes, bench.repetitions);
  COPPICE_RETURN_IF_ERROR(status);
  for (size_t i = 0; i < batches.size(); ++i) {
    JsonLine line("prefix");
    line.Text("model", choice.dir)
        .Text("weights", choice.type)
        .Text("backend", timed->runner()->backend_description())
        .Text("what", batches[i].name)
        .Count("requests", requests)
        .Count("common", batches[i].common)
        .Count("context", batches[i].tokens)
        .Number("kv_mb", kv_mb[i])
        .Number("ms", 1e3 * seconds[i])
        .Number("times_short", seconds[i] / seconds[0]);
    for (const auto& context : batches[i].contexts) timed->Close(context);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunPrefixBench(const PrefixBench& bench) {
  int64_t tokens = 0;
  for (const int requests : bench.requests) {
    for (const int common : bench.common)
      tokens += int64_t{requests} * (common + 3 * (bench.own + 6 * kBlockSize)) + common;
  }
  for (const std::string& type : bench.types) {
    for (const int threads : bench.threads) {
      const RunnerChoice choice = {bench.dir, type, bench.kernels, threads, tokens};
      COPPICE_ASSIGN_OR_RETURN(const auto timed, TimedRunner::Load(choice));
      for (const int requests : bench.requests) {
        for (const int common : bench.common)
          COPPICE_RETURN_IF_ERROR(MeasureCommon(bench, choice, requests, common, timed.get()));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace coppice::bench
