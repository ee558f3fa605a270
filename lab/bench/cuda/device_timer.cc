#include "lab/bench/cuda/device_timer.h"

#include <algorithm>

#include "base/status.h"
#include "kernels/cuda/runtime/device_error.h"
#include "lab/bench/cuda/llama_shape.h"

namespace coppice::bench {
namespace {

using kernels::cuda::CacheCover;
using kernels::cuda::CudaStatus;

constexpr char kWhat[] = "a benchmark";
constexpr int kWarmUps = 3;

}  // namespace

Timing Summarize(std::vector<double> us) {
  std::sort(us.begin(), us.end());
  const double median = us[us.size() / 2];
  if (median == 0) return {0, 0};
  return {median, (us[us.size() * 9 / 10] - us[us.size() / 10]) / median};
}

absl::StatusOr<std::unique_ptr<DeviceTimer>> DeviceTimer::Create() {
  COPPICE_ASSIGN_OR_RETURN(kernels::cuda::DeviceFacts facts, kernels::cuda::UseDevice());
  COPPICE_ASSIGN_OR_RETURN(kernels::cuda::DeviceStream stream,
                           kernels::cuda::DeviceStream::Create(kWhat));
  COPPICE_ASSIGN_OR_RETURN(CacheCover cover, CacheCover::Allocate(kCoverBytes, facts, kWhat));
  std::unique_ptr<DeviceTimer> timer(
      new DeviceTimer(std::move(facts), std::move(stream), std::move(cover)));
  COPPICE_RETURN_IF_ERROR(
      CudaStatus(cudaEventCreateWithFlags(&timer->begin_, 0), "cudaEventCreate", kWhat));
  COPPICE_RETURN_IF_ERROR(
      CudaStatus(cudaEventCreateWithFlags(&timer->end_, 0), "cudaEventCreate", kWhat));
  return timer;
}

DeviceTimer::~DeviceTimer() {
  if (begin_ != nullptr) cudaEventDestroy(begin_);
  if (end_ != nullptr) cudaEventDestroy(end_);
}

absl::StatusOr<Timing> DeviceTimer::Time(absl::FunctionRef<absl::Status()> enqueue) {
  std::vector<double> us;
  for (int run = -kWarmUps; run < kRuns; ++run) {
    COPPICE_RETURN_IF_ERROR(cover_.Read(&stream_, kWhat));
    COPPICE_RETURN_IF_ERROR(
        CudaStatus(cudaEventRecord(begin_, stream_.get()), "cudaEventRecord", kWhat));
    COPPICE_RETURN_IF_ERROR(enqueue());
    COPPICE_RETURN_IF_ERROR(CudaStatus(cudaGetLastError(), "kernel launch", kWhat));
    COPPICE_RETURN_IF_ERROR(
        CudaStatus(cudaEventRecord(end_, stream_.get()), "cudaEventRecord", kWhat));
    COPPICE_RETURN_IF_ERROR(stream_.Synchronize(kWhat));
    float ms = 0;
    COPPICE_RETURN_IF_ERROR(
        CudaStatus(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime", kWhat));
    if (run >= 0) us.push_back(ms * 1e3);
  }
  return Summarize(std::move(us));
}

}  // namespace coppice::bench
