#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/host_memory.h"
#include "base/status.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/gain.h"
#include "kernels/cpu/kernel_target.h"
#include "kernels/cpu/kv_pool.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/cpu/scatter_logits.h"
#include "kernels/cpu/weight_arena.h"
#include "kernels/host_step_rows.h"
#include "kernels/rope_table.h"

namespace coppice::kernels::cpu {
namespace {

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const BackendOptions& options)
      : team_(options.threads),
        communicator_(options.communicator),
        step_rows_(team_, communicator_, options.always_list),
        ops_(team_, communicator_, &step_rows_) {}

  const char* name() const override { return "cpu"; }
  std::string description() const override {
    return absl::StrCat("cpu ", KernelTargetName(), ", ", team_->count(),
                        team_->count() == 1 ? " thread" : " threads");
  }
  bool batch_invariant() const override { return true; }
  absl::StatusOr<MemoryFacts> Memory() const override {
    const HostMemory memory = ReadHostMemory();
    return MemoryFacts{memory.free, memory.total, /*of_device=*/false};
  }
  bool stores(DType dtype) const override { return dtype != DType::kF16 && dtype != DType::kI8; }

  absl::StatusOr<std::unique_ptr<Weight>> Pack(absl::Span<const MatrixSource> stacked, DType dtype,
                                               std::vector<float> bias) override {
    return PackEach(stacked, std::vector<DType>(stacked.size(), dtype), std::move(bias));
  }
  absl::StatusOr<std::unique_ptr<Weight>> PackEach(absl::Span<const MatrixSource> stacked,
                                                   absl::Span<const DType> dtypes,
                                                   std::vector<float> bias) override {
    return PackMatrix(stacked, dtypes, std::move(bias), team_, &arena_);
  }
  absl::StatusOr<std::unique_ptr<Weight>> PackGain(std::vector<float> gain,
                                                   std::vector<float> bias) override {
    return std::make_unique<CpuGain>(std::move(gain), std::move(bias));
  }
  absl::StatusOr<std::unique_ptr<Weight>> PackScatter(std::vector<int32_t> ids,
                                                      int64_t places) override {
    return std::make_unique<CpuScatter>(std::move(ids), places);
  }
  absl::StatusOr<std::unique_ptr<KvPool>> MakeKvPool(const KvPoolShape& shape) override {
    return MakeCpuKvPool(shape);
  }
  absl::StatusOr<std::shared_ptr<const RopeTable>> MakeRope(const RopeConfig& config) override {
    return std::make_shared<HostRopeTable>(BuildRopeTable(config));
  }
  absl::StatusOr<Tensor> Allocate(int64_t rows, int64_t columns, DType dtype) override;
  DType activation_dtype() const override { return DType::kF32; }

  absl::Status Submit(const StepPlan& plan, Pass* pass) override;
  bool HeadReached() override { return true; }
  absl::StatusOr<const StepRows*> Wait() override;
  absl::Status ReadStates(const KvPool& pool, absl::Span<const int32_t> slots,
                          uint16_t* out) override {
    const auto& kv = static_cast<const CpuKvPool&>(pool);
    const int n = pool.shape.state_columns;
    for (size_t i = 0; i < slots.size(); ++i) std::copy_n(kv.State(slots[i]), n, out + i * n);
    return absl::OkStatus();
  }

 private:
  ThreadTeam* const team_;
  comm::Communicator* const communicator_;
  HostStepRows step_rows_;
  CpuOps ops_;
  std::vector<std::unique_ptr<float[]>> tensors_;
  WeightArena arena_;
  bool submitted_ = false;
  Pass* head_ = nullptr;  // the pass whose head must still run
  absl::Status outcome_;  // outcome of the step without its head
};

absl::StatusOr<Tensor> CpuBackend::Allocate(int64_t rows, int64_t columns, DType dtype) {
  const std::string what =
      absl::StrCat("a tensor ", DTypeName(dtype), " [", rows, ", ", columns, "]");
  if (dtype != DType::kF32 || rows <= 0 || columns <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": the CPU backend computes on F32, sizes must be positive"));
  }
  auto* data = new (std::nothrow) float[static_cast<size_t>(rows) * columns];
  if (data == nullptr) return absl::ResourceExhaustedError(absl::StrCat(what, ": out of memory"));
  tensors_.emplace_back(data);
  return Tensor{data, dtype, rows, columns};
}

absl::Status CpuBackend::Submit(const StepPlan& plan, Pass* pass) {
  COPPICE_CHECK_MSG(!submitted_, "the step before was not waited for");
  if (!plan.fetch.empty()) {
    COPPICE_RETURN_IF_ERROR(step_rows_.CheckFetch(plan.fetch));
    submitted_ = true;
    outcome_ = step_rows_.Fetch(plan.fetch);
    return absl::OkStatus();
  }
  submitted_ = true;
  if (plan.rows() > 0) step_rows_.Clear();
  ops_.Begin(plan);
  pass->Body(&ops_);
  ops_.Settle();
  outcome_ = ops_.status();
  if (outcome_.ok() && ops_.has_needs()) head_ = pass;
  return absl::OkStatus();
}

absl::StatusOr<const StepRows*> CpuBackend::Wait() {
  COPPICE_CHECK_MSG(submitted_, "no step was submitted");
  submitted_ = false;
  if (head_ != nullptr) {
    head_->Head(&ops_);
    ops_.Settle();
    outcome_ = ops_.status();
    head_ = nullptr;
  }
  COPPICE_RETURN_IF_ERROR(outcome_);
  return communicator_->rank() == 0 ? &step_rows_ : nullptr;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const BackendOptions& options) {
  if (options.threads == nullptr || options.communicator == nullptr) {
    return absl::InvalidArgumentError("the CPU backend needs threads and a communicator");
  }
  COPPICE_RETURN_IF_ERROR(ChooseKernelTarget(options.cpu_kernels));
  return std::make_unique<CpuBackend>(options);
}

}  // namespace coppice::kernels::cpu
