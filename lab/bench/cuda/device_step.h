// A step on the device alone, by events: the device's part of its time, and which ops take it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/products/matrix_products.h"
#include "kernels/cuda/runtime/cuda_lists.h"
#include "kernels/cuda/runtime/list_plan.h"
#include "kernels/cuda/steps/device_op.h"
#include "kernels/cuda/steps/step_upload.h"
#include "lab/bench/cuda/device_timer.h"
#include "lab/bench/cuda/llama_model.h"
#include "plan/step_plan.h"

namespace coppice::bench {

class DeviceStep {
 public:
  // The ops of a step of *llama, by the products that it uses, in device memory. All must outlive
  // the result. tuning_cache: as that of *llama.
  static absl::StatusOr<std::unique_ptr<DeviceStep>> Create(const StepPlan* plan, LlamaModel* llama,
                                                            const std::string& tuning_cache,
                                                            DeviceTimer* timer);
  // The number of kernels and products, launched op by op.
  int64_t launches() const;
  // By graphs, without the copies to and from the host.
  absl::StatusOr<Timing> Time();

  // Ops of one kind, one after the other.
  struct OfKind {
    std::string name;
    int64_t ops = 0;
    double bytes = 0;  // bytes of their weights
    Timing timing;
  };
  absl::StatusOr<std::vector<OfKind>> Profile();

 private:
  DeviceStep(const StepPlan* plan, DeviceTimer* timer)
      : plan_(plan), timer_(timer), ops_(timer->facts()) {}
  absl::Status Record(LlamaModel* llama);

  const StepPlan* const plan_;
  DeviceTimer* const timer_;
  kernels::cuda::CudaOps ops_;
  kernels::cuda::StepUpload upload_;
  kernels::cuda::ListPlan list_plan_;
  kernels::cuda::CudaLists lists_;
  std::unique_ptr<kernels::cuda::MatrixProducts> products_;
  kernels::cuda::OpList body_, head_;
};

}  // namespace coppice::bench
