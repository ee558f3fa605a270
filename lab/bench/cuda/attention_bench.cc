#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/cuda/runtime/device_error.h"
#include "kernels/cuda/steps/step_upload.h"
#include "lab/bench/cuda/bench_parts.h"
#include "lab/bench/cuda/device_random.h"
#include "lab/bench/cuda/forest_plan.h"
#include "lab/bench/cuda/llama_shape.h"
#include "plan/plan_check.h"

namespace coppice::bench {
namespace {

using kernels::DType;
using kernels::cuda::DeviceBuffer;

constexpr int kRowsOfRequest = 32;

kernels::cuda::WorkShape ShapeOfWork(const kernels::cuda::DeviceFacts& facts, bool wide) {
  kernels::cuda::WorkShape shape;
  shape.group = kQHeads / kKvHeads;
  shape.kv_heads = kKvHeads;
  shape.head_dim = kHeadDim;
  shape.multiprocessors = facts.multiprocessors;
  for (int c = 0; c < kernels::cuda::kTileClasses; ++c) {
    shape.workers[c] = facts.multiprocessors * kernels::cuda::TileBlocksPerMultiprocessor(
                                                   c, kHeadDim, facts.shared_bytes, wide);
  }
  return shape;
}

// wide: by wgmma and the copy engine.
absl::StatusOr<Timing> TimeAttention(const BenchPlan& forest, bool wide, DeviceTimer* timer) {
  kernels::cuda::DeviceStream* const stream = timer->stream();
  kernels::cuda::StepUpload step;
  const kernels::cuda::WorkShape shape = ShapeOfWork(timer->facts(), wide);
  COPPICE_RETURN_IF_ERROR(
      step.Upload(forest.plan, {forest.plan.rows(), 0}, &shape, nullptr, stream));
  const int64_t pool_values = forest.blocks * kBlockSize * 2 * kKvHeads * kHeadDim;
  const int64_t rows = forest.plan.rows();
  COPPICE_ASSIGN_OR_RETURN(const DeviceBuffer storage,
                           RandomBuffer(pool_values, DType::kBF16, 1, 1, stream));
  COPPICE_ASSIGN_OR_RETURN(const DeviceBuffer qkv,
                           RandomBuffer(rows * kQkvColumns, DType::kBF16, 1, 2, stream));
  COPPICE_ASSIGN_OR_RETURN(
      const DeviceBuffer out,
      DeviceBuffer::Allocate(rows * kQHeads * kHeadDim * kValueBytes, "attention"));
  kernels::cuda::DevicePool pool;
  pool.data = storage.data();
  pool.layers = 1;
  pool.kv_heads = kKvHeads;
  pool.head_dim = kHeadDim;
  pool.blocks = forest.blocks;
  kernels::cuda::AttentionArgs args;
  args.qkv = qkv.data();
  args.out = out.data();
  args.q_heads = kQHeads;
  args.rule.scale = 1 / std::sqrt(float{kHeadDim});
  return timer->Time([&] {
    if (!wide) {
      kernels::cuda::TiledAttention(step.step(), args, step.work(), pool, stream->get());
      return absl::OkStatus();
    }
    return kernels::cuda::CudaStatus(
        kernels::cuda::AttendWide(step.step(), args, step.work(), pool, stream->get()),
        "cuTensorMapEncodeTiled", "the KV pool");
  });
}

absl::Status BenchForests(const char* part, const char* how, bool wide, Report* report,
                          DeviceTimer* timer) {
  for (const int requests : {1, 8}) {
    for (const int context : kContexts) {
      const double bytes =
          static_cast<double>(requests) * (context + kRowsOfRequest) * kKvTokenBytes;
      const BenchCase bench_case = {
          part,
          absl::StrCat(requests, " x ", kRowsOfRequest, " rows over ", context, " tokens, ", how),
          bytes};
      const BenchPlan forest = ForestPlan(requests, context, kRowsOfRequest);
      COPPICE_RETURN_IF_ERROR(
          CheckPlan(forest.plan, {requests * kRowsOfRequest, kVocabulary, context + kRowsOfRequest,
                                  forest.blocks, /*needs_before=*/0}));
      if (!report->Wants(bench_case)) continue;
      COPPICE_ASSIGN_OR_RETURN(const Timing timing, TimeAttention(forest, wide, timer));
      report->Add(bench_case, timing);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status BenchAttention(Report* report, DeviceTimer* timer) {
  return BenchForests("attention", "one layer", /*wide=*/false, report, timer);
}

absl::Status BenchWideAttention(Report* report, DeviceTimer* timer) {
  if (timer != nullptr && !timer->facts().has_wgmma)
    return absl::FailedPreconditionError("the device is not of compute capability 9.0");
  COPPICE_RETURN_IF_ERROR(BenchForests("wide", "portable", /*wide=*/false, report, timer));
  return BenchForests("wide", "wgmma", /*wide=*/true, report, timer);
}

}  // namespace coppice::bench
