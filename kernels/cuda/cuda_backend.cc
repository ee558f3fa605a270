#include "kernels/cuda/cuda_backend.h"

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/cuda_step_rows.h"
#include "kernels/cuda/cuda_weights.h"
#include "kernels/cuda/device_check.h"
#include "kernels/cuda/matrix_products.h"
#include "kernels/cuda/plan_upload.h"
#include "kernels/cuda/product_tuner.h"

namespace coppice::kernels::cuda {
namespace {

// What the device gives to a backend, in the order in which it may be taken away again.
struct DeviceParts {
  DeviceFacts facts;
  DeviceStream stream;
  DeviceEvent body_done, step_done;
};

absl::StatusOr<DeviceParts> MakeParts() {
  COPPICE_ASSIGN_OR_RETURN(DeviceFacts facts, UseDevice());
  COPPICE_ASSIGN_OR_RETURN(DeviceStream stream, DeviceStream::Create("the stream of the steps"));
  COPPICE_ASSIGN_OR_RETURN(DeviceEvent body, DeviceEvent::Create("the end of the body"));
  COPPICE_ASSIGN_OR_RETURN(DeviceEvent step, DeviceEvent::Create("the end of a step"));
  return DeviceParts{std::move(facts), std::move(stream), std::move(body), std::move(step)};
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(const BackendOptions& options, DeviceParts parts)
      : communicator_(options.communicator),
        tuning_cache_(options.tuning_cache),
        parts_(std::move(parts)),
        loader_(options.threads, &parts_.stream),
        step_rows_(options.threads, options.communicator, options.always_list) {}
  ~CudaBackend() override;
  absl::Status Init();

  const char* name() const override { return "cuda"; }
  std::string description() const override {
    return absl::StrCat("cuda ", parts_.facts.description);
  }
  bool batch_invariant() const override { return false; }

  absl::StatusOr<std::unique_ptr<Weight>> Pack(absl::Span<const MatrixSource> stacked, DType dtype,
                                               std::vector<float> bias) override;
  absl::StatusOr<std::unique_ptr<Weight>> PackGain(std::vector<float> gain) override {
    return loader_.PackGain(gain);
  }
  absl::StatusOr<std::unique_ptr<KvPool>> MakeKvPool(const KvPoolShape& shape) override {
    return loader_.MakeKvPool(shape);
  }
  absl::StatusOr<std::shared_ptr<const RopeTable>> MakeRope(const RopeConfig& config) override {
    return loader_.MakeRope(config);
  }
  absl::StatusOr<Tensor> Allocate(int64_t rows, int64_t columns, DType dtype) override;
  DType activation_dtype() const override { return matrix_dtype_.value_or(DType::kF32); }

  absl::Status Prepare(Pass* pass, const std::function<void()>& moves_on) override;
  std::vector<RowCost> RowCosts() const override { return row_costs_; }
  absl::Status Submit(const StepPlan& plan, Pass* pass) override;
  bool HeadReached() override;
  absl::StatusOr<const StepRows*> Wait() override;

 private:
  absl::Status Enqueue(const StepPlan& plan, Pass* pass);
  absl::Status Finish();

  comm::Communicator* const communicator_;
  const std::string tuning_cache_;
  DeviceParts parts_;
  DeviceLoader loader_;
  PlanUpload upload_;
  std::unique_ptr<MatrixProducts> products_;
  CudaStepRows step_rows_;
  std::vector<RowCost> row_costs_;
  std::unique_ptr<CudaOps> ops_;
  std::vector<DeviceBuffer> tensors_;
  std::optional<DType> matrix_dtype_;  // of all matrices, once there is one

  enum class State { kIdle, kFetch, kStep };
  State state_ = State::kIdle;
  bool body_reached_ = false;
  uint64_t step_ = 0;
  absl::Status outcome_;  // of what was enqueued
};

absl::Status CudaBackend::Init() {
  COPPICE_ASSIGN_OR_RETURN(products_, MatrixProducts::Create(&parts_.stream));
  ops_ = std::make_unique<CudaOps>(parts_.facts, &parts_.stream, products_.get(), &step_rows_);
  return absl::OkStatus();
}

// Queued work may still use what goes next; whether it fails no longer matters.
CudaBackend::~CudaBackend() { parts_.stream.Synchronize("the end of the backend").IgnoreError(); }

absl::StatusOr<std::unique_ptr<Weight>> CudaBackend::Pack(absl::Span<const MatrixSource> stacked,
                                                          DType dtype, std::vector<float> bias) {
  if (matrix_dtype_.has_value() && dtype != *matrix_dtype_) {
    return absl::InvalidArgumentError(
        absl::StrCat("pack: ", DTypeName(dtype), " after ", DTypeName(*matrix_dtype_),
                     ": the CUDA backend keeps all matrices in one type"));
  }
  COPPICE_ASSIGN_OR_RETURN(std::unique_ptr<Weight> matrix, loader_.Pack(stacked, dtype, bias));
  matrix_dtype_ = dtype;
  return matrix;
}

absl::StatusOr<Tensor> CudaBackend::Allocate(int64_t rows, int64_t columns, DType dtype) {
  const std::string what =
      absl::StrCat("a tensor ", DTypeName(dtype), " [", rows, ", ", columns, "]");
  if (dtype == DType::kF16 || rows <= 0 || columns <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": the CUDA backend computes on F32 and BF16, sizes must be positive"));
  }
  COPPICE_ASSIGN_OR_RETURN(
      DeviceBuffer buffer,
      DeviceBuffer::Allocate(static_cast<size_t>(rows) * columns * DTypeSize(dtype), what));
  tensors_.push_back(std::move(buffer));
  return Tensor{tensors_.back().data(), dtype, rows, columns};
}

absl::Status CudaBackend::Prepare(Pass* pass, const std::function<void()>& moves_on) {
  if (tuning_cache_.empty()) return absl::OkStatus();
  COPPICE_ASSIGN_OR_RETURN(row_costs_, TuneProducts({ListProducts(pass), tuning_cache_, moves_on},
                                                    parts_.facts, &parts_.stream, products_.get()));
  return absl::OkStatus();
}

absl::Status CudaBackend::Submit(const StepPlan& plan, Pass* pass) {
  COPPICE_CHECK_MSG(state_ == State::kIdle, "the step before was not waited for");
  step_ = plan.step;
  if (!plan.fetch.empty()) {  // the rows are in host memory already
    COPPICE_RETURN_IF_ERROR(step_rows_.CheckFetch(plan.fetch));
    state_ = State::kFetch;
    outcome_ = step_rows_.Fetch(plan.fetch);
    return absl::OkStatus();
  }
  COPPICE_RETURN_IF_ERROR(upload_.Upload(plan, &parts_.stream));
  state_ = State::kStep;
  body_reached_ = false;
  if (plan.rows() > 0) step_rows_.Clear();
  outcome_ = Enqueue(plan, pass);
  return absl::OkStatus();
}

absl::Status CudaBackend::Enqueue(const StepPlan& plan, Pass* pass) {
  ops_->Begin(plan, upload_.step());
  pass->Body(ops_.get());
  COPPICE_RETURN_IF_ERROR(ops_->status());
  COPPICE_RETURN_IF_ERROR(parts_.body_done.Record(parts_.stream, "the end of the body"));
  if (ops_->has_needs()) pass->Head(ops_.get());
  COPPICE_RETURN_IF_ERROR(ops_->status());
  return parts_.step_done.Record(parts_.stream, "the end of a step");
}

// After an error there is nothing to wait for: Wait returns it.
bool CudaBackend::HeadReached() {
  if (state_ != State::kStep || body_reached_ || !outcome_.ok()) return true;
  const absl::StatusOr<bool> reached = parts_.body_done.Reached("the body of a step");
  if (!reached.ok()) outcome_ = reached.status();
  body_reached_ = !reached.ok() || *reached;
  return body_reached_;
}

absl::StatusOr<const StepRows*> CudaBackend::Wait() {
  COPPICE_CHECK_MSG(state_ != State::kIdle, "no step was submitted");
  if (state_ == State::kStep) outcome_ = Finish();
  state_ = State::kIdle;
  if (!outcome_.ok()) {
    step_rows_.Clear();
    return absl::Status(outcome_.code(), absl::StrCat("step ", step_, ": ", outcome_.message()));
  }
  return communicator_->rank() == 0 ? step_rows_.rows() : nullptr;
}

// Nothing that was enqueued uses the plan or the pass any longer when this returns.
absl::Status CudaBackend::Finish() {
  absl::Status status = outcome_;
  if (status.ok()) status = parts_.step_done.Wait("the step on the device");
  if (status.ok()) return step_rows_.Serve();
  parts_.stream.Synchronize("a step that failed").IgnoreError();
  return status;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const BackendOptions& options) {
  if (options.threads == nullptr || options.communicator == nullptr) {
    return absl::InvalidArgumentError("the CUDA backend needs threads and a communicator");
  }
  if (options.communicator->size() > 1) {
    return absl::UnimplementedError(
        absl::StrCat("tensor parallelism on CUDA is not built yet: ", options.communicator->size(),
                     " ranks were asked for, one is served"));
  }
  COPPICE_ASSIGN_OR_RETURN(DeviceParts parts, MakeParts());
  auto backend = std::make_unique<CudaBackend>(options, std::move(parts));
  COPPICE_RETURN_IF_ERROR(backend->Init());
  return backend;
}

}  // namespace coppice::kernels::cuda
