#include <algorithm>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "comm/communicator.h"
#include "kernels/backend.h"
#include "kernels/block_format.h"
#include "kernels/cpu/kernel_target.h"
#include "kernels/rope_table.h"
#include "lab/bench/model/json_line.h"
#include "lab/bench/model/limits.h"
#include "lab/bench/model/subcommands.h"
#include "lab/bench/model/type_named.h"
#include "plan/step_plan.h"

namespace coppice::bench {
namespace {

constexpr int kLayers = 24, kHidden = 768, kIntermediate = 2048, kVocabulary = 4096;
constexpr int kHeads = 12, kHeadDim = 64;

std::vector<float> Ramp(int64_t count) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(i * 2654435761u % 1000) / 1000.0f - 0.5f;
  return values;
}

// A matrix that a type of weights is packed from: f32, or blocks of the type's format.
class Matrix {
 public:
  Matrix(kernels::DType type, int64_t outputs, int64_t inputs)
      : outputs_(outputs), inputs_(inputs) {
    if (!kernels::IsBlockFormat(type)) {
      values_ = Ramp(outputs * inputs);
      return;
    }
    dtype_ = type;
    blocks_.resize(outputs * kernels::RowBytes(type, inputs));
    // The high byte of any f16 is then below that of infinity.
    for (size_t i = 0; i < blocks_.size(); ++i)
      blocks_[i] = static_cast<uint8_t>(i * 2654435761u >> 13) & 0xbb;
  }
  kernels::MatrixSource source() const {
    const void* data = blocks_.empty() ? static_cast<const void*>(values_.data()) : blocks_.data();
    return {data, dtype_, outputs_, inputs_, inputs_};
  }

 private:
  const int64_t outputs_, inputs_;
  kernels::DType dtype_ = kernels::DType::kF32;
  std::vector<float> values_;
  std::vector<uint8_t> blocks_;
};

// Rows of one request after `context` tokens, each in a slot of its own.
StepPlan PlanOf(int rows, int context) {
  const int blocks = (context + kBlockSize - 1) / kBlockSize;
  StepPlan plan;
  plan.token.assign(rows, 0);
  plan.position.assign(rows, context);
  plan.segments = {{0, rows, context}};
  for (int block = 1; block <= blocks; ++block) plan.table.push_back(block);
  plan.table_begin = {0, blocks};
  for (int row = 0; row < rows; ++row) {
    plan.slot.push_back((blocks + 1 + row) * kBlockSize);
    plan.chain.push_back(plan.slot.back());
    plan.chain_begin.push_back(row + 1);
  }
  return plan;
}

class OpsAlone : public kernels::Pass {
 public:
  explicit OpsAlone(absl::FunctionRef<void(kernels::Ops*)> ops) : ops_(ops) {}
  void Body(kernels::Ops* ops) override { ops_(ops); }
  void Head(kernels::Ops*) override {}

 private:
  absl::FunctionRef<void(kernels::Ops*)> ops_;
};

// The tensors and the weights of a decoder, and the ops on them.
class DecoderOps {
 public:
  DecoderOps(const KernelsBench& bench, int threads)
      : bench_(bench),
        team_(threads),
        most_(*std::max_element(bench.rows.begin(), bench.rows.end())) {}

  absl::Status Run() {
    kernels::BackendOptions options{.threads = &team_, .communicator = single_.get()};
    options.cpu_kernels = bench_.kernels;
    COPPICE_ASSIGN_OR_RETURN(backend_, kernels::MakeBackend(options));
    const auto target = kernels::cpu::CurrentKernelTarget();
    memory_ = ReadBandwidth(&team_);
    cache_ = CacheBandwidth(&team_);
    float_ = FloatInstruction(target);
    float_peak_ = PeakOperations(float_, &team_);
    JsonLine("kernels")
        .Text("what", "machine")
        .Text("backend", backend_->description())
        .Number("read_gb_s", memory_ * 1e-9)
        .Number("second_level_cache_gb_s", cache_ * 1e-9);
    COPPICE_RETURN_IF_ERROR(Allocate());
    for (const std::string& type : bench_.types) {
      const Instruction instruction = ProductInstruction(target, TypeNamed(type));
      COPPICE_RETURN_IF_ERROR(
          MeasureProducts(type, instruction, PeakOperations(instruction, &team_)));
    }
    for (const int rows : bench_.rows) {
      COPPICE_RETURN_IF_ERROR(MeasureAttention(rows));
      MeasureElementwise(rows);
    }
    return status_;
  }

 private:
  struct Floor {
    double bytes = 0, bandwidth = 1;  // per second
    double operations = 0, peak = 1;  // per second
    const char* instruction = "";     // empty: nothing to count
    double seconds() const { return std::max(bytes / bandwidth, operations / peak); }
  };

  absl::Status Allocate() {
    COPPICE_ASSIGN_OR_RETURN(
        pool_, backend_->MakeKvPool({kLayers, kHeads, kHeadDim,
                                     (bench_.context + kBlockSize - 1) / kBlockSize + most_ + 2,
                                     kernels::DType::kBF16}));
    const kernels::RopeConfig rope = {bench_.context + 1,
                                      kernels::PlainFrequencies(kHeadDim, 10000)};
    COPPICE_ASSIGN_OR_RETURN(rope_, backend_->MakeRope(rope));
    COPPICE_ASSIGN_OR_RETURN(gain_, backend_->PackGain(std::vector<float>(kHidden, 1.0f)));
    x_ = Ramp(int64_t{most_} * kIntermediate * 2);
    y_.resize(int64_t{most_} * std::max(kVocabulary, 2 * kIntermediate));
    FillPool();
    return status_;
  }

  // Memory that was never written is one page of zeros, which is read from the cache.
  void FillPool() {
    const auto slots = static_cast<int32_t>(pool_->shape.blocks * kBlockSize);
    for (int32_t first = 0; first < slots; first += most_) {
      const int rows = std::min(most_, slots - first);
      StepPlan plan = PlanOf(rows, 0);
      for (int row = 0; row < rows; ++row) plan.slot[row] = first + row;
      Step(plan, [&](kernels::Ops* ops) {
        for (int layer = 0; layer < kLayers; ++layer)
          ops->RopeAndStoreKv(layer, {.rope = rope_.get()}, Of(&x_, rows, 3 * kHidden),
                              pool_.get());
      })();
    }
  }

  static kernels::Tensor Of(std::vector<float>* values, int64_t rows, int64_t columns) {
    return {values->data(), kernels::DType::kF32, rows, columns};
  }

  std::function<void()> Step(const StepPlan& plan, std::function<void(kernels::Ops*)> ops) {
    return [this, plan, ops = std::move(ops)] {
      OpsAlone pass(ops);
      status_.Update(backend_->Submit(plan, &pass));
      status_.Update(backend_->Wait().status());
    };
  }

  // `times`: how often a call does the op.
  void Report(const std::string& op, int rows, double seconds, int times, const Floor& floor) {
    JsonLine line("kernels");
    line.Text("what", op)
        .Count("rows", rows)
        .Text("backend", backend_->description())
        .Number("us", 1e6 * seconds / times)
        .Number("floor_us", 1e6 * floor.seconds() / times)
        .Number("of_floor", floor.seconds() / seconds)
        .Number("gb_s", floor.bytes / seconds * 1e-9);
    if (floor.operations == 0) return;
    line.Number("gops", floor.operations / seconds * 1e-9)
        .Text("instruction", floor.instruction)
        .Number("peak_gops", floor.peak * 1e-9);
  }

  // A matrix of each layer in turn, so that the weights come from memory.
  absl::Status MeasureProducts(const std::string& type, Instruction instruction, double peak) {
    struct Shape {
      const char* name;
      int64_t outputs, inputs;
    };
    for (const Shape& shape : {Shape{"qkv", 3 * kHidden, kHidden},
                               {"output", kHidden, kHidden},
                               {"gate_up", 2 * kIntermediate, kHidden},
                               {"down", kHidden, kIntermediate}}) {
      // As much as no cache holds, of matrices of this shape.
      const int64_t elements = shape.outputs * shape.inputs;
      const int count =
          static_cast<int>(std::max<int64_t>(kLayers, (int64_t{64} << 20) / elements));
      const Matrix matrix(TypeNamed(type), shape.outputs, shape.inputs);
      std::vector<std::unique_ptr<kernels::Weight>> weights;
      double bytes = 0;
      for (int i = 0; i < count; ++i) {
        COPPICE_ASSIGN_OR_RETURN(auto weight,
                                 backend_->Pack({matrix.source()}, TypeNamed(type), {}));
        bytes += static_cast<double>(weight->bytes);
        weights.push_back(std::move(weight));
      }
      std::vector<std::function<void()>> calls;
      for (const int rows : bench_.rows) {
        calls.push_back(Step(PlanOf(rows, 0), [&, rows](kernels::Ops* ops) {
          for (const auto& weight : weights)
            ops->MatMul(*weight, Of(&x_, rows, shape.inputs), Of(&y_, rows, shape.outputs), false);
        }));
      }
      const std::vector<double> seconds = MedianSeconds(calls, bench_.repetitions);
      for (size_t i = 0; i < seconds.size(); ++i) {
        const double operations = 2.0 * bench_.rows[i] * static_cast<double>(elements) * count;
        Report(absl::StrCat("product ", shape.name, " ", type), bench_.rows[i], seconds[i], count,
               {bytes, memory_, operations, peak, InstructionName(instruction)});
      }
    }
    return status_;
  }

  // All rows see the same context, which is read once; each row multiplies with all of it.
  absl::Status MeasureAttention(int rows) {
    const auto call = Step(PlanOf(rows, bench_.context), [&](kernels::Ops* ops) {
      for (int layer = 0; layer < kLayers; ++layer)
        ops->Attention(layer, {.scale = 0.125f}, Of(&x_, rows, 3 * kHidden), *pool_,
                       Of(&y_, rows, kHidden));
    });
    const double seconds = MedianSeconds({call}, bench_.repetitions)[0];
    const double bytes = 2.0 * kLayers * bench_.context * kHidden * 2;
    const double operations = 4.0 * kLayers * rows * (bench_.context + 1) * kHidden;
    Report(absl::StrCat("attention over ", bench_.context), rows, seconds, kLayers,
           {bytes, memory_, operations, float_peak_, InstructionName(float_)});
    return status_;
  }

  // Their tensors stay in the caches, so the floor is the second level's bandwidth.
  void MeasureElementwise(int rows) {
    constexpr int kTimes = 100;
    const StepPlan plan = PlanOf(rows, 0);
    const auto measure = [&](const char* op, double values,
                             const std::function<void(kernels::Ops*)>& once) {
      const auto call = Step(plan, [&](kernels::Ops* ops) {
        for (int i = 0; i < kTimes; ++i) once(ops);
      });
      Report(op, rows, MedianSeconds({call}, bench_.repetitions)[0], kTimes,
             {4 * values * rows * kTimes, cache_});
    };
    measure("add and norm", 4.0 * kHidden, [&](kernels::Ops* ops) {
      ops->AddNorm(Of(&x_, rows, kHidden), {Of(&z_, rows, kHidden)},
                   {gain_.get(), kernels::NormKind::kRms, 1e-5f}, Of(&y_, rows, kHidden));
    });
    measure("rope and store", 3.0 * kHidden * 2, [&](kernels::Ops* ops) {
      ops->RopeAndStoreKv(0, {.rope = rope_.get()}, Of(&y_, rows, 3 * kHidden), pool_.get());
    });
    measure("swiglu", 3.0 * kIntermediate, [&](kernels::Ops* ops) {
      ops->Activate(kernels::Activation::kSilu, Of(&x_, rows, 2 * kIntermediate),
                    Of(&y_, rows, kIntermediate));
    });
  }

  const KernelsBench& bench_;
  const std::unique_ptr<comm::Communicator> single_ = comm::MakeSingleCommunicator();
  ThreadTeam team_;
  const int most_;
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<kernels::KvPool> pool_;
  std::unique_ptr<kernels::Weight> gain_;
  std::shared_ptr<const kernels::RopeTable> rope_;
  std::vector<float> x_, y_;
  std::vector<float> z_ = std::vector<float>(int64_t{most_} * kHidden, 0.0f);
  double memory_ = 0, cache_ = 0, float_peak_ = 0;
  Instruction float_ = Instruction::kMulAdd;
  absl::Status status_;
};

}  // namespace

absl::Status RunKernelsBench(const KernelsBench& bench) {
  for (const int threads : bench.threads) COPPICE_RETURN_IF_ERROR(DecoderOps(bench, threads).Run());
  return absl::OkStatus();
}

}  // namespace coppice::bench
