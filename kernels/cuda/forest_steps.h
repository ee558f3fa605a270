// The passes of draft forests that the device grows (plan/forest_plan.h): one after the other on
// the stream, without a wait or a copy between them: all plans are in one block. Each level has lists
// and results of its own, because all of them are queued at once. Owned by CudaBackend. Thread-compatible.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/runtime/cuda_lists.h"
#include "kernels/cuda/runtime/device_buffer.h"
#include "kernels/cuda/runtime/device_stream.h"
#include "kernels/cuda/runtime/upload_block.h"
#include "kernels/cuda/steps/device_op.h"
#include "kernels/cuda/steps/level_tasks.h"
#include "kernels/cuda/steps/step_upload.h"
#include "plan/forest_plan.h"

namespace coppice::kernels::cuda {

class ForestSteps {
 public:
  // What the levels enqueue, one after the other.
  struct Lists {
    std::vector<OpList> levels;  // body and head of each, but for the last head
    OpList last_head;
  };

  // Makes room. The previous forests must have been grown. plan must live until they are grown.
  absl::Status Begin(const ForestPlan& plan);
  // Records the passes of all levels and enqueues the copy of their plans.
  absl::StatusOr<Lists> Upload(Pass* pass, CudaOps* ops, DeviceStream* stream);
  // Enqueues the copy of the chosen nodes.
  absl::Status Download(DeviceStream* stream);
  // Call it once the copy has been made.
  std::vector<GrownForest> Grown() const;

 private:
  struct OfLevel {
    StepUpload upload;
    ListPlan list_plan;
    CudaLists lists;
    std::optional<LevelTasks> tasks;
    std::vector<DeviceOp> body, head;
  };

  // Records a level's pass and makes the arrays of its plan.
  absl::Status Stage(int level, Pass* pass, CudaOps* ops, DeviceStream* stream);

  const ForestPlan* plan_ = nullptr;
  std::vector<OfLevel> levels_ = std::vector<OfLevel>(kMostLevels);
  UploadBlock block_;  // the headers of all levels, then their arrays
  DeviceBuffer states_, scratch_;
  PinnedBuffer host_;  // states
};

}  // namespace coppice::kernels::cuda
