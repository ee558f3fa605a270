// The rows of a step on their way from the device to the decisions: of one rank (cuda_step_rows.h),
// or of several, which join theirs on the host (rank_rows.h). Owned by CudaBackend.
// Thread-compatible; what StepRows has may come from any thread.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cuda/runtime/cuda_lists.h"
#include "kernels/cuda/runtime/device_stream.h"
#include "plan/step_plan.h"

namespace coppice::kernels::cuda {

// Simple operations that a candidate list takes on the host.
inline constexpr int64_t kListWork = 1 << 14;

class DeviceRows : public StepRows {
 public:
  // Forgets the step before, whose copies have been made.
  virtual void Clear() = 0;
  // Chooses which rows come as candidate lists, and makes room for them. The logits [needs,
  // columns], once they are computed, must stay as they are until Clear. plan must live until
  // Serve.
  virtual absl::Status Select(const StepPlan& plan, const LogitRows& rows) = 0;
  // The lists that the device should make for the step that Select was given; nullptr when there
  // are none.
  virtual const CudaLists* lists() const = 0;
  // Enqueues the copies of lists and rows.
  virtual absl::Status Download(DeviceStream* stream) = 0;
  // InvalidArgument names a need that the last step did not have.
  virtual absl::Status CheckFetch(absl::Span<const int32_t> needs) const = 0;
  // Enqueues the copies of the rows of these needs that are not whole yet. needs must live until
  // Serve.
  virtual absl::Status Fetch(absl::Span<const int32_t> needs, DeviceStream* stream) = 0;
  // Makes rows from what was copied, once the copies have been made. Does nothing without Select or
  // Fetch. Collective.
  virtual absl::Status Serve() = 0;
};

}  // namespace coppice::kernels::cuda
