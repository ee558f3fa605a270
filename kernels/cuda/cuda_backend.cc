#include "kernels/cuda/cuda_backend.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "kernels/cuda/collectives/device_collectives.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device/overlap.h"
#include "kernels/cuda/forest_steps.h"
#include "kernels/cuda/ops/row_bucket.h"
#include "kernels/cuda/products/matrix_products.h"
#include "kernels/cuda/products/pass_products.h"
#include "kernels/cuda/products/product_tuner.h"
#include "kernels/cuda/runtime/cuda_weights.h"
#include "kernels/cuda/runtime/device_check.h"
#include "kernels/cuda/runtime/expert_memory.h"
#include "kernels/cuda/runtime/rank_agreement.h"
#include "kernels/cuda/runtime/step_marks.h"
#include "kernels/cuda/runtime/weight_packer.h"
#include "kernels/cuda/steps/cuda_step_rows.h"
#include "kernels/cuda/steps/device_op.h"
#include "kernels/cuda/steps/rank_rows.h"
#include "kernels/cuda/steps/state_download.h"
#include "kernels/cuda/steps/step_queue.h"
#include "kernels/cuda/steps/step_upload.h"
#include "kernels/cuda/steps/step_watchdog.h"

namespace coppice::kernels::cuda {
namespace {

constexpr char kStepName[] = "the step on the device", kFetchName[] = "the end of a fetch",
               kLevelsName[] = "the levels of draft forests";

// The parts of the device that a backend uses, in the order in which they may be destroyed.
struct DeviceParts {
  DeviceFacts facts;
  DeviceStream stream;
  StepMarks marks;
};

absl::StatusOr<DeviceParts> MakeParts(int place) {
  COPPICE_ASSIGN_OR_RETURN(DeviceFacts facts, UseDevice(place));
  COPPICE_ASSIGN_OR_RETURN(DeviceStream stream, DeviceStream::Create("the stream of the steps"));
  COPPICE_ASSIGN_OR_RETURN(StepMarks marks, StepMarks::Create());
  return DeviceParts{std::move(facts), std::move(stream), std::move(marks)};
}

std::unique_ptr<DeviceRows> MakeRows(const BackendOptions& options) {
  if (options.communicator->size() == 1)
    return std::make_unique<CudaStepRows>(options.threads, options.always_list);
  return std::make_unique<RankRows>(options.threads, options.communicator, options.always_list);
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(const BackendOptions& options, DeviceParts parts)
      : communicator_(options.communicator),
        overlap_(options.overlap_launches && parts.facts.overlaps_launches),
        exact_(options.exact),
        tuning_cache_(options.tuning_cache),
        parts_(std::move(parts)),
        loader_(options.threads, &parts_.stream),
        upload_(/*stays=*/communicator_->size() > 1),
        step_rows_(MakeRows(options)) {}
  ~CudaBackend() override;
  absl::Status Init(const BackendOptions& options);

  const char* name() const override { return "cuda"; }
  std::string description() const override {
    return absl::StrCat("cuda ", parts_.facts.description, ranks_ == nullptr ? "" : ", ",
                        ranks_ == nullptr ? "" : ranks_->description());
  }
  std::string pci_bus_id() const override { return parts_.facts.pci_bus_id; }
  bool batch_invariant() const override { return exact_; }
  absl::StatusOr<MemoryFacts> Memory() const override { return DeviceMemory(); }
  bool stores(DType dtype) const override { return WeightPacker::Stores(dtype); }
  bool serves_blocks(DType beside, bool experts) const override {
    return beside != DType::kF32 && !experts;
  }
  void SetActivations(DType dtype) override { packer_.SetActivations(dtype); }

  absl::StatusOr<std::unique_ptr<Weight>> Pack(absl::Span<const MatrixSource> stacked, DType dtype,
                                               std::vector<float> bias) override {
    return packer_.Pack(stacked, dtype, bias);
  }
  absl::StatusOr<std::unique_ptr<Weight>> PackEach(absl::Span<const MatrixSource> stacked,
                                                   absl::Span<const DType> dtypes,
                                                   std::vector<float> bias) override {
    return packer_.PackEach(stacked, dtypes, bias);
  }
  absl::StatusOr<std::unique_ptr<Weight>> PackGain(std::vector<float> gain,
                                                   std::vector<float> bias) override {
    return loader_.PackGain(gain, bias);
  }
  absl::StatusOr<std::unique_ptr<Weight>> PackScatter(std::vector<int32_t> ids,
                                                      int64_t places) override {
    return loader_.PackScatter(ids, places);
  }
  absl::StatusOr<std::unique_ptr<KvPool>> MakeKvPool(const KvPoolShape& shape) override {
    return loader_.MakeKvPool(shape);
  }
  absl::StatusOr<std::shared_ptr<const RopeTable>> MakeRope(const RopeConfig& config) override {
    return loader_.MakeRope(config);
  }
  absl::StatusOr<Tensor> Allocate(int64_t rows, int64_t columns, DType dtype) override;
  absl::StatusOr<Tensor> AllocateSummed(int64_t rows, int64_t columns) override;
  DType activation_dtype() const override { return packer_.activations(); }

  absl::Status Prepare(Pass* pass, const std::function<void()>& moves_on) override;
  std::vector<RowCost> RowCosts() const override { return row_costs_; }
  absl::Status Submit(const StepPlan& plan, Pass* pass) override;
  bool HeadReached() override;
  absl::StatusOr<const StepRows*> Wait() override;
  absl::Status ReadStates(const KvPool& pool, absl::Span<const int32_t> slots,
                          uint16_t* out) override {
    COPPICE_CHECK_MSG(state_ == State::kIdle, "the step before was not waited for");
    return state_download_.Read(StatesOf(pool), slots, out, &parts_.stream);
  }
  bool GrowsForest(const ForestPlan::Forest& forest, const RowNeed& need,
                   int64_t vocab) const override {
    return ranks_ == nullptr && !exact_ && CanGrow(forest, need, vocab);
  }
  uint64_t collective_bytes() const override { return collective_bytes_; }
  absl::Status SubmitForests(const ForestPlan& plan, Pass* pass) override;
  absl::StatusOr<std::vector<GrownForest>> WaitForests() override;

 private:
  absl::Status Start(const StepPlan& plan, Pass* pass);
  // Enqueues what the step is given, once its pass is recorded.
  absl::Status Upload(const StepPlan& plan, const StepShape& shape);
  absl::Status EnqueueFetch(const StepPlan& plan);
  absl::Status Enqueue(std::vector<DeviceOp> body, std::vector<DeviceOp> head);
  absl::Status EnqueueForests(Pass* pass);
  absl::Status Finish();
  // Not OK once the ranks' work has been aborted.
  absl::Status GoOn() { return watch_ && watch_->alarmed() ? ranks_->Failure() : absl::OkStatus(); }
  // Ends queued work, which may be waiting for other ranks.
  void Abandon(const absl::Status& why);
  absl::Status FirstCause(const absl::Status& status);

  comm::Communicator* const communicator_;
  bool overlap_;  // the same on all ranks
  const bool exact_;
  const std::string tuning_cache_;
  DeviceParts parts_;
  DeviceLoader loader_;
  WeightPacker packer_{&loader_};
  ExpertMemory experts_{&loader_};
  StepUpload upload_;
  std::unique_ptr<MatrixProducts> products_;
  const std::unique_ptr<DeviceRows> step_rows_;
  // Null with one rank; destroyed after the queue's graphs.
  std::unique_ptr<DeviceCollectives> ranks_;
  std::unique_ptr<StepWatchdog> watch_;
  std::vector<RowCost> row_costs_;
  std::unique_ptr<CudaOps> ops_;
  std::unique_ptr<StepQueue> queue_;
  std::vector<DeviceBuffer> tensors_;
  StateDownload state_download_;

  ForestSteps forests_;

  enum class State { kIdle, kFetch, kStep, kForests };
  State state_ = State::kIdle;
  uint64_t step_ = 0;
  uint64_t collective_bytes_ = 0;
  absl::Status outcome_;  // outcome of what was enqueued
};

absl::Status CudaBackend::Init(const BackendOptions& options) {
  auto products = MatrixProducts::Create(&parts_.stream, exact_, parts_.facts.has_clusters);
  COPPICE_RETURN_IF_ERROR(Agree(communicator_, products.status()));
  products_ = *std::move(products);
  COPPICE_ASSIGN_OR_RETURN(
      const std::vector<int> without,
      FailedRanks(communicator_, overlap_ ? absl::OkStatus() : absl::UnimplementedError("")));
  overlap_ = without.empty();
  if (communicator_->size() > 1) {
    COPPICE_ASSIGN_OR_RETURN(ranks_, MakeDeviceCollectives(options, parts_.facts, &parts_.stream));
    const CollectiveOptions& wanted = options.collectives;
    watch_ = std::make_unique<StepWatchdog>(ranks_.get(), wanted.step_deadline_s, wanted.on_hang);
  }
  ops_ = std::make_unique<CudaOps>(parts_.facts, ranks_.get(), exact_, options.wide_attention,
                                   &experts_);
  queue_ =
      std::make_unique<StepQueue>(&parts_.stream, &parts_.marks, products_.get(), communicator_,
                                  options.graphs, options.warn, options.on_part);
  return absl::OkStatus();
}

// Queued work may still use what is freed next; whether it fails no longer matters.
CudaBackend::~CudaBackend() {
  if (state_ == State::kIdle) {
    parts_.stream.Synchronize("the end of the backend").IgnoreError();
  } else {
    Abandon(absl::CancelledError("the backend ends in the middle of a step"));
  }
}

void CudaBackend::Abandon(const absl::Status& why) {
  if (ranks_ != nullptr) ranks_->Abort(why);
  parts_.stream.Synchronize("a step that failed").IgnoreError();
}

absl::StatusOr<Tensor> CudaBackend::Allocate(int64_t rows, int64_t columns, DType dtype) {
  const std::string what =
      absl::StrCat("a tensor ", DTypeName(dtype), " [", rows, ", ", columns, "]");
  if (rows <= 0 || columns <= 0)
    return absl::InvalidArgumentError(absl::StrCat(what, ": sizes must be positive"));
  const size_t bytes = static_cast<size_t>(PaddedRows(rows)) * columns * DTypeSize(dtype);
  COPPICE_ASSIGN_OR_RETURN(DeviceBuffer buffer, DeviceBuffer::Allocate(bytes, what));
  tensors_.push_back(std::move(buffer));
  return Tensor{tensors_.back().data(), dtype, rows, columns};
}

absl::StatusOr<Tensor> CudaBackend::AllocateSummed(int64_t rows, int64_t columns) {
  float* values = nullptr;
  if (ranks_ != nullptr) {
    COPPICE_ASSIGN_OR_RETURN(values, ranks_->AllocateSummed(PaddedRows(rows) * columns));
  }
  if (values == nullptr) return Allocate(rows, columns, DType::kF32);
  return Tensor{values, DType::kF32, rows, columns};
}

absl::Status CudaBackend::Prepare(Pass* pass, const std::function<void()>& moves_on) {
  if (tuning_cache_.empty()) return absl::OkStatus();
  const OverlapScope overlap(overlap_);  // products are timed as steps launch them
  COPPICE_ASSIGN_OR_RETURN(
      row_costs_, TuneProducts({ListProducts(pass), tuning_cache_, moves_on, communicator_},
                               parts_.facts, &parts_.stream, products_.get()));
  if (MixesExperts(pass)) row_costs_.clear();  // most of a step's time is not in them
  return absl::OkStatus();
}

absl::Status CudaBackend::Submit(const StepPlan& plan, Pass* pass) {
  COPPICE_CHECK_MSG(state_ == State::kIdle, "the step before was not waited for");
  step_ = plan.step;
  if (ranks_ != nullptr) {
    COPPICE_RETURN_IF_ERROR(ranks_->Failure());
    watch_->Begin(plan.step);
  }
  const absl::Status started = Start(plan, pass);
  if (!started.ok() && watch_ != nullptr) watch_->End();
  return started;
}

absl::Status CudaBackend::Start(const StepPlan& plan, Pass* pass) {
  if (!plan.fetch.empty()) {
    COPPICE_RETURN_IF_ERROR(step_rows_->CheckFetch(plan.fetch));
    state_ = State::kFetch;
    queue_->Begin();
    outcome_ = EnqueueFetch(plan);
    return absl::OkStatus();
  }
  queue_->Begin();
  const StepShape shape = PaddedShape(plan.rows(), static_cast<int64_t>(plan.needs.size()));
  ops_->Begin(plan, shape);
  pass->Body(ops_.get());
  std::vector<DeviceOp> body = ops_->Take();
  if (ops_->has_needs()) pass->Head(ops_.get());
  if (plan.rows() > 0) step_rows_->Clear();
  absl::Status sent = ops_->failure();
  if (sent.ok()) sent = Upload(plan, shape);
  if (!sent.ok()) {
    step_rows_->Clear();
    return sent;
  }
  state_ = State::kStep;
  outcome_ = Enqueue(std::move(body), ops_->Take());
  return absl::OkStatus();
}

absl::Status CudaBackend::Upload(const StepPlan& plan, const StepShape& shape) {
  if (const LogitRows* rows = ops_->selection(); rows != nullptr) {
    COPPICE_RETURN_IF_ERROR(step_rows_->Select(plan, *rows));
  }
  return upload_.Upload(plan, shape, ops_->work(), step_rows_->lists(), &parts_.stream);
}

absl::Status CudaBackend::EnqueueFetch(const StepPlan& plan) {
  COPPICE_RETURN_IF_ERROR(step_rows_->Fetch(plan.fetch, &parts_.stream));
  return queue_->Mark(kFetchName);
}

// Two graphs instead of one with an event in it: the host can then query the event like any other,
// and bodies of many sizes share the few heads.
absl::Status CudaBackend::Enqueue(std::vector<DeviceOp> body, std::vector<DeviceOp> head) {
  const OverlapScope overlap(overlap_);
  collective_bytes_ += BytesBetweenDevices(body) * communicator_->size();
  COPPICE_RETURN_IF_ERROR(queue_->AddBody({upload_.step(), upload_.work(), {}, std::move(body)}));
  queue_->BeginHead();
  StepView head_step = upload_.step();
  head_step.rows = 0;  // the head uses needs alone
  const OpList head_ops{head_step, {}, upload_.lists(), std::move(head)};
  COPPICE_RETURN_IF_ERROR(queue_->AddOps(head_ops, head_step.needs, "the head of a step"));
  // Copies of rows and lists stay outside the graph, because their host memory belongs to this
  // step.
  if (ops_->selection() != nullptr) {
    COPPICE_RETURN_IF_ERROR(step_rows_->Download(&parts_.stream));
  }
  return queue_->Mark(kStepName);
}

// After an error there is nothing to wait for: Wait returns it.
bool CudaBackend::HeadReached() {
  if (state_ == State::kIdle || state_ == State::kFetch || !outcome_.ok()) return true;
  outcome_ = GoOn();
  if (!outcome_.ok()) return true;
  const absl::StatusOr<bool> reached = queue_->HeadReached();
  if (!reached.ok()) outcome_ = reached.status();
  return !reached.ok() || *reached;
}

absl::StatusOr<const StepRows*> CudaBackend::Wait() {
  COPPICE_CHECK_MSG(state_ == State::kStep || state_ == State::kFetch, "no step was submitted");
  outcome_ = Finish();
  state_ = State::kIdle;
  if (watch_ != nullptr) watch_->End();
  if (!outcome_.ok()) {
    step_rows_->Clear();
    return absl::Status(outcome_.code(), absl::StrCat("step ", step_, ": ", outcome_.message()));
  }
  return communicator_->rank() == 0 ? step_rows_.get() : nullptr;
}

absl::Status CudaBackend::SubmitForests(const ForestPlan& plan, Pass* pass) {
  COPPICE_CHECK_MSG(state_ == State::kIdle, "the step before was not waited for");
  COPPICE_CHECK(ranks_ == nullptr);
  step_ = plan.levels.back().step;
  step_rows_->Clear();
  queue_->Begin();
  COPPICE_RETURN_IF_ERROR(forests_.Begin(plan));
  state_ = State::kForests;
  outcome_ = EnqueueForests(pass);
  return absl::OkStatus();
}

// All levels are queued before the first has run. The last head is apart, as that of a step, so that
// the host sees when it begins.
absl::Status CudaBackend::EnqueueForests(Pass* pass) {
  const OverlapScope overlap(overlap_);
  COPPICE_ASSIGN_OR_RETURN(const ForestSteps::Lists lists,
                           forests_.Upload(pass, ops_.get(), &parts_.stream));
  COPPICE_RETURN_IF_ERROR(queue_->AddLists(lists.levels, kLevelsName));
  queue_->BeginHead();
  COPPICE_RETURN_IF_ERROR(
      queue_->AddOps(lists.last_head, lists.last_head.step.needs, "the last head of forests"));
  COPPICE_RETURN_IF_ERROR(forests_.Download(&parts_.stream));
  return queue_->Mark(kStepName);
}

absl::StatusOr<std::vector<GrownForest>> CudaBackend::WaitForests() {
  COPPICE_CHECK_MSG(state_ == State::kForests, "no forests were submitted");
  outcome_ = Finish();
  state_ = State::kIdle;
  if (outcome_.ok()) return forests_.Grown();
  return absl::Status(outcome_.code(), absl::StrCat("step ", step_, ": ", outcome_.message()));
}

// When this returns, no enqueued work uses the plan or the pass any longer.
absl::Status CudaBackend::Finish() {
  absl::Status status = outcome_;
  if (status.ok()) status = queue_->Wait([this] { return GoOn(); });
  if (status.ok() && ranks_ != nullptr) status = ranks_->Failure();
  if (status.ok()) {
    status = step_rows_->Serve();
    return status.ok() ? status : FirstCause(status);
  }
  status = FirstCause(status);
  Abandon(status);
  return status;
}

// A rank whose collectives have failed may first hear from the host that the others have left.
absl::Status CudaBackend::FirstCause(const absl::Status& status) {
  if (ranks_ == nullptr) return status;
  absl::Status failure = ranks_->Failure();
  return failure.ok() ? status : failure;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const BackendOptions& options) {
  if (options.threads == nullptr || options.communicator == nullptr) {
    return absl::InvalidArgumentError("the CUDA backend needs threads and a communicator");
  }
  absl::StatusOr<DeviceParts> parts = MakeParts(options.collectives.place);
  COPPICE_RETURN_IF_ERROR(Agree(options.communicator, parts.status()));
  auto backend = std::make_unique<CudaBackend>(options, *std::move(parts));
  COPPICE_RETURN_IF_ERROR(backend->Init(options));
  return backend;
}

}  // namespace coppice::kernels::cuda
