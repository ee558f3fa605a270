#include "kernels/cuda/steps/logit_download.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace coppice::kernels::cuda {
namespace {

constexpr char kWhat[] = "the logits of a step";

}  // namespace

void LogitDownload::Clear() {
  copied_.clear();
  fetches_ = 0;
  list_plan_ = ListPlan();
  rows_.clear();
}

absl::Status LogitDownload::Select(const StepPlan& plan, const LogitRows& rows) {
  logits_ = rows;
  list_plan_ = MakeListPlan(plan, rows, always_list_);
  rows_.assign(plan.needs.size(), nullptr);
  return list_plan_.lists.empty() ? absl::OkStatus() : lists_.MakeRoom(&list_plan_, rows);
}

absl::Status LogitDownload::Download(DeviceStream* stream) {
  if (!list_plan_.lists.empty()) COPPICE_RETURN_IF_ERROR(lists_.Download(stream));
  std::vector<int32_t> whole;
  for (int i = 0; i < needs(); ++i) {
    if (!list_plan_.IsListed(i)) whole.push_back(i);
  }
  return CopyRows(whole, &whole_memory_, stream);
}

absl::Status LogitDownload::CheckFetch(absl::Span<const int32_t> needs) const {
  for (const int32_t need : needs) {
    if (need >= 0 && need < static_cast<int64_t>(rows_.size())) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("fetch of need ", need, ": the step before had ", rows_.size(), " needs"));
  }
  return absl::OkStatus();
}

absl::Status LogitDownload::Fetch(absl::Span<const int32_t> needs, DeviceStream* stream) {
  std::vector<int32_t> missing;
  for (const int32_t need : needs) {
    if (rows_[need] == nullptr) missing.push_back(need);
  }
  if (fetches_ == fetched_memory_.size()) fetched_memory_.emplace_back();
  return CopyRows(missing, &fetched_memory_[fetches_++], stream);
}

// Rows that lie side by side are one copy.
absl::Status LogitDownload::CopyRows(absl::Span<const int32_t> needs, PinnedBuffer* memory,
                                     DeviceStream* stream) {
  const size_t row_bytes = static_cast<size_t>(logits_.columns) * sizeof(float);
  const size_t bytes = needs.size() * row_bytes;
  if (memory->size() < bytes) {
    COPPICE_ASSIGN_OR_RETURN(*memory,
                             PinnedBuffer::Allocate(std::max(bytes, 2 * memory->size()), kWhat));
  }
  for (size_t begin = 0; begin < needs.size();) {
    size_t end = begin + 1;
    while (end < needs.size() && needs[end] == needs[end - 1] + 1) ++end;
    COPPICE_RETURN_IF_ERROR(stream->CopyToHost(memory->data() + begin * row_bytes,
                                               logits_.logits + needs[begin] * logits_.columns,
                                               (end - begin) * row_bytes, kWhat));
    begin = end;
  }
  for (size_t i = 0; i < needs.size(); ++i) {
    copied_.emplace_back(needs[i], reinterpret_cast<const float*>(memory->data()) +
                                       static_cast<int64_t>(i) * logits_.columns);
  }
  return absl::OkStatus();
}

void LogitDownload::Arrived() {
  for (const auto& [need, row] : copied_) rows_[need] = row;
  copied_.clear();
}

void LogitDownload::WriteListed(const StepPlan& plan, int need, float* record) const {
  const RowNeed& of = plan.needs[need];
  const auto bias =
      absl::MakeConstSpan(plan.bias).subspan(of.bias_begin, of.bias_end - of.bias_begin);
  sampling::WriteFoundRecord(
      of, ReadFound(plan, list_plan_, need, logits_, lists_.records(), lists_.sums()), bias,
      record);
}

}  // namespace coppice::kernels::cuda
