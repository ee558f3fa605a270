#include "kernels/cuda/rank_rows.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace coppice::kernels::cuda {
namespace {

constexpr char kWhat[] = "the logits of a step";

}  // namespace

void RankRows::Clear() {
  plan_ = nullptr;
  fetch_.reset();
  rows_.Clear();
}

absl::Status RankRows::Select(const StepPlan& plan, const LogitRows& rows) {
  plan_ = &plan;
  logits_ = rows;
  return absl::OkStatus();
}

absl::Status RankRows::Download(DeviceStream* stream) {
  const size_t bytes = plan_->needs.size() * logits_.columns * sizeof(float);
  if (memory_.size() < bytes) {
    COPPICE_ASSIGN_OR_RETURN(memory_,
                             PinnedBuffer::Allocate(std::max(bytes, 2 * memory_.size()), kWhat));
  }
  return stream->CopyToHost(memory_.data(), logits_.logits, bytes, kWhat);
}

absl::Status RankRows::Fetch(absl::Span<const int32_t> needs, DeviceStream*) {
  fetch_ = needs;
  return absl::OkStatus();
}

absl::Status RankRows::Serve() {
  if (fetch_.has_value()) return rows_.Fetch(*std::exchange(fetch_, std::nullopt));
  const StepPlan* plan = std::exchange(plan_, nullptr);
  if (plan == nullptr) return absl::OkStatus();
  return rows_.Select(*plan, reinterpret_cast<const float*>(memory_.data()), logits_.first_token,
                      logits_.vocab);
}

}  // namespace coppice::kernels::cuda
