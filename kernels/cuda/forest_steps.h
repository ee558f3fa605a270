// The passes of draft forests that the device grows (plan/forest_plan.h): one after the other on
// the stream, without a wait between them. Each level has a block, lists and results of its own,
// because all of them are queued at once. Owned by CudaBackend. Thread-compatible.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/runtime/cuda_lists.h"
#include "kernels/cuda/runtime/device_buffer.h"
#include "kernels/cuda/runtime/device_stream.h"
#include "kernels/cuda/steps/device_op.h"
#include "kernels/cuda/steps/level_tasks.h"
#include "kernels/cuda/steps/step_upload.h"
#include "plan/forest_plan.h"

namespace coppice::kernels::cuda {

class ForestSteps {
 public:
  // What a level enqueues.
  struct Level {
    OpList body, head;
  };

  // Makes room. The previous forests must have been grown. plan must live until they are grown.
  absl::Status Begin(const ForestPlan& plan);
  // Records a level's pass and enqueues the copy of its plan. Levels in order.
  absl::StatusOr<Level> Upload(int level, Pass* pass, CudaOps* ops, DeviceStream* stream);
  // Enqueues the copy of the chosen nodes.
  absl::Status Download(DeviceStream* stream);
  // Call it once the copy has been made.
  std::vector<GrownForest> Grown() const;

 private:
  struct OfLevel {
    StepUpload upload;
    ListPlan list_plan;
    CudaLists lists;
  };
  const ForestPlan* plan_ = nullptr;
  std::vector<OfLevel> levels_ = std::vector<OfLevel>(kMostLevels);
  DeviceBuffer states_, scratch_;
  PinnedBuffer host_;  // states
};

}  // namespace coppice::kernels::cuda
