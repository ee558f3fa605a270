#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/cuda/runtime/cuda_lists.h"
#include "kernels/cuda/steps/device_op.h"
#include "kernels/cuda/steps/step_upload.h"
#include "lab/bench/cuda/bench_parts.h"
#include "lab/bench/cuda/device_random.h"
#include "lab/bench/cuda/llama_shape.h"

namespace coppice::bench {
namespace {

constexpr int kRows = 34;
constexpr uint32_t kFourSlots = 0xf;

struct Lists {
  const char* name;
  RowNeed::Form form;
  int count;
  bool sums;
};
constexpr Lists kLists[] = {
    {"top 64", RowNeed::Form::kTop, 64, false},
    {"top 64 and sums", RowNeed::Form::kTop, 64, true},
    {"draws of 4 slots", RowNeed::Form::kGumbel, 1, false},
    {"draws of 4 slots and sums", RowNeed::Form::kGumbel, 1, true},
};

StepPlan PlanOf(const Lists& lists) {
  StepPlan plan;
  for (int row = 0; row < kRows; ++row) {
    RowNeed need;
    need.form = lists.form;
    need.row = row;
    need.count = lists.count;
    need.sums = lists.sums;
    need.slots = lists.form == RowNeed::Form::kGumbel ? kFourSlots : 0;
    need.seed = 1;
    need.path_hash = row;
    plan.needs.push_back(need);
  }
  return plan;
}

absl::StatusOr<Timing> TimeLists(const Lists& lists, DeviceTimer* timer) {
  COPPICE_ASSIGN_OR_RETURN(
      const kernels::cuda::DeviceBuffer logits,
      RandomBuffer(int64_t{kRows} * kVocabulary, kernels::DType::kF32, 10, 1, timer->stream()));
  const kernels::cuda::LogitRows rows = {logits.floats(), kVocabulary, 0, kVocabulary};
  const StepPlan plan = PlanOf(lists);
  const kernels::cuda::ListPlan list_plan =
      kernels::cuda::MakeListPlan(plan, rows, /*always=*/true);
  kernels::cuda::CudaLists on_device;
  COPPICE_RETURN_IF_ERROR(on_device.MakeRoom(&list_plan, rows));
  kernels::cuda::StepUpload upload;
  const auto needs = static_cast<int32_t>(plan.needs.size());
  COPPICE_RETURN_IF_ERROR(upload.Upload(plan, {0, needs}, nullptr, &on_device, timer->stream()));
  const kernels::cuda::OpList ops = {
      upload.step(), {}, upload.lists(), {kernels::cuda::SelectOp{rows}}};
  const absl::StatusOr<Timing> timing =
      timer->Time([&] { return LaunchOps(ops, ops.ops, nullptr, timer->stream()); });
  COPPICE_RETURN_IF_ERROR(timer->stream()->Synchronize("candidate_lists"));
  return timing;
}

}  // namespace

// The floor is that of reading each logit once; draws are bound by arithmetic.
absl::Status BenchCandidateLists(Report* report, DeviceTimer* timer) {
  for (const Lists& lists : kLists) {
    const BenchCase bench_case = {"candidate_list",
                                  absl::StrCat(lists.name, ", ", kRows, " rows of ", kVocabulary),
                                  static_cast<double>(kRows) * kVocabulary * sizeof(float)};
    if (!report->Wants(bench_case)) continue;
    COPPICE_ASSIGN_OR_RETURN(const Timing timing, TimeLists(lists, timer));
    report->Add(bench_case, timing);
  }
  return absl::OkStatus();
}

}  // namespace coppice::bench
