// Time of work on the device, by events: the median of several runs, before each of which other
// memory is read into the L2 cache (cache_cover.h). Launches themselves do not count; the pair of
// events does (ceilings.cc measures an empty one).
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/runtime/cache_cover.h"
#include "kernels/cuda/runtime/device_check.h"
#include "kernels/cuda/runtime/device_stream.h"
#include "lab/bench/cuda/report.h"

namespace coppice::bench {

// Median and spread of at least one value, in microseconds.
Timing Summarize(std::vector<double> us);

class DeviceTimer {
 public:
  // Takes the device; FailedPrecondition says what is missing.
  static absl::StatusOr<std::unique_ptr<DeviceTimer>> Create();
  DeviceTimer(const DeviceTimer&) = delete;
  DeviceTimer& operator=(const DeviceTimer&) = delete;
  ~DeviceTimer();

  kernels::cuda::DeviceStream* stream() { return &stream_; }
  const kernels::cuda::DeviceFacts& facts() const { return facts_; }
  // `enqueue` enqueues the work on stream(); errors of launches are found here.
  absl::StatusOr<Timing> Time(absl::FunctionRef<absl::Status()> enqueue);

 private:
  DeviceTimer(kernels::cuda::DeviceFacts facts, kernels::cuda::DeviceStream stream,
              kernels::cuda::CacheCover cover)
      : facts_(std::move(facts)), stream_(std::move(stream)), cover_(std::move(cover)) {}

  const kernels::cuda::DeviceFacts facts_;
  kernels::cuda::DeviceStream stream_;
  kernels::cuda::CacheCover cover_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace coppice::bench
