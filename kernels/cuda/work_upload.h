// The work list of tiled attention (work_list.h) in device memory, with the memory that its launches
// share: partial results and counters. One list and one copy a step, for all layers. Owned by
// CudaOps. Thread-compatible.
#pragma once

#include "absl/status/status.h"
#include "base/step_plan.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/device_stream.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/upload_block.h"

namespace coppice::kernels::cuda {

class WorkUpload {
 public:
  // Makes the list and enqueues its copy. The step before must have run.
  absl::Status Upload(const StepPlan& plan, const WorkShape& shape, DeviceStream* stream);
  const DeviceWork& work() const { return work_; }

 private:
  UploadBlock block_;
  DeviceBuffer partials_, counters_;
  DeviceWork work_;
};

}  // namespace coppice::kernels::cuda
