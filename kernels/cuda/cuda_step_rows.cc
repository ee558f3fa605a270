#include "kernels/cuda/cuda_step_rows.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace coppice::kernels::cuda {
namespace {

constexpr char kWhat[] = "the logits of a step";

}  // namespace

void CudaStepRows::Clear() {
  plan_ = nullptr;
  rows_.Clear();
}

absl::Status CudaStepRows::Download(const StepPlan& plan, const Tensor& logits, int64_t first_token,
                                    int64_t vocab, DeviceStream* stream) {
  const size_t bytes = plan.needs.size() * logits.columns * sizeof(float);
  if (logits_.size() < bytes) {
    COPPICE_ASSIGN_OR_RETURN(logits_,
                             PinnedBuffer::Allocate(std::max(bytes, 2 * logits_.size()), kWhat));
  }
  COPPICE_RETURN_IF_ERROR(stream->CopyToHost(logits_.data(), logits.data, bytes, kWhat));
  plan_ = &plan;
  first_token_ = first_token;
  vocab_ = vocab;
  return absl::OkStatus();
}

absl::Status CudaStepRows::Serve() {
  const StepPlan* plan = std::exchange(plan_, nullptr);
  if (plan == nullptr) return absl::OkStatus();
  return rows_.Select(*plan, reinterpret_cast<const float*>(logits_.data()), first_token_, vocab_);
}

}  // namespace coppice::kernels::cuda
