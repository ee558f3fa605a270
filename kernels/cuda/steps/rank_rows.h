// The rows of a step of several ranks. The device of each rank lists its own tokens, or gives its
// part of a row (logit_download.h); the parts are joined on the host as by every backend
// (kernels/host_step_rows.h). Owned by CudaBackend.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/thread_team.h"
#include "comm/communicator.h"
#include "kernels/cuda/runtime/device_rows.h"
#include "kernels/cuda/steps/logit_download.h"
#include "kernels/host_step_rows.h"

namespace coppice::kernels::cuda {

class RankRows final : public DeviceRows {
 public:
  // *team and *communicator must outlive the rows. always_list: BackendOptions.
  RankRows(ThreadTeam* team, comm::Communicator* communicator, bool always_list)
      : parts_(always_list), rows_(team, communicator, always_list) {}

  void Clear() override;
  absl::Status Select(const StepPlan& plan, const LogitRows& rows) override;
  const CudaLists* lists() const override {
    return parts_.plan == nullptr ? nullptr : parts_.download.lists();
  }
  absl::Status Download(DeviceStream* stream) override { return parts_.download.Download(stream); }
  absl::Status CheckFetch(absl::Span<const int32_t> needs) const override {
    return rows_.CheckFetch(needs);
  }
  absl::Status Fetch(absl::Span<const int32_t> needs, DeviceStream* stream) override;
  absl::Status Serve() override;

  absl::Span<const float> Whole(int need) const override { return rows_.Whole(need); }
  const CandidateRow* Listed(int need) const override { return rows_.Listed(need); }

 private:
  // The needs that come as candidate lists are the same on every rank. Whether the device listed
  // one is this rank's own matter: a short row is copied and listed here.
  class Parts final : public RowParts {
   public:
    explicit Parts(bool always_list) : download(always_list) {}
    const float* Row(int need) const override { return download.Row(need); }
    void WriteRecord(int need, float* record) const override;
    int64_t work() const override { return kListWork; }

    LogitDownload download;
    const StepPlan* plan = nullptr;
  };

  Parts parts_;
  HostStepRows rows_;
  // The work of the next Serve.
  bool selects_ = false;
  std::optional<absl::Span<const int32_t>> fetch_;
};

}  // namespace coppice::kernels::cuda
