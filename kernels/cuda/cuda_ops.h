// The ops of a step on the device: each enqueues one kernel or one product. The first error makes the
// later ops do nothing. Tensors, weights and pools must be those of the backend; what an op is given
// is checked here, kernels trust it. Owned by CudaBackend. Thread-compatible.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/step_plan.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda_step_rows.h"
#include "kernels/cuda/device_check.h"
#include "kernels/cuda/device_stream.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/matrix_products.h"
#include "kernels/cuda/work_upload.h"

namespace coppice::kernels::cuda {

class CudaOps final : public Ops {
 public:
  // All must outlive the ops.
  CudaOps(const DeviceFacts& device, DeviceStream* stream, MatrixProducts* products,
          CudaStepRows* step_rows)
      : device_(device), stream_(stream), products_(products), step_rows_(step_rows) {}

  // step: the plan in device memory. plan must live until the step has run.
  void Begin(const StepPlan& plan, const DeviceStep& step);
  const absl::Status& status() const { return status_; }

  bool has_rows() const override { return plan_->rows() > 0; }
  bool has_needs() const override { return !plan_->needs.empty(); }
  void CommitKv(KvPool* pool) override;
  void Embed(const Weight& w, int64_t first_row, Tensor x) override;
  void AddNorm(Tensor x, Tensor addend, const Weight& gain, float epsilon, Tensor out) override;
  void MatMul(const Weight& w, Tensor x, Tensor y, bool accumulate) override;
  void RopeAndStoreKv(int layer, const RopeTable& rope, Tensor qkv, KvPool* pool) override;
  void Attention(int layer, Tensor qkv, const KvPool& pool, Tensor out) override;
  void SwiGlu(Tensor gate_up, Tensor out) override;
  void GatherRows(absl::Span<const Tensor> tensors) override;
  // Of one rank: nothing.
  void AllReduce(Tensor) override {}
  void Select(Tensor logits, int64_t first_token, int64_t vocab) override;

 private:
  // A tensor that must hold the step's rows of so many columns.
  void CheckRows(const Tensor& tensor, int64_t columns) const;
  float* Floats(const Tensor& tensor, int64_t columns) const;  // of f32 besides
  // Takes the error of a launch, if it failed. layer: -1 = of none.
  void Launched(absl::string_view kernel, int layer = -1);

  // The work list of this step, for a pool and query heads that are those of every layer. False
  // after an error.
  bool MakeWork(const DevicePool& pool, int q_heads);

  const DeviceFacts device_;
  DeviceStream* const stream_;
  MatrixProducts* const products_;
  CudaStepRows* const step_rows_;
  const StepPlan* plan_ = nullptr;
  DeviceStep step_;
  int64_t rows_ = 0;  // that the next op works on
  WorkUpload work_;
  bool work_made_ = false;  // of this step
  absl::Status status_;
};

}  // namespace coppice::kernels::cuda
