// What the host of one rank gets of the logits on its device: candidate lists that the device
// chose, and rows of this rank's tokens, copied to pinned memory. All logits stay in device memory
// until the next step with rows, so a row whose candidate list does not suffice can still be
// fetched. Owned by CudaStepRows or RankRows. Thread-compatible; the const calls may come from any
// thread.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/cuda/runtime/cuda_lists.h"
#include "kernels/cuda/runtime/device_buffer.h"
#include "kernels/cuda/runtime/device_stream.h"
#include "plan/step_plan.h"

namespace coppice::kernels::cuda {

class LogitDownload {
 public:
  // always_list: BackendOptions.
  explicit LogitDownload(bool always_list) : always_list_(always_list) {}

  // As in DeviceRows.
  void Clear();
  absl::Status Select(const StepPlan& plan, const LogitRows& rows);
  const CudaLists* lists() const { return list_plan_.lists.empty() ? nullptr : &lists_; }
  absl::Status Download(DeviceStream* stream);
  absl::Status CheckFetch(absl::Span<const int32_t> needs) const;
  absl::Status Fetch(absl::Span<const int32_t> needs, DeviceStream* stream);
  // The copies have been made.
  void Arrived();

  // ---- then
  const LogitRows& logits() const { return logits_; }
  int needs() const { return static_cast<int>(rows_.size()); }
  // [columns]; nullptr if the device listed the row and nobody has fetched it.
  const float* Row(int need) const { return rows_[need]; }
  // For a need that the device listed. A record has RecordWords(need) words (candidate_list.h).
  bool IsListed(int need) const { return list_plan_.IsListed(need); }
  void WriteListed(const StepPlan& plan, int need, float* record) const;

 private:
  // Enqueues copies of rows to *memory, side by side.
  absl::Status CopyRows(absl::Span<const int32_t> needs, PinnedBuffer* memory,
                        DeviceStream* stream);

  const bool always_list_;
  LogitRows logits_;
  ListPlan list_plan_;
  CudaLists lists_;
  PinnedBuffer whole_memory_;
  std::vector<PinnedBuffer> fetched_memory_;  // one buffer per fetch of a step
  size_t fetches_ = 0;
  std::vector<std::pair<int32_t, const float*>> copied_;  // needs whose rows are on their way
  std::vector<const float*> rows_;                        // [needs]
};

}  // namespace coppice::kernels::cuda
