// The rows of a step of one rank on their way to the decisions: candidate lists that the device
// chose, and whole rows (logit_download.h). Owned by CudaBackend.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/thread_team.h"
#include "kernels/backend.h"
#include "kernels/cuda/runtime/device_rows.h"
#include "kernels/cuda/steps/logit_download.h"
#include "plan/step_plan.h"

namespace coppice::kernels::cuda {

class CudaStepRows final : public DeviceRows {
 public:
  // *team must outlive the rows. always_list: BackendOptions.
  CudaStepRows(ThreadTeam* team, bool always_list) : team_(team), download_(always_list) {}

  void Clear() override;
  absl::Status Select(const StepPlan& plan, const LogitRows& rows) override;
  const CudaLists* lists() const override { return plan_ == nullptr ? nullptr : download_.lists(); }
  absl::Status Download(DeviceStream* stream) override { return download_.Download(stream); }
  absl::Status CheckFetch(absl::Span<const int32_t> needs) const override {
    return download_.CheckFetch(needs);
  }
  absl::Status Fetch(absl::Span<const int32_t> needs, DeviceStream* stream) override {
    return download_.Fetch(needs, stream);
  }
  absl::Status Serve() override;

  absl::Span<const float> Whole(int need) const override;
  const CandidateRow* Listed(int need) const override;

 private:
  void ServeLists(const StepPlan& plan);

  ThreadTeam* const team_;
  LogitDownload download_;
  const StepPlan* plan_ = nullptr;    // plan for which Serve makes lists
  std::vector<CandidateRow> listed_;  // [needs] of the last step
};

}  // namespace coppice::kernels::cuda
