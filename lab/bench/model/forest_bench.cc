#include "base/status.h"
#include "lab/bench/model/json_line.h"
#include "lab/bench/model/subcommands.h"
#include "lab/bench/model/timed_runner.h"

namespace coppice::bench {
namespace {

constexpr int kChunk = 256;  // rows of a prefill pass

absl::Status MeasureContext(const ForestBench& bench, const RunnerChoice& choice, int context,
                            TimedRunner* timed) {
  std::vector<std::vector<TimedRunner::Context>> forests;
  const auto add = [&](int nodes, int beams) -> absl::Status {
    COPPICE_ASSIGN_OR_RETURN(auto forest, timed->Open(context, kChunk));
    COPPICE_RETURN_IF_ERROR(timed->Grow(nodes, beams, &forest));
    forests.push_back({std::move(forest)});
    return absl::OkStatus();
  };
  COPPICE_RETURN_IF_ERROR(add(1, 1));  // one plain row
  for (const int nodes : bench.nodes) COPPICE_RETURN_IF_ERROR(add(nodes, bench.beams));
  absl::Status status;
  std::vector<std::function<void()>> passes;
  for (const auto& forest : forests) passes.push_back([&] { status.Update(timed->Pass(forest)); });
  const std::vector<double> seconds = MedianSeconds(passes, bench.repetitions);
  COPPICE_RETURN_IF_ERROR(status);
  for (size_t i = 1; i < forests.size(); ++i) {
    JsonLine line("forest");
    line.Text("model", choice.dir)
        .Text("weights", choice.type)
        .Text("backend", timed->runner()->backend_description())
        .Count("nodes", bench.nodes[i - 1])
        .Count("beams", bench.beams)
        .Count("context", context)
        .Number("ms", 1e3 * seconds[i])
        .Number("one_row_ms", 1e3 * seconds[0])
        .Number("times_one_row", seconds[i] / seconds[0]);
  }
  for (const auto& forest : forests) timed->Close(forest[0]);
  return absl::OkStatus();
}

}  // namespace

absl::Status RunForestBench(const ForestBench& bench) {
  for (const std::string& type : bench.types) {
    for (const int threads : bench.threads) {
      int64_t tokens = 0;
      for (const int context : bench.contexts)
        tokens += static_cast<int64_t>(bench.nodes.size() + 1) * (context + 16 * kBlockSize);
      const RunnerChoice choice = {bench.dir, type, bench.kernels, threads, tokens};
      COPPICE_ASSIGN_OR_RETURN(const auto timed, TimedRunner::Load(choice));
      for (const int context : bench.contexts)
        COPPICE_RETURN_IF_ERROR(MeasureContext(bench, choice, context, timed.get()));
    }
  }
  return absl::OkStatus();
}

}  // namespace coppice::bench
