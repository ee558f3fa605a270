#include "kernels/cuda/runtime/device_graph.h"

#include <utility>

#include "base/status.h"
#include "kernels/cuda/runtime/device_error.h"

namespace coppice::kernels::cuda {

// Other threads may use the runtime meanwhile: the mode concerns only this thread.
absl::StatusOr<DeviceGraph> DeviceGraph::Capture(DeviceStream* stream, absl::string_view what,
                                                 absl::FunctionRef<absl::Status()> enqueue) {
  COPPICE_RETURN_IF_ERROR(
      CudaStatus(cudaStreamBeginCapture(stream->get(), cudaStreamCaptureModeThreadLocal),
                 "cudaStreamBeginCapture", what));
  absl::Status status = enqueue();
  cudaGraph_t recorded = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream->get(), &recorded);
  if (status.ok()) status = CudaStatus(ended, "cudaStreamEndCapture", what);
  DeviceGraph graph;
  if (status.ok()) {
    status = MemoryStatus(cudaGraphInstantiate(&graph.graph_, recorded, 0), "cudaGraphInstantiate",
                          what);
  }
  if (recorded != nullptr) cudaGraphDestroy(recorded);
  cudaGetLastError();  // what could not be ended or destroyed is no error of the next launch
  COPPICE_RETURN_IF_ERROR(status);
  return graph;
}

DeviceGraph::DeviceGraph(DeviceGraph&& other) noexcept
    : graph_(std::exchange(other.graph_, nullptr)) {}

DeviceGraph& DeviceGraph::operator=(DeviceGraph&& other) noexcept {
  std::swap(graph_, other.graph_);
  return *this;
}

DeviceGraph::~DeviceGraph() {
  if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
}

absl::Status DeviceGraph::Launch(DeviceStream* stream, absl::string_view what) const {
  return CudaStatus(cudaGraphLaunch(graph_, stream->get()), "cudaGraphLaunch", what);
}

}  // namespace coppice::kernels::cuda
