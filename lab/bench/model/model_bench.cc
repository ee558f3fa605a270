#include <optional>

#include "base/status.h"
#include "kernels/cpu/kernel_target.h"
#include "lab/bench/model/json_line.h"
#include "lab/bench/model/subcommands.h"
#include "lab/bench/model/timed_runner.h"
#include "lab/bench/model/type_named.h"

namespace coppice::bench {
namespace {

// Multiply-adds of a token in the products of all layers, times two. The head is for needed rows.
double LayerOperations(const model::ModelConfig& config) {
  const double hidden = config.hidden_size, heads = config.num_heads,
               kv_heads = config.num_kv_heads;
  const double attention = hidden * config.head_dim * (2 * heads + 2 * kv_heads);
  return 2.0 * config.num_layers * (attention + 3.0 * hidden * config.intermediate_size);
}

JsonLine& Choice(const RunnerChoice& choice, TimedRunner* timed, JsonLine* line) {
  return line->Text("model", choice.dir)
      .Text("weights", choice.type)
      .Text("backend", timed->runner()->backend_description());
}

absl::Status MeasurePrefill(const ModelBench& bench, const RunnerChoice& choice,
                            TimedRunner* timed) {
  absl::Status status;
  const auto prefill = [&] {
    const auto context = timed->Open(bench.prefill, bench.chunk);
    if (context.ok()) timed->Close(*context);
    status.Update(context.status());
  };
  const double seconds = MedianSeconds({prefill}, bench.repetitions)[0];
  COPPICE_RETURN_IF_ERROR(status);
  const double operations = LayerOperations(timed->runner()->config()) * bench.prefill;
  JsonLine line("model");
  Choice(choice, timed, &line)
      .Text("what", "prefill")
      .Count("tokens", bench.prefill)
      .Number("ms", 1e3 * seconds)
      .Number("tokens_per_s", bench.prefill / seconds)
      .Number("gops", operations / seconds * 1e-9);
  const std::optional<kernels::DType> type = FindType(choice.type);
  if (!type.has_value()) return absl::OkStatus();  // auto: matrices may be of several types
  const Instruction instruction = ProductInstruction(kernels::cpu::CurrentKernelTarget(), *type);
  const double peak = PeakOperations(instruction, timed->team());
  line.Text("instruction", InstructionName(instruction))
      .Number("peak_gops", peak * 1e-9)
      .Number("of_peak", operations / seconds / peak);
  return absl::OkStatus();
}

absl::Status MeasureGeneration(const ModelBench& bench, const RunnerChoice& choice,
                               TimedRunner* timed) {
  std::vector<std::vector<TimedRunner::Context>> batches;
  for (const int rows : bench.rows) {
    batches.emplace_back();
    for (int i = 0; i < rows; ++i) {
      COPPICE_ASSIGN_OR_RETURN(auto context, timed->Open(bench.context, bench.chunk));
      COPPICE_RETURN_IF_ERROR(timed->Grow(1, 1, &context));
      batches.back().push_back(std::move(context));
    }
  }
  absl::Status status;
  std::vector<std::function<void()>> passes;
  for (const auto& batch : batches) passes.push_back([&] { status.Update(timed->Pass(batch)); });
  const std::vector<double> seconds = MedianSeconds(passes, bench.repetitions);
  COPPICE_RETURN_IF_ERROR(status);
  for (size_t i = 0; i < seconds.size(); ++i) {
    JsonLine line("model");
    Choice(choice, timed, &line)
        .Text("what", "generation")
        .Count("rows", bench.rows[i])
        .Count("context", bench.context)
        .Number("ms", 1e3 * seconds[i])
        .Number("tokens_per_s", bench.rows[i] / seconds[i])
        .Number("times_first", bench.rows[i] / seconds[i] / (bench.rows[0] / seconds[0]));
    for (const auto& context : batches[i]) timed->Close(context);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunModelBench(const ModelBench& bench) {
  int64_t tokens = bench.prefill;
  for (const int rows : bench.rows) tokens += int64_t{rows} * (bench.context + 6 * kBlockSize);
  for (const std::string& type : bench.types) {
    for (const int threads : bench.threads) {
      const RunnerChoice choice = {bench.dir, type,   bench.kernels,
                                   threads,   tokens, bench.states_for};
      COPPICE_ASSIGN_OR_RETURN(const auto timed, TimedRunner::Load(choice));
      {
        JsonLine line("model");
        Choice(choice, timed.get(), &line)
            .Text("what", "load")
            .Number("s", timed->load_s())
            .Number("resident_mb", timed->memory().now_mb)
            .Number("peak_mb", timed->memory().peak_mb)
            .Number("peak_over_resident", timed->memory().peak_mb / timed->memory().now_mb);
      }
      COPPICE_RETURN_IF_ERROR(MeasureGeneration(bench, choice, timed.get()));
      if (bench.prefill > 0) COPPICE_RETURN_IF_ERROR(MeasurePrefill(bench, choice, timed.get()));
    }
  }
  return absl::OkStatus();
}

}  // namespace coppice::bench
