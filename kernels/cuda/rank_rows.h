// The rows of a step of several ranks: each copies its logits to pinned memory, and there they are
// joined as by every backend (kernels/host_step_rows.h).
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/thread_team.h"
#include "comm/communicator.h"
#include "kernels/cuda/device_buffer.h"
#include "kernels/cuda/device_rows.h"
#include "kernels/host_step_rows.h"

namespace coppice::kernels::cuda {

class RankRows final : public DeviceRows {
 public:
  // *team and *communicator must outlive the rows. always_list: BackendOptions.
  RankRows(ThreadTeam* team, comm::Communicator* communicator, bool always_list)
      : rows_(team, communicator, always_list) {}

  void Clear() override;
  absl::Status Select(const StepPlan& plan, const LogitRows& rows) override;
  const CudaLists* lists() const override { return nullptr; }
  absl::Status Download(DeviceStream* stream) override;
  absl::Status CheckFetch(absl::Span<const int32_t> needs) const override {
    return rows_.CheckFetch(needs);
  }
  // All logits are in host memory already.
  absl::Status Fetch(absl::Span<const int32_t> needs, DeviceStream* stream) override;
  absl::Status Serve() override;

  absl::Span<const float> Whole(int need) const override { return rows_.Whole(need); }
  const ListedRow* Listed(int need) const override { return rows_.Listed(need); }

 private:
  HostStepRows rows_;
  PinnedBuffer memory_;
  // What Serve is to do.
  const StepPlan* plan_ = nullptr;
  LogitRows logits_;
  std::optional<absl::Span<const int32_t>> fetch_;
};

}  // namespace coppice::kernels::cuda
