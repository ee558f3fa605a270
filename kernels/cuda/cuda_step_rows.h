// The rows of a step on their way to the decisions: shortlists that the device chose, and whole
// rows, copied to pinned memory. All logits stay in device memory until the next step with rows, so
// a row whose shortlist does not suffice can still be fetched. Of one rank.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/step_plan.h"
#include "base/thread_team.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda_lists.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/device_rows.h"
#include "kernels/cuda/device_stream.h"

namespace coppice::kernels::cuda {

class CudaStepRows final : public DeviceRows {
 public:
  // *team must outlive the rows. always_list: BackendOptions.
  CudaStepRows(ThreadTeam* team, bool always_list) : team_(team), always_list_(always_list) {}

  void Clear() override;
  absl::Status Select(const StepPlan& plan, const LogitRows& rows) override;
  const CudaLists* lists() const override;
  absl::Status Download(DeviceStream* stream) override;
  absl::Status CheckFetch(absl::Span<const int32_t> needs) const override;
  absl::Status Fetch(absl::Span<const int32_t> needs, DeviceStream* stream) override;
  absl::Status Serve() override;

  absl::Span<const float> Whole(int need) const override;
  const ListedRow* Listed(int need) const override;

 private:
  // Enqueues copies of rows to *memory, side by side.
  absl::Status CopyRows(absl::Span<const int32_t> needs, PinnedBuffer* memory,
                        DeviceStream* stream);
  void ServeLists(const StepPlan& plan);

  ThreadTeam* const team_;
  const bool always_list_;
  LogitRows rows_;
  ListPlan list_plan_;
  CudaLists lists_;
  PinnedBuffer whole_memory_;
  std::vector<PinnedBuffer> fetched_memory_;  // one for each fetch of a step
  size_t fetches_ = 0;
  // What Serve is to do.
  const StepPlan* plan_ = nullptr;
  std::vector<std::pair<int32_t, const float*>> copied_;  // needs whose rows are on their way
  // Of the last step.
  std::vector<const float*> whole_;  // [needs], null where listed
  std::vector<ListedRow> listed_;    // [needs]
};

}  // namespace coppice::kernels::cuda
