// The logits of a step on their way to the decisions: one copy of all rows to pinned memory, then
// served from there as every backend does (kernels/host_step_rows.h). Owned by CudaBackend.
// Thread-compatible.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/step_plan.h"
#include "base/thread_team.h"
#include "comm/communicator.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/device_stream.h"
#include "kernels/host_step_rows.h"

namespace coppice::kernels::cuda {

class CudaStepRows {
 public:
  // *team and *communicator must outlive the rows. always_list: BackendOptions.
  CudaStepRows(ThreadTeam* team, comm::Communicator* communicator, bool always_list)
      : rows_(team, communicator, always_list) {}

  // Forgets the step before, whose copies have been made.
  void Clear();
  // Enqueues the copy. logits [needs, columns] in device memory, first_token and vocab as in
  // Ops::Select. plan must live until Serve.
  absl::Status Download(const StepPlan& plan, const Tensor& logits, int64_t first_token,
                        int64_t vocab, DeviceStream* stream);
  // Makes rows of what Download copied, once the copy has been made. Nothing without a Download.
  absl::Status Serve();

  // HostStepRows says what these do.
  absl::Status CheckFetch(absl::Span<const int32_t> needs) const { return rows_.CheckFetch(needs); }
  absl::Status Fetch(absl::Span<const int32_t> needs) { return rows_.Fetch(needs); }
  const StepRows* rows() const { return &rows_; }

 private:
  HostStepRows rows_;
  PinnedBuffer logits_;
  // What Serve is to do.
  const StepPlan* plan_ = nullptr;
  int64_t first_token_ = 0, vocab_ = 0;
};

}  // namespace coppice::kernels::cuda
