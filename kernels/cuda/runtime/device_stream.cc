#include "kernels/cuda/runtime/device_stream.h"

#include <sched.h>

#include <utility>

#include "base/status.h"
#include "kernels/cuda/runtime/device_error.h"

namespace coppice::kernels::cuda {

absl::StatusOr<DeviceStream> DeviceStream::Create(absl::string_view what) {
  DeviceStream stream;
  COPPICE_RETURN_IF_ERROR(
      CudaStatus(cudaStreamCreateWithFlags(&stream.stream_, cudaStreamNonBlocking),
                 "cudaStreamCreateWithFlags", what));
  return stream;
}

DeviceStream::DeviceStream(DeviceStream&& other) noexcept
    : stream_(std::exchange(other.stream_, nullptr)) {}

DeviceStream& DeviceStream::operator=(DeviceStream&& other) noexcept {
  std::swap(stream_, other.stream_);
  return *this;
}

DeviceStream::~DeviceStream() {
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

absl::Status DeviceStream::CopyToDevice(void* device, const void* pinned, size_t bytes,
                                        absl::string_view what) {
  return CudaStatus(cudaMemcpyAsync(device, pinned, bytes, cudaMemcpyHostToDevice, stream_),
                    "cudaMemcpyAsync to the device", what);
}

absl::Status DeviceStream::CopyToHost(void* pinned, const void* device, size_t bytes,
                                      absl::string_view what) {
  return CudaStatus(cudaMemcpyAsync(pinned, device, bytes, cudaMemcpyDeviceToHost, stream_),
                    "cudaMemcpyAsync to the host", what);
}

absl::Status DeviceStream::FillZero(void* device, size_t bytes, absl::string_view what) {
  return CudaStatus(cudaMemsetAsync(device, 0, bytes, stream_), "cudaMemsetAsync", what);
}

absl::Status DeviceStream::Synchronize(absl::string_view what) {
  return CudaStatus(cudaStreamSynchronize(stream_), "cudaStreamSynchronize", what);
}

absl::StatusOr<DeviceEvent> DeviceEvent::Create(absl::string_view what, bool timed) {
  DeviceEvent event;
  const unsigned flags = timed ? cudaEventDefault : cudaEventDisableTiming;
  COPPICE_RETURN_IF_ERROR(
      CudaStatus(cudaEventCreateWithFlags(&event.event_, flags), "cudaEventCreateWithFlags", what));
  return event;
}

DeviceEvent::DeviceEvent(DeviceEvent&& other) noexcept
    : event_(std::exchange(other.event_, nullptr)) {}

DeviceEvent& DeviceEvent::operator=(DeviceEvent&& other) noexcept {
  std::swap(event_, other.event_);
  return *this;
}

DeviceEvent::~DeviceEvent() {
  if (event_ != nullptr) cudaEventDestroy(event_);
}

absl::Status DeviceEvent::Record(const DeviceStream& stream, absl::string_view what) {
  return CudaStatus(cudaEventRecord(event_, stream.get()), "cudaEventRecord", what);
}

absl::StatusOr<bool> DeviceEvent::Reached(absl::string_view what) {
  const cudaError_t error = cudaEventQuery(event_);
  if (error == cudaErrorNotReady) {
    cudaGetLastError();  // "not ready" would be taken for the error of the next launch
    return false;
  }
  COPPICE_RETURN_IF_ERROR(CudaStatus(error, "cudaEventQuery", what));
  return true;
}

absl::Status DeviceEvent::Wait(absl::string_view what) {
  while (true) {
    COPPICE_ASSIGN_OR_RETURN(const bool reached, Reached(what));
    if (reached) return absl::OkStatus();
    sched_yield();
  }
}

absl::StatusOr<double> DeviceEvent::SecondsSince(const DeviceEvent& earlier,
                                                 absl::string_view what) const {
  float ms = 0;
  COPPICE_RETURN_IF_ERROR(
      CudaStatus(cudaEventElapsedTime(&ms, earlier.event_, event_), "cudaEventElapsedTime", what));
  return ms * 1e-3;
}

}  // namespace coppice::kernels::cuda
