// The queue of the device, and marks in it that the host can query. Owned, movable.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace coppice::kernels::cuda {

class DeviceStream {
 public:
  static absl::StatusOr<DeviceStream> Create(absl::string_view what);
  DeviceStream(DeviceStream&& other) noexcept;
  DeviceStream& operator=(DeviceStream&& other) noexcept;
  ~DeviceStream();

  cudaStream_t get() const { return stream_; }
  // Enqueue a copy between pinned and device memory, or a fill. `what` is named by errors.
  absl::Status CopyToDevice(void* device, const void* pinned, size_t bytes, absl::string_view what);
  absl::Status CopyToHost(void* pinned, const void* device, size_t bytes, absl::string_view what);
  absl::Status FillZero(void* device, size_t bytes, absl::string_view what);
  // Waits asleep until the queue is empty; for loading, not for steps.
  absl::Status Synchronize(absl::string_view what);

 private:
  DeviceStream() = default;
  cudaStream_t stream_ = nullptr;
};

class DeviceEvent {
 public:
  // timed: also for SecondsSince; it costs the device a little.
  static absl::StatusOr<DeviceEvent> Create(absl::string_view what, bool timed = false);
  DeviceEvent(DeviceEvent&& other) noexcept;
  DeviceEvent& operator=(DeviceEvent&& other) noexcept;
  ~DeviceEvent();

  // Marks the end of what is queued so far.
  absl::Status Record(const DeviceStream& stream, absl::string_view what);
  // Whether the device has reached the mark. An error is one of the work before it.
  absl::StatusOr<bool> Reached(absl::string_view what);
  // Polls, and lets other threads run in between: sleeping costs a wake-up.
  absl::Status Wait(absl::string_view what);
  // Time of the device between two timed marks that it has reached.
  absl::StatusOr<double> SecondsSince(const DeviceEvent& earlier, absl::string_view what) const;

 private:
  DeviceEvent() = default;
  cudaEvent_t event_ = nullptr;
};

}  // namespace coppice::kernels::cuda
