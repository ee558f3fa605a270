// Work of a stream recorded once, to be enqueued again with one call. Owned, movable.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/cuda/runtime/device_stream.h"

namespace coppice::kernels::cuda {

class DeviceGraph {
 public:
  // Records what `enqueue` puts on the stream instead of running it. It must not wait, query events
  // or allocate. Arguments of launches are kept as they are now. Errors name `what`;
  // ResourceExhausted also names the memory of the device. The stream is unchanged in any case.
  static absl::StatusOr<DeviceGraph> Capture(DeviceStream* stream, absl::string_view what,
                                             absl::FunctionRef<absl::Status()> enqueue);
  DeviceGraph() = default;  // an empty graph
  DeviceGraph(DeviceGraph&& other) noexcept;
  DeviceGraph& operator=(DeviceGraph&& other) noexcept;
  ~DeviceGraph();

  bool empty() const { return graph_ == nullptr; }
  // Enqueues all of it.
  absl::Status Launch(DeviceStream* stream, absl::string_view what) const;

 private:
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace coppice::kernels::cuda
