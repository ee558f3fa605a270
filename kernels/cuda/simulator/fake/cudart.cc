// The functions of the CUDA runtime that the backend calls. The toolkit's headers say what they do
// and return; fake_device.h says what is stricter here.
#include <cuda_runtime_api.h>

#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include "kernels/cuda/simulator/fake/device_state.h"
#include "kernels/cuda/simulator/simt.h"

namespace fake = coppice::kernels::cuda::fake;
namespace simt = coppice::kernels::cuda::simt;
using fake::Call;
using fake::DeviceState;
using fake::Place;
using fake::UncapturedCall;

namespace {

// Kernels come here: a launch returns nothing, its error is the last one.
void LaunchKernel(void* stream, simt::LaunchKind kind, std::function<void()> kernel) {
  Call("kernel launch", [&](DeviceState& state) {
    auto* queue = static_cast<CUstream_st*>(stream);
    const cudaError_t wrong = state.CheckStream(queue, "a kernel");
    if (wrong != cudaSuccess) return wrong;
    if (state.settings.major < 9 && (kind.overlaps || kind.cluster > 1))
      return state.Violate("a launch of compute capability 9.0");
    if (kind.cluster > 1 && !state.settings.clusters) return cudaErrorInvalidClusterSize;
    if (kind.overlaps && queue->capture != nullptr && !state.settings.captures_overlap) {
      queue->capture_broken = true;
      return cudaErrorStreamCaptureUnsupported;
    }
    state.counts.overlapping += kind.overlaps;
    state.counts.clustered += kind.cluster > 1;
    const auto work = [&state, kernel = std::move(kernel), declared = simt::TakeDeclared()] {
      const bool named = declared.name != nullptr;
      state.Count({named ? declared.name : "undeclared", named ? declared.cost() : simt::Cost(),
                   declared.blocks, declared.threads, declared.overlaps});
      if (!state.settings.count_only) kernel();
      return cudaSuccess;
    };
    state.counts.launches += state.Queue(queue, work);
    return cudaSuccess;
  });
}

// A driver and a device are there.
cudaError_t CheckDevice(const DeviceState& state) {
  if (state.settings.driver_version < CUDART_VERSION) return cudaErrorInsufficientDriver;
  return state.settings.devices == 0 ? cudaErrorNoDevice : cudaSuccess;
}

bool HoldsCopy(const DeviceState& state, void* to, const void* from, size_t bytes,
               cudaMemcpyKind kind) {
  if (kind == cudaMemcpyHostToDevice)
    return state.Holds(Place::kDevice, to, bytes) && state.Holds(Place::kPinned, from, bytes);
  if (kind == cudaMemcpyDeviceToHost)
    return state.Holds(Place::kPinned, to, bytes) && state.Holds(Place::kDevice, from, bytes);
  return kind == cudaMemcpyDeviceToDevice && state.Holds(Place::kDevice, to, bytes) &&
         state.Holds(Place::kDevice, from, bytes);
}

}  // namespace

extern "C" {

cudaError_t CUDARTAPI cudaDriverGetVersion(int* version) {
  return Call("cudaDriverGetVersion", [&](DeviceState& state) {
    *version = state.settings.driver_version;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaRuntimeGetVersion(int* version) {
  return Call("cudaRuntimeGetVersion", [&](DeviceState&) {
    *version = CUDART_VERSION;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaGetDeviceCount(int* count) {
  return Call("cudaGetDeviceCount", [&](DeviceState& state) {
    *count = state.settings.devices;
    return CheckDevice(state);
  });
}

cudaError_t CUDARTAPI cudaSetDevice(int device) {
  return Call("cudaSetDevice", [&](DeviceState& state) {
    if (device < 0 || device >= state.settings.devices) return cudaErrorInvalidDevice;
    DeviceState::CurrentDevice() = device;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaGetDevice(int* device) {
  return Call("cudaGetDevice", [&](DeviceState&) {
    *device = DeviceState::CurrentDevice();
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaGetDeviceProperties(cudaDeviceProp* device, int number) {
  return Call("cudaGetDeviceProperties", [&](DeviceState& state) {
    const fake::DeviceSettings& settings = state.settings;
    if (number < 0 || number >= settings.devices) return cudaErrorInvalidDevice;
    std::memset(device, 0, sizeof *device);
    std::strncpy(device->name, settings.name.c_str(), sizeof device->name - 1);
    device->uuid.bytes[0] = static_cast<char>(number + 1);  // the same for all processes
    device->major = settings.major;
    device->minor = settings.minor;
    device->pciDomainID = settings.pci_domain;
    device->pciBusID = settings.pci_bus + number;
    device->pciDeviceID = settings.pci_device;
    device->totalGlobalMem = settings.memory;
    device->multiProcessorCount = settings.multiprocessors;
    device->sharedMemPerMultiprocessor = settings.block_shared_bytes + (1 << 10);
    device->sharedMemPerBlockOptin = settings.block_shared_bytes;
    device->l2CacheSize = 1 << 14;
#if CUDART_VERSION >= 13000
    device->mpsEnabled = settings.mps;
#endif
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaMemGetInfo(size_t* free, size_t* total) {
  return Call("cudaMemGetInfo", [&](DeviceState& state) {
    *total = state.settings.memory;
    *free = *total - state.live.device_bytes;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaMalloc(void** data, size_t bytes) {
  return UncapturedCall("cudaMalloc", [&](DeviceState& state) {
    return state.Allocate(Place::kDevice, bytes, data);
  });
}

cudaError_t CUDARTAPI cudaFree(void* data) {
  return UncapturedCall(
      "cudaFree", [&](DeviceState& state) { return state.Free(Place::kDevice, data); }, true);
}

cudaError_t CUDARTAPI cudaHostAlloc(void** data, size_t bytes, unsigned int) {
  return UncapturedCall("cudaHostAlloc", [&](DeviceState& state) {
    return state.Allocate(Place::kPinned, bytes, data);
  });
}

cudaError_t CUDARTAPI cudaFreeHost(void* data) {
  return UncapturedCall(
      "cudaFreeHost", [&](DeviceState& state) { return state.Free(Place::kPinned, data); }, true);
}

cudaError_t CUDARTAPI cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                                      cudaStream_t stream) {
  return Call("cudaMemcpyAsync", [&](DeviceState& state) {
    if (!state.IsStream(stream)) return state.Violate("a copy on a stream that does not live");
    if (!HoldsCopy(state, to, from, bytes, kind)) {
      return state.Violate("a copy of " + std::to_string(bytes) +
                           " bytes beyond a buffer, or of host memory that is not pinned");
    }
    const bool queued = state.Queue(stream, [=, &state] {
      if (!HoldsCopy(state, to, from, bytes, kind)) return cudaErrorIllegalAddress;
      state.Count({kind == cudaMemcpyHostToDevice   ? "copy to device"
                   : kind == cudaMemcpyDeviceToHost ? "copy to host"
                                                    : "copy",
                   {static_cast<int64_t>(bytes)}});
      if (!state.settings.count_only || kind == cudaMemcpyHostToDevice)
        std::memcpy(to, from, bytes);
      return cudaSuccess;
    });
    fake::WorkCounts& counts = state.counts;
    if (queued && kind == cudaMemcpyHostToDevice) ++counts.copies_up, counts.bytes_up += bytes;
    if (queued && kind == cudaMemcpyDeviceToHost) ++counts.copies_down, counts.bytes_down += bytes;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream) {
  return Call("cudaMemsetAsync", [&](DeviceState& state) {
    const cudaError_t wrong = state.CheckStream(stream, "a fill");
    if (wrong != cudaSuccess) return wrong;
    if (!state.Holds(Place::kDevice, data, bytes)) return state.Violate("a fill beyond a buffer");
    state.Queue(stream, [=, &state] {
      state.Count({"fill", {static_cast<int64_t>(bytes)}});
      if (!state.settings.count_only) std::memset(data, value, bytes);
      return cudaSuccess;
    });
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int) {
  return Call("cudaStreamCreateWithFlags", [&](DeviceState& state) {
    coppice::kernels::cuda::simt::SetEnqueue(&LaunchKernel);
    *stream = new CUstream_st();
    (*stream)->device = DeviceState::CurrentDevice();
    state.AddStream(*stream);
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaStreamDestroy(cudaStream_t stream) {
  return Call(
      "cudaStreamDestroy",
      [&](DeviceState& state) {
        if (!state.IsStream(stream)) return state.Violate("a stream is destroyed twice");
        if (stream->capture != nullptr) {
          state.Violate("a stream is destroyed while it is captured");
          delete stream->capture;
          --state.live.graphs;
        }
        state.Drain(stream);
        state.RemoveStream(stream);
        delete stream;
        return cudaSuccess;
      },
      true);
}

cudaError_t CUDARTAPI cudaStreamSynchronize(cudaStream_t stream) {
  return UncapturedCall("cudaStreamSynchronize", [&](DeviceState& state) {
    if (!state.IsStream(stream)) return state.Violate("a wait for a stream that does not live");
    state.Drain(stream);
    return state.lasting_error;
  });
}

cudaError_t CUDARTAPI cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  return Call("cudaEventCreateWithFlags", [&](DeviceState& state) {
    *event = new CUevent_st();
    (*event)->timed = (flags & cudaEventDisableTiming) == 0;
    (*event)->device = DeviceState::CurrentDevice();
    ++state.live.events;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaEventDestroy(cudaEvent_t event) {
  return Call(
      "cudaEventDestroy",
      [&](DeviceState& state) {
        delete event;
        --state.live.events;
        return cudaSuccess;
      },
      true);
}

cudaError_t CUDARTAPI cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return Call("cudaEventRecord", [&](DeviceState& state) {
    if (!state.IsStream(stream)) return state.Violate("an event on a stream that does not live");
    if (event->device != stream->device) {
      state.Violate("an event on a stream of another device");
      return cudaErrorInvalidResourceHandle;
    }
    event->stream = stream;
    event->mark = stream->queued;
    event->captured = stream->capture != nullptr;
    return cudaSuccess;
  });
}

// Returns "not ready" once more when the work has just been done, so that nobody relies on the
// first answer.
cudaError_t CUDARTAPI cudaEventQuery(cudaEvent_t event) {
  return UncapturedCall("cudaEventQuery", [&](DeviceState& state) {
    if (event->captured) {
      state.Violate("a question after an event that was recorded in a capture");
      return cudaErrorCapturedEvent;
    }
    if (event->stream == nullptr || event->stream->done >= event->mark) return cudaSuccess;
    state.RunSome(event->stream, state.settings.work_per_query);
    return state.lasting_error == cudaSuccess ? cudaErrorNotReady : state.lasting_error;
  });
}

// The clock of the simulated device: DeviceSettings::work_us, product_us.
cudaError_t CUDARTAPI cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  return Call("cudaEventElapsedTime", [&](DeviceState& state) {
    for (const cudaEvent_t event : {begin, end}) {
      if (event->stream == nullptr || !event->timed || event->device != begin->device)
        return cudaErrorInvalidResourceHandle;
      if (event->stream->done < event->mark) return cudaErrorNotReady;
    }
    *ms = static_cast<float>(
        (end->stream->us_after[end->mark] - begin->stream->us_after[begin->mark]) * 1e-3);
    return state.lasting_error;
  });
}

cudaError_t CUDARTAPI cudaGetLastError(void) {
  cudaError_t last = cudaSuccess;
  const cudaError_t error = Call("cudaGetLastError", [&](DeviceState&) {
    last = std::exchange(DeviceState::LastError(), cudaSuccess);
    return cudaSuccess;
  });
  if (error == cudaSuccess) return last;
  DeviceState::LastError() = cudaSuccess;
  return error;
}

const char* CUDARTAPI cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorCapturedEvent:
      return "cudaErrorCapturedEvent";
    case cudaErrorPeerAccessUnsupported:
      return "cudaErrorPeerAccessUnsupported";
    default:
      return "cudaErrorUnknown";
  }
}

const char* CUDARTAPI cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
    default:
      return "an error of the simulated device";
  }
}

}  // extern "C"
