#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/cuda/steps/step_upload.h"
#include "lab/bench/cuda/bench_parts.h"
#include "lab/bench/cuda/device_random.h"
#include "lab/bench/cuda/forest_plan.h"
#include "lab/bench/cuda/llama_shape.h"

namespace coppice::bench {
namespace {

using kernels::DType;
using kernels::cuda::DeviceBuffer;

constexpr int kContext = kContexts[0];
constexpr int kRows[] = {1, 34, 64};

absl::StatusOr<Timing> TimeNorm(int64_t rows, DeviceTimer* timer) {
  const auto floats = [&](int64_t count, uint64_t seed) {
    return RandomBuffer(count, DType::kF32, 1, seed, timer->stream());
  };
  COPPICE_ASSIGN_OR_RETURN(const DeviceBuffer x, floats(rows * kHidden, 1));
  COPPICE_ASSIGN_OR_RETURN(const DeviceBuffer gain, floats(kHidden, 2));
  COPPICE_ASSIGN_OR_RETURN(const DeviceBuffer out,
                           DeviceBuffer::Allocate(rows * kHidden * kValueBytes, "norm"));
  kernels::cuda::AddNormArgs args;
  args.x = x.floats();
  args.norm.gain = gain.floats();
  args.norm.epsilon = 1e-5f;
  args.out = out.data();
  args.rows = rows;
  args.columns = kHidden;
  return timer->Time([&] {
    kernels::cuda::AddNorm(args, timer->stream()->get());
    return absl::OkStatus();
  });
}

absl::StatusOr<Timing> TimeRope(int rows, DeviceTimer* timer) {
  kernels::cuda::DeviceStream* const stream = timer->stream();
  const BenchPlan forest = ForestPlan(1, kContext, rows);
  kernels::cuda::StepUpload plan;
  COPPICE_RETURN_IF_ERROR(plan.Upload(forest.plan, {rows, 0}, nullptr, nullptr, stream));
  const int64_t positions = kContext + rows;
  COPPICE_ASSIGN_OR_RETURN(const DeviceBuffer cos,
                           RandomBuffer(positions * kHeadDim / 2, DType::kF32, 1, 1, stream));
  COPPICE_ASSIGN_OR_RETURN(const DeviceBuffer sin,
                           RandomBuffer(positions * kHeadDim / 2, DType::kF32, 1, 2, stream));
  COPPICE_ASSIGN_OR_RETURN(const DeviceBuffer qkv,
                           RandomBuffer(int64_t{rows} * kQkvColumns, DType::kBF16, 1, 3, stream));
  COPPICE_ASSIGN_OR_RETURN(
      const DeviceBuffer storage,
      DeviceBuffer::Allocate(forest.blocks * kBlockSize * kKvTokenBytes, "rotary positions"));
  kernels::cuda::DevicePool pool;
  pool.data = storage.data();
  pool.layers = 1;
  pool.kv_heads = kKvHeads;
  pool.head_dim = kHeadDim;
  pool.blocks = forest.blocks;
  kernels::cuda::RopeArgs args;
  args.qkv = qkv.data();
  args.q_heads = kQHeads;
  args.rotary_dim = kHeadDim;
  args.cos = cos.floats();
  args.sin = sin.floats();
  return timer->Time([&] {
    kernels::cuda::RopeAndStoreKv(plan.step(), args, pool, stream->get());
    return absl::OkStatus();
  });
}

absl::StatusOr<Timing> TimeSwiGlu(int64_t rows, DeviceTimer* timer) {
  COPPICE_ASSIGN_OR_RETURN(
      const DeviceBuffer gate_up,
      RandomBuffer(rows * 2 * kIntermediate, DType::kBF16, 1, 1, timer->stream()));
  COPPICE_ASSIGN_OR_RETURN(const DeviceBuffer out,
                           DeviceBuffer::Allocate(rows * kIntermediate * kValueBytes, "SwiGLU"));
  return timer->Time([&] {
    kernels::cuda::Activate({kernels::Activation::kSilu, /*gated=*/true, gate_up.data(), out.data(),
                             DType::kBF16, rows, kIntermediate},
                            timer->stream()->get());
    return absl::OkStatus();
  });
}

struct Kernel {
  const char* name;
  double row_bytes;  // read and written for each row
  absl::StatusOr<Timing> (*time)(int rows, DeviceTimer* timer);
};

constexpr double kRotated = (kQHeads + kKvHeads) * kHeadDim;
constexpr Kernel kKernels[] = {
    // x in, the normed row out.
    {"norm", kHidden*(4.0 + kValueBytes),
     [](int rows, DeviceTimer* timer) { return TimeNorm(rows, timer); }},
    // q, k, v in, q and k back, K and V to the pool, a row of each table.
    {"rope", (kQkvColumns + kRotated) * kValueBytes + kKvTokenBytes + kHeadDim * 4.0, TimeRope},
    {"swiglu", 3.0 * kIntermediate* kValueBytes,
     [](int rows, DeviceTimer* timer) { return TimeSwiGlu(rows, timer); }},
};

}  // namespace

absl::Status BenchElementwise(Report* report, DeviceTimer* timer) {
  for (const Kernel& kernel : kKernels) {
    for (const int rows : kRows) {
      const BenchCase bench_case = {"small", absl::StrCat(kernel.name, ", ", rows, " rows"),
                                    kernel.row_bytes * rows};
      if (!report->Wants(bench_case)) continue;
      COPPICE_ASSIGN_OR_RETURN(const Timing timing, kernel.time(rows, timer));
      report->Add(bench_case, timing);
    }
  }
  return absl::OkStatus();
}

}  // namespace coppice::bench
