#include "kernels/cuda/cuda_step_rows.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/cpu/parallel_rows.h"

namespace coppice::kernels::cuda {
namespace {

constexpr char kWhat[] = "the logits of a step";
constexpr int64_t kListWork = 1 << 14;  // of a shortlist, for ForRows

}  // namespace

void CudaStepRows::Clear() {
  plan_ = nullptr;
  copied_.clear();
  fetches_ = 0;
  list_plan_ = ListPlan();
  whole_.clear();
  listed_.clear();
}

absl::Status CudaStepRows::Select(const StepPlan& plan, const LogitRows& rows) {
  rows_ = rows;
  list_plan_ = MakeListPlan(plan, rows_, always_list_);
  whole_.assign(plan.needs.size(), nullptr);
  plan_ = &plan;
  return list_plan_.lists.empty() ? absl::OkStatus() : lists_.MakeRoom(&list_plan_, rows_);
}

const CudaLists* CudaStepRows::lists() const {
  return plan_ == nullptr || list_plan_.lists.empty() ? nullptr : &lists_;
}

absl::Status CudaStepRows::Download(DeviceStream* stream) {
  if (!list_plan_.lists.empty()) COPPICE_RETURN_IF_ERROR(lists_.Download(stream));
  std::vector<int32_t> whole;
  for (int i = 0; i < static_cast<int>(whole_.size()); ++i) {
    if (!list_plan_.IsListed(i)) whole.push_back(i);
  }
  return CopyRows(whole, &whole_memory_, stream);
}

absl::Status CudaStepRows::CheckFetch(absl::Span<const int32_t> needs) const {
  for (const int32_t need : needs) {
    if (need >= 0 && need < static_cast<int64_t>(whole_.size())) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("fetch of need ", need, ": the step before had ", whole_.size(), " needs"));
  }
  return absl::OkStatus();
}

absl::Status CudaStepRows::Fetch(absl::Span<const int32_t> needs, DeviceStream* stream) {
  std::vector<int32_t> missing;
  for (const int32_t need : needs) {
    if (whole_[need] == nullptr) missing.push_back(need);
  }
  if (fetches_ == fetched_memory_.size()) fetched_memory_.emplace_back();
  return CopyRows(missing, &fetched_memory_[fetches_++], stream);
}

// Rows that lie side by side are one copy.
absl::Status CudaStepRows::CopyRows(absl::Span<const int32_t> needs, PinnedBuffer* memory,
                                    DeviceStream* stream) {
  const size_t row_bytes = static_cast<size_t>(rows_.columns) * sizeof(float);
  const size_t bytes = needs.size() * row_bytes;
  if (memory->size() < bytes) {
    COPPICE_ASSIGN_OR_RETURN(*memory,
                             PinnedBuffer::Allocate(std::max(bytes, 2 * memory->size()), kWhat));
  }
  for (size_t begin = 0; begin < needs.size();) {
    size_t end = begin + 1;
    while (end < needs.size() && needs[end] == needs[end - 1] + 1) ++end;
    COPPICE_RETURN_IF_ERROR(stream->CopyToHost(memory->data() + begin * row_bytes,
                                               rows_.logits + needs[begin] * rows_.columns,
                                               (end - begin) * row_bytes, kWhat));
    begin = end;
  }
  for (size_t i = 0; i < needs.size(); ++i) {
    copied_.emplace_back(needs[i], reinterpret_cast<const float*>(memory->data()) +
                                       static_cast<int64_t>(i) * rows_.columns);
  }
  return absl::OkStatus();
}

absl::Status CudaStepRows::Serve() {
  const StepPlan* plan = std::exchange(plan_, nullptr);
  if (plan != nullptr) ServeLists(*plan);
  for (const auto& [need, row] : copied_) whole_[need] = row;
  copied_.clear();
  return absl::OkStatus();
}

void CudaStepRows::ServeLists(const StepPlan& plan) {
  listed_.resize(plan.needs.size());
  std::vector<int> listed;
  for (int i = 0; i < static_cast<int>(plan.needs.size()); ++i) {
    if (list_plan_.IsListed(i)) listed.push_back(i);
  }
  cpu::ForRows(
      static_cast<int64_t>(listed.size()), kListWork, team_, [&](int64_t begin, int64_t end) {
        std::vector<float> record;
        for (int64_t i = begin; i < end; ++i) {
          const RowNeed& need = plan.needs[listed[i]];
          const auto bias = absl::MakeConstSpan(plan.bias).subspan(need.bias_begin,
                                                                   need.bias_end - need.bias_begin);
          record.resize(RecordWords(need));
          WriteFoundRecord(
              need, ReadFound(plan, list_plan_, listed[i], rows_, lists_.records(), lists_.sums()),
              bias, record.data());
          listed_[listed[i]] = JoinRecords(need, {record.data()}, bias);
        }
      });
}

absl::Span<const float> CudaStepRows::Whole(int need) const {
  const float* row = whole_.at(need);
  return {row, row == nullptr ? 0 : static_cast<size_t>(rows_.vocab)};
}

const ListedRow* CudaStepRows::Listed(int need) const {
  return whole_.at(need) == nullptr ? &listed_[need] : nullptr;
}

}  // namespace coppice::kernels::cuda
