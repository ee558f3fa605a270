// A step in device memory: the arrays of its plan, padded, the work list of its attention
// (work_list.h) and the tasks of its candidate lists, in one block and one copy. Also the memory
// that launches of attention share: partial results and counters. Owned by CudaBackend.
// Thread-compatible.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "kernels/cuda/ops/draft_levels.h"
#include "kernels/cuda/ops/launch.h"
#include "kernels/cuda/ops/row_bucket.h"
#include "kernels/cuda/ops/work_list.h"
#include "kernels/cuda/runtime/cuda_lists.h"
#include "kernels/cuda/runtime/device_buffer.h"
#include "kernels/cuda/runtime/device_stream.h"
#include "kernels/cuda/runtime/upload_block.h"
#include "kernels/cuda/steps/level_tasks.h"
#include "plan/step_plan.h"

namespace coppice::kernels::cuda {

// What the views of a step point to, in the block that its arrays are in.
struct StepHeader {
  DeviceStep steps[kMostKvGroups];
  DeviceWork works[kMostKvGroups];
  DeviceLists lists;
  DeviceLevels levels;
};

class StepUpload {
 public:
  // stays: the views of the step never move, which takes one more small copy. Otherwise they move
  // when the block grows. With several ranks the block grows at other steps if their shards have
  // other sizes. A list that is new to one rank alone would then be launched op by op there and by
  // a graph on the others, but NCCL requires a sum to be captured on all ranks or on none.
  explicit StepUpload(bool stays = false) : stays_(stays) {}

  // Enqueues the copy. shape: what rows and needs are padded to. work: of tiled attention, or
  // nullptr. lists: what the device is to list, or nullptr. The plan itself may go when this
  // returns; the step before the last must have run. After an error the views are of no step.
  // levels: of forests that the device grows, or nullptr.
  absl::Status Upload(const StepPlan& plan, const StepShape& shape, const WorkShape* work,
                      const CudaLists* lists, DeviceStream* stream, LevelTasks* levels = nullptr);

  // Its parts, for several steps in one block. Stage makes the arrays; what it is given must live
  // until Place, which adds them to a block. The result goes to a header in that block, and Bind is
  // given its place in device memory.
  absl::Status Stage(const StepPlan& plan, const StepShape& shape, const WorkShape* work,
                     const CudaLists* lists, DeviceStream* stream, LevelTasks* levels);
  StepHeader Place(BlockLayout* layout) const;
  void Bind(const StepHeader* header);

  // Views of the last upload. What they point to stays in place from step to step, while no step
  // is larger than those before, or always (`stays`).
  const StepView& step() const { return step_; }
  const WorkView& work() const { return work_; }
  const ListsView& lists() const { return lists_; }
  const LevelsView& levels() const { return levels_; }

 private:
  // Values of each row that follow from the plan.
  struct RowFacts {
    std::vector<int32_t> segment, prefix_len;  // [rows]
    std::vector<int32_t> need_row;             // [needs]
  };
  // What Stage has made.
  struct Staged {
    const StepPlan* plan = nullptr;
    StepShape shape;
    std::optional<WorkShape> work;  // nullopt: no tiled attention
    const CudaLists* lists = nullptr;
    const LevelTasks* levels = nullptr;
    RowFacts facts;
    WorkList list;
    std::vector<std::vector<int32_t>> chains;  // [groups]; empty: that of the list
  };

  static RowFacts FactsOf(const StepPlan& plan);
  // Rows behind the plan's: token 0 at position 0, a slot of the sink, no context.
  DeviceStep PlaceStep(BlockLayout* layout) const;
  // Room for partial results and counters.
  absl::Status Grow(const WorkList& list, DeviceStream* stream);
  // Copies the header to its own place.
  absl::Status UploadHeader(DeviceStream* stream);

  const bool stays_;
  UploadBlock block_;
  DeviceBuffer header_;  // used when `stays`
  DeviceBuffer partials_, counters_;
  Staged staged_;
  StepView step_;
  WorkView work_;
  ListsView lists_;
  LevelsView levels_;
};

}  // namespace coppice::kernels::cuda
