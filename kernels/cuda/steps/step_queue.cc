#include "kernels/cuda/steps/step_queue.h"

#include <algorithm>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/status.h"
#include "kernels/cuda/ops/row_bucket.h"

namespace coppice::kernels::cuda {
namespace {

// A body without a graph has this many parts, with a mark after each.
constexpr int kBodyParts = StepMarks::kMost - 2;
constexpr char kBodyName[] = "the body of a step";

}  // namespace

void StepQueue::Begin() {
  marks_->Clear();
  body_mark_ = seen_ = 0;
}

absl::Status StepQueue::AddBody(const OpList& body) {
  const absl::Span<const DeviceOp> ops = body.ops;
  bool enqueued = false;
  if (!ops.empty() && body.step.rows <= kMostPaddedRows) {
    COPPICE_ASSIGN_OR_RETURN(
        enqueued, graphs_.Enqueue(body, absl::StrCat("the body of a step of ", body.step.rows,
                                                     " rows, ", body.step.needs, " needs")));
  }
  if (enqueued) return Mark(kBodyName);
  const size_t part = (ops.size() + kBodyParts - 1) / kBodyParts;
  size_t begin = 0;
  do {
    const absl::Span<const DeviceOp> some = ops.subspan(begin, part);
    COPPICE_RETURN_IF_ERROR(LaunchOps(body, some, products_, stream_));
    COPPICE_RETURN_IF_ERROR(Mark(kBodyName));
    begin += some.size();
  } while (begin < ops.size());
  return absl::OkStatus();
}

absl::Status StepQueue::AddOps(const OpList& list, int64_t rows, absl::string_view what) {
  bool enqueued = false;
  if (!list.ops.empty() && rows <= kMostPaddedRows) {
    COPPICE_ASSIGN_OR_RETURN(enqueued,
                             graphs_.Enqueue(list, absl::StrCat(what, " of ", rows, " rows")));
  }
  return enqueued ? absl::OkStatus() : LaunchOps(list, list.ops, products_, stream_);
}

absl::Status StepQueue::AddLists(absl::Span<const OpList> lists, const char* what) {
  const bool padded = std::all_of(lists.begin(), lists.end(), [](const OpList& list) {
    return !list.ops.empty() && list.step.rows <= kMostPaddedRows &&
           list.step.needs <= kMostPaddedRows;
  });
  if (padded && lists.size() > 1) {
    COPPICE_ASSIGN_OR_RETURN(const bool enqueued, graphs_.Enqueue(lists, what));
    if (enqueued) return Mark(what);
  }
  for (const OpList& list : lists) {
    const bool head = list.step.rows == 0;
    COPPICE_RETURN_IF_ERROR(AddOps(list, head ? list.step.needs : list.step.rows, what));
    if (!head) COPPICE_RETURN_IF_ERROR(Mark(what));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> StepQueue::HeadReached() {
  COPPICE_ASSIGN_OR_RETURN(const int reached, marks_->Reached());
  if (reached > seen_) PartDone();
  seen_ = reached;
  return reached >= body_mark_;
}

absl::Status StepQueue::Wait(absl::FunctionRef<absl::Status()> go_on) {
  return marks_->Wait([this] { PartDone(); }, go_on);
}

}  // namespace coppice::kernels::cuda
