// A StepPlan in device memory: its arrays flattened into one pinned block, and one copy a step. Two
// blocks alternate, so that a plan can be written while the device may still read the one before.
// Owned by CudaBackend. Thread-compatible.
#pragma once

#include <array>

#include "absl/status/status.h"
#include "base/step_plan.h"
#include "kernels/cuda/device_stream.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/upload_block.h"

namespace coppice::kernels::cuda {

class PlanUpload {
 public:
  // Enqueues the copy. The plan itself may go when this returns; the step before the last must have
  // run. After an error the step of before stays.
  absl::Status Upload(const StepPlan& plan, DeviceStream* stream);

  // Of the last plan; its pointers are for work that is enqueued before the next but one.
  const DeviceStep& step() const { return step_; }

 private:
  std::array<UploadBlock, 2> blocks_;
  int next_ = 0;
  DeviceStep step_;
};

}  // namespace coppice::kernels::cuda
