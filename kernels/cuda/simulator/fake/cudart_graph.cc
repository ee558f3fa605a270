// The functions of the CUDA runtime that record the work of a stream as a graph, and launch it.
#include <cuda_runtime_api.h>

#include <functional>
#include <thread>
#include <utility>

#include "kernels/cuda/simulator/fake/device_state.h"

namespace fake = coppice::kernels::cuda::fake;
using fake::Call;
using fake::DeviceState;
using fake::UncapturedCall;

extern "C" {

cudaError_t CUDARTAPI cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return Call("cudaStreamBeginCapture", [&](DeviceState& state) {
    const cudaError_t wrong = state.CheckStream(stream, "a capture");
    if (wrong != cudaSuccess) return wrong;
    if (mode != cudaStreamCaptureModeThreadLocal) {
      return state.Violate("a capture that hinders other threads");
    }
    if (stream->capture != nullptr) return cudaErrorIllegalState;
    stream->capture = new CUgraph_st();
    stream->capturing_thread = std::this_thread::get_id();
    stream->capture_broken = false;
    ++state.live.graphs;
    return cudaSuccess;
  });
}

// The stream is no longer captured, whatever this returns.
cudaError_t CUDARTAPI cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  return Call(
      "cudaStreamEndCapture",
      [&](DeviceState& state) {
        if (!state.IsStream(stream)) return state.Violate("a capture of a stream that is gone");
        if (stream->capture == nullptr) return cudaErrorIllegalState;
        CUgraph_st* const recorded = std::exchange(stream->capture, nullptr);
        if (!stream->capture_broken && state.lasting_error == cudaSuccess) {
          *graph = recorded;
          return cudaSuccess;
        }
        delete recorded;
        --state.live.graphs;
        return cudaErrorStreamCaptureInvalidated;
      },
      true);
}

cudaError_t CUDARTAPI cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                           unsigned long long) {
  return UncapturedCall("cudaGraphInstantiate", [&](DeviceState& state) {
    const int device = DeviceState::CurrentDevice();
    if (device == state.settings.small_device &&
        ++state.graphs_of_small_device > state.settings.graphs_of_small_device)
      return cudaErrorMemoryAllocation;
    *executable = new CUgraphExec_st{graph->work, device};
    ++state.live.graphs;
    return cudaSuccess;
  });
}

cudaError_t CUDARTAPI cudaGraphDestroy(cudaGraph_t graph) {
  return Call(
      "cudaGraphDestroy",
      [&](DeviceState& state) {
        delete graph;
        --state.live.graphs;
        return cudaSuccess;
      },
      true);
}

cudaError_t CUDARTAPI cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return Call(
      "cudaGraphExecDestroy",
      [&](DeviceState& state) {
        delete executable;
        --state.live.graphs;
        return cudaSuccess;
      },
      true);
}

cudaError_t CUDARTAPI cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return UncapturedCall("cudaGraphLaunch", [&](DeviceState& state) {
    const cudaError_t wrong = state.CheckStream(stream, "a graph");
    if (wrong != cudaSuccess) return wrong;
    if (executable->device != stream->device) {
      state.Violate("a graph on a stream of another device");
      return cudaErrorInvalidValue;
    }
    for (const CUstream_st::Work& work : executable->work) state.Queue(stream, work.run, work.us);
    ++state.counts.graph_launches;
    return cudaSuccess;
  });
}

}  // extern "C"
