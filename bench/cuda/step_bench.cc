// The decoder as it serves: plan, ops, logits in host memory; by graphs, and op by op. Weights are random and made on the
// device; one matrix is packed by the backend, which takes from it the type of all.
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/thread_team.h"
#include "bench/cuda/bench_parts.h"
#include "bench/cuda/device_random.h"
#include "bench/cuda/forest_plan.h"
#include "bench/cuda/llama_shape.h"
#include "comm/communicator.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/cuda_weights.h"
#include "kernels/cuda/device_op.h"
#include "kernels/cuda/row_bucket.h"
#include "kernels/cuda/step_upload.h"
#include "model/decoder.h"
#include "model/plan_check.h"

namespace coppice::bench {
namespace {

using kernels::DType;
using Clock = std::chrono::steady_clock;

constexpr int kMostRows = 64, kMaxPositions = 16384;
constexpr int64_t kBlocks = 2048;
constexpr float kWeightSize = 0.03f;

constexpr int kContext = kContexts[0], kForestRows = 34;

double Us(Clock::duration time) { return std::chrono::duration<double, std::micro>(time).count(); }

model::ModelConfig LlamaConfig() {
  model::ModelConfig config;
  config.model_type = "llama";
  config.vocab_size = kVocabulary;
  config.hidden_size = kHidden;
  config.intermediate_size = kIntermediate;
  config.num_layers = kLayers;
  config.num_heads = kQHeads;
  config.num_kv_heads = kKvHeads;
  config.head_dim = kHeadDim;
  config.max_positions = kMaxPositions;
  config.rope.head_dim = kHeadDim;
  config.rope.max_positions = kMaxPositions;
  config.rope.theta = 500000;
  return config;
}

class StepBench {
 public:
  // tuning_cache: "" = nothing is tuned.
  absl::Status Create(kernels::cuda::DeviceStream* stream, int most_rows,
                      const std::string& tuning_cache);
  // Of the products of a step.
  std::vector<kernels::RowCost> RowCosts() const { return backend_->RowCosts(); }
  // Median of whole steps and of Submit alone.
  absl::Status Time(const StepPlan& plan, bool graphs, Timing* step, Timing* submit);
  // Kernels and products of a step, as cuBLASLt computes all of them.
  absl::StatusOr<int64_t> CountLaunches(const StepPlan& plan,
                                        const kernels::cuda::DeviceFacts& device);

 private:
  absl::StatusOr<std::unique_ptr<kernels::Weight>> Matrix(int64_t rows, int64_t columns);
  absl::StatusOr<std::unique_ptr<kernels::Weight>> Gain() {
    return backend_->PackGain(std::vector<float>(kHidden, 1.0f));
  }

  ThreadTeam threads_{1};
  std::unique_ptr<comm::Communicator> one_rank_ = comm::MakeSingleCommunicator();
  kernels::cuda::DeviceStream* stream_ = nullptr;
  uint64_t seed_ = 0;
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<kernels::Backend> op_by_op_;  // runs the same decoder: one device holds all
  std::unique_ptr<kernels::KvPool> pool_;
  std::unique_ptr<model::Decoder> decoder_;
};

absl::StatusOr<std::unique_ptr<kernels::Weight>> StepBench::Matrix(int64_t rows, int64_t columns) {
  auto weight = std::make_unique<kernels::cuda::CudaWeight>();
  weight->rows = rows;
  weight->columns = columns;
  weight->dtype = DType::kBF16;
  weight->bytes = rows * columns * kValueBytes;
  COPPICE_ASSIGN_OR_RETURN(
      weight->values, RandomBuffer(rows * columns, DType::kBF16, kWeightSize, ++seed_, stream_));
  return weight;
}

absl::Status StepBench::Create(kernels::cuda::DeviceStream* stream, int most_rows,
                               const std::string& tuning_cache) {
  stream_ = stream;
  kernels::BackendOptions options = {"cuda", &threads_, one_rank_.get()};
  options.tuning_cache = tuning_cache;
  COPPICE_ASSIGN_OR_RETURN(backend_, kernels::MakeBackend(options));
  options.graphs = false;
  COPPICE_ASSIGN_OR_RETURN(op_by_op_, kernels::MakeBackend(options));
  const std::vector<float> values(64, 1.0f);
  const kernels::MatrixSource source = {values.data(), DType::kF32, 8, 8, 8};
  COPPICE_RETURN_IF_ERROR(backend_->Pack({source}, DType::kBF16, {}).status());
  model::DecoderParts parts;
  parts.config = LlamaConfig();
  COPPICE_ASSIGN_OR_RETURN(parts.plan, model::MakeShardPlan(parts.config, 0, 1));
  parts.dtype = DType::kBF16;
  parts.max_rows = most_rows;
  model::DecoderWeights& weights = parts.weights;
  COPPICE_ASSIGN_OR_RETURN(weights.embedding, Matrix(kVocabulary, kHidden));
  COPPICE_ASSIGN_OR_RETURN(weights.own_head, Matrix(kVocabulary, kHidden));
  COPPICE_ASSIGN_OR_RETURN(weights.final_norm, Gain());
  for (int layer = 0; layer < kLayers; ++layer) {
    model::LayerWeights& w = weights.layers.emplace_back();
    COPPICE_ASSIGN_OR_RETURN(w.attention_norm, Gain());
    COPPICE_ASSIGN_OR_RETURN(w.mlp_norm, Gain());
    COPPICE_ASSIGN_OR_RETURN(w.qkv, Matrix(kQkvColumns, kHidden));
    COPPICE_ASSIGN_OR_RETURN(w.output, Matrix(kHidden, kQHeads * kHeadDim));
    COPPICE_ASSIGN_OR_RETURN(w.gate_up, Matrix(2 * kIntermediate, kHidden));
    COPPICE_ASSIGN_OR_RETURN(w.down, Matrix(kHidden, kIntermediate));
  }
  COPPICE_ASSIGN_OR_RETURN(pool_, backend_->MakeKvPool(parts.kv_shape(kBlocks)));
  COPPICE_RETURN_IF_ERROR(FillRandom(static_cast<kernels::cuda::CudaKvPool&>(*pool_).storage.data(),
                                     static_cast<int64_t>(pool_->bytes) / kValueBytes, DType::kBF16,
                                     1, 1, stream));
  COPPICE_ASSIGN_OR_RETURN(
      decoder_, model::Decoder::Create(std::move(parts), backend_.get(), pool_.get(), 1));
  COPPICE_RETURN_IF_ERROR(backend_->Prepare(decoder_.get(), {}));
  return op_by_op_->Prepare(decoder_.get(), {});  // finds what the other has measured
}

absl::Status StepBench::Time(const StepPlan& plan, bool graphs, Timing* step, Timing* submit) {
  kernels::Backend* const backend = graphs ? backend_.get() : op_by_op_.get();
  constexpr int kWarmUps = 3;  // the second captures the graphs
  std::vector<double> step_us, submit_us;
  for (int run = -kWarmUps; run < kRuns; ++run) {
    const Clock::time_point begin = Clock::now();
    COPPICE_RETURN_IF_ERROR(backend->Submit(plan, decoder_.get()));
    const Clock::time_point submitted = Clock::now();
    COPPICE_RETURN_IF_ERROR(backend->Wait().status());
    if (run < 0) continue;
    step_us.push_back(Us(Clock::now() - begin));
    submit_us.push_back(Us(submitted - begin));
  }
  *step = Summarize(std::move(step_us));
  *submit = Summarize(std::move(submit_us));
  return absl::OkStatus();
}

absl::StatusOr<int64_t> StepBench::CountLaunches(const StepPlan& plan,
                                                 const kernels::cuda::DeviceFacts& device) {
  const kernels::cuda::StepShape shape =
      kernels::cuda::PaddedShape(plan.rows(), static_cast<int64_t>(plan.needs.size()));
  kernels::cuda::CudaOps ops(device);
  ops.Begin(plan, shape);
  decoder_->Body(&ops);
  decoder_->Head(&ops);
  kernels::cuda::StepUpload upload;
  COPPICE_RETURN_IF_ERROR(upload.Upload(plan, shape, ops.work(), nullptr, stream_));
  COPPICE_RETURN_IF_ERROR(stream_->Synchronize("the plan of a step"));
  return kernels::cuda::CountLaunches({upload.step(), upload.work(), {}, ops.Take()});
}

}  // namespace

absl::Status BenchTune(Report* report, DeviceTimer* timer) {
  const double bytes = static_cast<double>(kLayers * kLayerWeightBytes + kHeadBytes);
  if (!report->Wants({"tune", "products of a step, by rows", bytes})) return absl::OkStatus();
  StepBench bench;
  COPPICE_RETURN_IF_ERROR(
      bench.Create(timer->stream(), kTunedRows,
                   report->tuning_cache().empty() ? "auto" : report->tuning_cache()));
  for (const kernels::RowCost& cost : bench.RowCosts()) {
    report->Add({"tune", absl::StrCat("products of a step, ", cost.rows, " rows"), bytes},
                {cost.seconds * 1e6, /*spread=*/0});
  }
  return absl::OkStatus();
}

absl::Status BenchStep(Report* report, DeviceTimer* timer) {
  std::unique_ptr<StepBench> bench;
  for (const int rows : {1, kForestRows}) {
    const double bytes =
        static_cast<double>(kLayers * kLayerWeightBytes + kHeadBytes) +
        static_cast<double>(kLayers * kKvTokenBytes) * (rows == 1 ? kContext : kContext + rows);
    StepPlan plan = (rows == 1 ? PlainPlan(kContext) : ForestPlan(1, kContext, rows)).plan;
    NeedEveryRow(&plan);
    COPPICE_RETURN_IF_ERROR(model::CheckPlan(
        plan, {kMostRows, kVocabulary, kMaxPositions, kBlocks, /*needs_before=*/0}));
    const BenchCase whole = {
        "step", absl::StrCat(rows == 1 ? "plain, " : "forest, ", rows, " rows at ", kContext),
        bytes};
    if (!report->Wants(whole)) continue;
    if (bench == nullptr) {
      bench = std::make_unique<StepBench>();
      COPPICE_RETURN_IF_ERROR(bench->Create(timer->stream(), kMostRows, report->tuning_cache()));
    }
    for (const bool graphs : {true, false}) {
      Timing whole_time, submit_time;
      COPPICE_RETURN_IF_ERROR(bench->Time(plan, graphs, &whole_time, &submit_time));
      BenchCase timed = whole;
      if (!graphs) absl::StrAppend(&timed.name, ", op by op");
      report->Add(timed, whole_time);
      report->Add({"step", absl::StrCat(timed.name, ", of it Submit"), 0}, submit_time);
    }
    COPPICE_ASSIGN_OR_RETURN(const int64_t launches, bench->CountLaunches(plan, timer->facts()));
    report->AddCount({"step", absl::StrCat(whole.name, ", launches op by op"), 0}, launches);
  }
  return absl::OkStatus();
}

}  // namespace coppice::bench
