// The ops of a step as the device gets them: each is checked and recorded here, and launched later
// (device_op.h). Tensors, weights and pools must be those of the backend; kernels trust what they
// are given. Owned by CudaBackend. Thread-compatible.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cuda/collectives/device_collectives.h"
#include "kernels/cuda/ops/candidate_lists.h"
#include "kernels/cuda/ops/launch.h"
#include "kernels/cuda/ops/row_bucket.h"
#include "kernels/cuda/products/pass_products.h"
#include "kernels/cuda/runtime/device_check.h"
#include "kernels/cuda/runtime/expert_memory.h"
#include "kernels/cuda/steps/device_op.h"
#include "plan/step_plan.h"

namespace coppice::kernels::cuda {

class CudaOps final : public Ops {
 public:
  // collectives: of several ranks, else nullptr. exact, wide_attention: BackendOptions. *experts must
  // outlive this; nullptr: no pass has experts.
  explicit CudaOps(const DeviceFacts& device, DeviceCollectives* collectives = nullptr,
                   bool exact = false, bool wide_attention = false, ExpertMemory* experts = nullptr)
      : device_(device),
        experts_(experts),
        collectives_(collectives),
        exact_(exact),
        wide_attention_(wide_attention) {}

  // Starts recording a step of this shape. plan must live until the step has run.
  void Begin(const StepPlan& plan, const StepShape& shape);
  // What was recorded since Begin or the last Take.
  std::vector<DeviceOp> Take();
  // Why an op since Begin could not be recorded. Then the step must not be launched.
  const absl::Status& failure() const { return failure_; }
  // The shape of the step's tiled attention. nullptr: the step has none.
  const WorkShape* work() const { return work_.has_value() ? &*work_ : nullptr; }
  // The arguments of Select: the rows that the host asks for. nullptr when the step had no Select.
  const LogitRows* selection() const { return selection_.has_value() ? &*selection_ : nullptr; }

  bool has_rows() const override { return plan_->rows() > 0; }
  bool has_needs() const override { return !plan_->needs.empty(); }
  void CommitKv(KvPool* pool) override;
  void Embed(const Weight& w, int64_t first_row, float scale, Tensor x) override;
  void AddPositions(const Weight& w, int offset, Tensor x) override;
  void AddNorm(Tensor x, const Addend& addend, const Norm& norm, Tensor out) override;
  void MatMul(const Weight& w, Tensor x, Tensor y, bool accumulate) override;
  void RopeAndStoreKv(int layer, const HeadSteps& steps, Tensor qkv, KvPool* pool) override;
  void Attention(int layer, const AttentionRule& rule, Tensor qkv, const KvPool& pool,
                 Tensor out) override;
  void Activate(Activation f, Tensor in, Tensor out) override;
  void MixExperts(const Experts& experts, Tensor x, Tensor out) override;
  void SoftCap(Tensor x, float cap) override;
  void StoreStates(Tensor x, KvPool* pool) override;
  void LoadStates(const KvPool& pool, Tensor x) override;
  void PutStates(Tensor x) override;
  void NormPair(Tensor a, const Norm& of_a, Tensor b, const Norm& of_b, Tensor out) override;
  void GatherRows(absl::Span<const Tensor> tensors) override;
  void AllReduce(Tensor x) override;
  void Scatter(const Weight& w, Tensor kept, Tensor wide) override;
  void Select(Tensor logits, int64_t first_token, int64_t vocab) override;

 private:
  // Checks that a tensor holds the step's rows with this many columns.
  void CheckRows(const Tensor& tensor, int64_t columns) const;
  float* Floats(const Tensor& tensor, int64_t columns) const;  // the tensor must be f32
  // The product that was recorded last, if it was the last op; else nullptr.
  PassProduct* LastProduct();
  // The pool and the query heads are those of every layer; the work list has this many classes.
  void ShapeWork(const DevicePool& pool, int q_heads, int classes, bool wide);

  const DeviceFacts device_;
  ExpertMemory* const experts_;
  DeviceCollectives* const collectives_;
  const bool exact_;
  const bool wide_attention_;
  const StepPlan* plan_ = nullptr;
  StepShape shape_;
  int64_t rows_ = 0;       // rows that the next op works on
  bool gathered_ = false;  // they are those with needs
  absl::Status failure_;
  std::vector<DeviceOp> recorded_;
  PassProduct product_;  // the last MatMul
  std::optional<WorkShape> work_;
  std::optional<LogitRows> selection_;
};

}  // namespace coppice::kernels::cuda
