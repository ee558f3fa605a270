#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/cuda/products/matrix_products.h"
#include "kernels/cuda/runtime/cache_cover.h"
#include "kernels/cuda/runtime/device_error.h"
#include "lab/bench/cuda/bench_parts.h"
#include "lab/bench/cuda/device_random.h"
#include "lab/bench/cuda/llama_shape.h"

namespace coppice::bench {
namespace {

using kernels::DType;
using kernels::cuda::CacheCover;
using kernels::cuda::DeviceBuffer;
using kernels::cuda::MatrixProducts;

constexpr char kWhat[] = "a ceiling";

// Floors and goals are against this rate: most kernels read far more than they write.
absl::Status Read(Report* report, DeviceTimer* timer) {
  COPPICE_ASSIGN_OR_RETURN(CacheCover memory,
                           CacheCover::Allocate(kCopyBytes, timer->facts(), kWhat));
  COPPICE_ASSIGN_OR_RETURN(const Timing timing,
                           timer->Time([&] { return memory.Read(timer->stream(), kWhat); }));
  report->AddCeiling("read", kBandwidth, 1e6 * kCopyBytes / timing.us, timing.spread);
  return absl::OkStatus();
}

absl::Status Copy(Report* report, DeviceTimer* timer) {
  constexpr int64_t kBytes = kCopyBytes;
  COPPICE_ASSIGN_OR_RETURN(const DeviceBuffer from,
                           RandomBuffer(kBytes / 2, DType::kBF16, 1, 1, timer->stream()));
  COPPICE_ASSIGN_OR_RETURN(const DeviceBuffer to, DeviceBuffer::Allocate(kBytes, kWhat));
  const auto copy = [&] {
    return kernels::cuda::CudaStatus(
        cudaMemcpyAsync(to.data(), from.data(), kBytes, cudaMemcpyDeviceToDevice,
                        timer->stream()->get()),
        "cudaMemcpyAsync", kWhat);
  };
  COPPICE_ASSIGN_OR_RETURN(const Timing timing, timer->Time(copy));
  report->AddCeiling("copy, bytes read and written", "copied_bytes_per_second",
                     2e6 * kBytes / timing.us, timing.spread);
  return absl::OkStatus();
}

absl::Status Product(Report* report, DeviceTimer* timer) {
  constexpr int64_t kSide = kProductSide;
  COPPICE_ASSIGN_OR_RETURN(const std::unique_ptr<MatrixProducts> products,
                           MatrixProducts::Create(timer->stream()));
  COPPICE_ASSIGN_OR_RETURN(const DeviceBuffer w,
                           RandomBuffer(kSide * kSide, DType::kBF16, 1, 2, timer->stream()));
  COPPICE_ASSIGN_OR_RETURN(const DeviceBuffer x,
                           RandomBuffer(kSide * kSide, DType::kBF16, 1, 3, timer->stream()));
  COPPICE_ASSIGN_OR_RETURN(const DeviceBuffer y, DeviceBuffer::Allocate(kSide * kSide * 2, kWhat));
  const auto product = [&] {
    return products->Enqueue({w.data(), x.data(), y.data(), DType::kBF16, DType::kBF16, kSide,
                              kSide, kSide, /*accumulate=*/false});
  };
  COPPICE_ASSIGN_OR_RETURN(const Timing timing, timer->Time(product));
  report->AddCeiling(absl::StrCat("bf16 product of ", kSide, " cubed"), "flops_per_second",
                     2e6 * kSide * kSide * kSide / timing.us, timing.spread);
  return absl::OkStatus();
}

}  // namespace

absl::Status BenchCeilings(Report* report, DeviceTimer* timer) {
  const BenchCase empty = {"ceilings", "nothing between two events", 0};
  if (!report->Wants(empty)) {
    report->Wants({"ceilings", absl::StrCat("read of ", kCopyBytes, " bytes"), 0});
    report->Wants({"ceilings", absl::StrCat("copy of ", kCopyBytes, " bytes"), 0});
    report->Wants({"ceilings", absl::StrCat("bf16 product of ", kProductSide, " cubed"), 0});
    return absl::OkStatus();
  }
  COPPICE_RETURN_IF_ERROR(Read(report, timer));
  COPPICE_RETURN_IF_ERROR(Copy(report, timer));
  COPPICE_RETURN_IF_ERROR(Product(report, timer));
  COPPICE_ASSIGN_OR_RETURN(const Timing timing, timer->Time([] { return absl::OkStatus(); }));
  report->Add(empty, timing);
  return absl::OkStatus();
}

}  // namespace coppice::bench
