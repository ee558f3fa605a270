#include "kernels/cuda/steps/cuda_step_rows.h"

#include <utility>

#include "base/check.h"
#include "kernels/cpu/parallel_rows.h"

namespace coppice::kernels::cuda {

void CudaStepRows::Clear() {
  plan_ = nullptr;
  download_.Clear();
  listed_.clear();
}

absl::Status CudaStepRows::Select(const StepPlan& plan, const LogitRows& rows) {
  plan_ = &plan;
  return download_.Select(plan, rows);
}

absl::Status CudaStepRows::Serve() {
  download_.Arrived();
  const StepPlan* plan = std::exchange(plan_, nullptr);
  if (plan != nullptr) ServeLists(*plan);
  return absl::OkStatus();
}

void CudaStepRows::ServeLists(const StepPlan& plan) {
  listed_.resize(plan.needs.size());
  std::vector<int> listed;
  for (int i = 0; i < static_cast<int>(plan.needs.size()); ++i) {
    if (download_.IsListed(i)) listed.push_back(i);
  }
  cpu::ForRows(static_cast<int64_t>(listed.size()), kListWork, team_,
               [&](int64_t begin, int64_t end) {
                 std::vector<float> record;
                 for (int64_t i = begin; i < end; ++i) {
                   const RowNeed& need = plan.needs[listed[i]];
                   const auto bias = absl::MakeConstSpan(plan.bias).subspan(
                       need.bias_begin, need.bias_end - need.bias_begin);
                   record.resize(sampling::RecordWords(need));
                   download_.WriteListed(plan, listed[i], record.data());
                   listed_[listed[i]] = sampling::JoinRecords(need, {record.data()}, bias);
                 }
               });
}

absl::Span<const float> CudaStepRows::Whole(int need) const {
  COPPICE_CHECK(need >= 0 && need < download_.needs());
  const float* row = download_.Row(need);
  return {row, row == nullptr ? 0 : static_cast<size_t>(download_.logits().vocab)};
}

const CandidateRow* CudaStepRows::Listed(int need) const {
  COPPICE_CHECK(need >= 0 && need < download_.needs());
  return download_.Row(need) == nullptr ? &listed_[need] : nullptr;
}

}  // namespace coppice::kernels::cuda
